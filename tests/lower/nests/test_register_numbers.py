"""Registers of the elements that nests index: each row of them is found once for a nest."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import tirx
from tvm.sym.analyzer import Analyzer

from warploom.errors import Decline
from warploom.layout.fragment import wgmma_accumulator
from warploom.lower.nests import register_numbers
from warploom.lower.nests.register_numbers import RegisterNumbers
from warploom.ops.register_tile import RegisterTile, Threads, read_register_tile
from warploom.tile import ir

_WARPGROUP = Threads("warpgroup", 0, 4)
_SHAPE = (64, 32)


def _tile(name: str) -> RegisterTile:
    buffer = tirx.decl_buffer(
        _SHAPE, "float32", name, scope="local", layout=wgmma_accumulator(*_SHAPE)
    )
    return read_register_tile(ir.whole(buffer), name, _WARPGROUP, Analyzer())


@pytest.fixture
def nest():
    """A tile, the loop variables of a nest over it, and what the nest numbers registers with."""
    tile, loops = _tile("acc"), [tirx.Var(name, "int32") for name in "ij"]
    counts = dict(zip(loops, np.unravel_index(tile.table, tile.shape), strict=True))
    return tile, loops, RegisterNumbers(tile, counts)


def _expected(tile: RegisterTile, other: RegisterTile, place) -> list[int]:
    """By search: which register of thread 0 holds the element at ``place(row, column)``."""
    held = dict(zip(other.table[0].tolist(), other.offsets, strict=True))
    rows, columns = np.unravel_index(tile.table[0], tile.shape)
    places = zip(rows.tolist(), columns.tolist(), strict=True)
    return [held[int(np.ravel_multi_index(place(*each), other.shape))] for each in places]


def test_each_register_has_the_number_of_its_element(nest, monkeypatch):
    tile, (i, j), numbers = nest
    other, found, stock = _tile("other"), [], register_numbers._registers_of

    def registers_of(*arguments):
        found.append(arguments)
        return stock(*arguments)

    monkeypatch.setattr(register_numbers, "_registers_of", registers_of)
    # The same element, and the one with the groups of 8 columns from behind.
    for places, place in (
        ((i, j), lambda y, x: (y, x)),
        ((i, 24 - j // 8 * 8 + j % 8), lambda y, x: (y, 24 - x // 8 * 8 + x % 8)),
    ):
        got = [int(numbers.of(other, places, offset)) for offset in tile.offsets]
        assert got == _expected(tile, other, place)
    assert len(found) == 2
    numbers.of(_tile("third"), (i, j), 0)
    assert len(found) == 3, "of another tile"


def test_an_element_of_another_thread_is_declined(nest):
    _, (i, j), numbers = nest
    for _ in range(2):
        with pytest.raises(Decline, match="other threads hold"):
            numbers.of(_tile("other"), (63 - i, j), 0)
