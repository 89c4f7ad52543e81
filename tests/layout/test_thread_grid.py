"""Tiles on a grid of threads: each element lies once with the threads that share it."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import tirx
from tvm.sym.analyzer import Analyzer

from warploom.errors import IllegalCombination
from warploom.layout.thread_grid import ThreadGrid
from warploom.ops.register_tile import RegisterTile, Threads, read_register_tile
from warploom.tile import ir


def tile_of(shape: tuple[int, ...], layout: object, grid: ThreadGrid) -> RegisterTile:
    tile = tirx.decl_buffer(shape, "float32", "x", scope="local", layout=layout)
    threads = Threads("cta", 0, grid.threads // 32)
    return read_register_tile(ir.whole(tile), "x", threads, Analyzer())


@pytest.mark.parametrize("seed", range(12))
def test_every_element_has_a_place(seed):
    rng = np.random.default_rng(seed)
    threads = 128 << int(rng.integers(4))
    across = 1 << int(rng.integers(threads.bit_length()))
    grid = ThreadGrid(threads // across, across, 1 << int(rng.integers(4)))
    rows, columns = grid.padded(int(rng.integers(1, 40)), int(rng.integers(1, 3000)))
    assert rows % grid.down == columns % grid.columns == 0
    matrix = tile_of((rows, columns), grid.matrix(rows, columns), grid)
    assert (np.bincount(matrix.table.ravel(), minlength=rows * columns) == 1).all()
    # Registers go along a row, neighbours of a row first.
    row, column = np.unravel_index(matrix.table, (rows, columns))
    runs = column.reshape(threads, -1, grid.vector)
    assert (runs == runs[..., :1] + np.arange(grid.vector)).all()
    assert (runs[..., 0] % grid.vector == 0).all()
    # Threads of a row follow each other.
    assert (row[:, 0] == np.arange(threads) // across).all()
    # Vectors lie where their rows and columns do.
    along_rows = tile_of((rows,), grid.along_rows(rows), grid)
    assert all(set(row[t]) == set(along_rows.table[t]) for t in range(threads))
    along_columns = tile_of((columns,), grid.along_columns(columns), grid)
    assert all(set(column[t]) == set(along_columns.table[t]) for t in range(threads))


@pytest.mark.parametrize("name", ["down", "across", "vector"])
def test_a_grid_has_powers_of_two(name):
    parts = {"down": 4, "across": 32, "vector": 4, name: 3}
    with pytest.raises(IllegalCombination, match=f"powers of two, got {name}=3"):
        ThreadGrid(**parts)
