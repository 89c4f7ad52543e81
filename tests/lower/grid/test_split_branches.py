"""CTAs that share tiles of which some have nothing to compute, as only the device knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.lowered_programs import check, hinted, last_cta_first, run, worst_error
from tests.shared.tile_programs.case import Case, poisoned, random_values, wide
from warploom import language as wl
from warploom.errors import Decline
from warploom.language.interpreter import statements
from warploom.lower.grid.split_tiles import split_tiles
from warploom.lower.lowerings import lower
from warploom.lower.passes.canonicalize import canonicalize
from warploom.lower.passes.squeeze_vectors import squeeze_vectors
from warploom.tile.read import read

#: Tiles that have nothing to compute: in the middle, at both ends, all, none.
EMPTY = [(1, 2), (0, 4), (0, 1, 2, 3, 4), ()]
WORKSPACE, CLUSTER = {"split_k": 3}, {"split_k": 2, "reduce_through": "cluster"}


def chosen(
    empty: tuple[int, ...], rows: int = 64, k: int = 200, stages: int = 2, after: bool = False
) -> Case:
    """C = A B^T, of the tiles of rows whose flag is set; the others of C are left alone.

    ``after``: whether a statement follows the branch.
    """
    tiles, n, bk = 5, 64, 32

    @T.prim_func
    def program(
        A: T.Buffer((tiles * rows, k), "float16"), B: T.Buffer((n, k), "float16"),
        Wanted: T.Buffer((tiles,), "int32"), C: T.Buffer((tiles * rows, n), "float32"),
        Seen: T.Buffer((tiles * rows, n), "float32"),
    ):  # fmt: skip
        T.device_entry()
        i = T.cta_id([tiles])
        A_s = T.alloc_buffer((rows, bk), "float16", scope="shared")
        B_s = T.alloc_buffer((n, bk), "float16", scope="shared")
        acc = T.alloc_buffer((rows, n), "float32", scope="accumulator")
        out = T.alloc_buffer((rows, n), "float32", scope="fragment")
        wanted = T.local_scalar("int32")
        wanted = Wanted[i]
        if wanted > 0:
            for step in wl.pipelined(-(-k // bk), stages):
                start = T.meta_var(step * bk)
                Tx.cta.copy_async(A_s, A[i * rows : i * rows + rows, start : start + bk])
                Tx.cta.copy_async(B_s, B[0:n, start : start + bk])
                Tx.cta.gemm_async(acc, A_s, B_s, accum=step > 0)
            Tx.cta.copy(out, acc)
            Tx.cta.copy(C[i * rows : i * rows + rows, 0:n], out)
        if after:
            for y, x in T.grid(rows, n):
                Seen[i * rows + y, x] = T.float32(1)

    def arguments(rng: np.random.Generator) -> list[Any]:
        wanted = np.array([tile not in empty for tile in range(tiles)], np.int32)
        c = poisoned((tiles * rows, n), "float32")
        c.reshape(tiles, rows, n)[list(empty)] = 77
        a, b = (random_values(rng, (count, k), "float16") for count in (tiles * rows, n))
        return [a, b, wanted, c, np.full_like(c, 3)]

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        c = (wide(args[0]) @ wide(args[1]).T).reshape(tiles, rows, n)
        c[list(empty)] = 77
        return {3: c.reshape(tiles * rows, n)}

    return Case(program, arguments, expected, 1e-6)


@pytest.mark.parametrize("empty", EMPTY)
@pytest.mark.parametrize(
    ("how", "arch", "ctas", "rows"),
    [
        (WORKSPACE, "sm_90a", 7, 64), (WORKSPACE, "sm_90a", 2, 16), (WORKSPACE, "sm_100a", 7, 128),
        (CLUSTER, "sm_90a", 4, 128), (CLUSTER, "sm_90a", 2, 64),
        ({"stream_k": True}, "sm_90a", 4, 64),
    ],
)  # fmt: skip
@pytest.mark.some(6)
def test_tiles_that_have_nothing_to_compute(rng, empty, how, arch, ctas, rows):
    check(chosen(empty, rows), rng, arch, ctas=ctas, **how)


@pytest.mark.parametrize("specialise", [True, False])
@pytest.mark.parametrize("k", [32, 96, 104])
@pytest.mark.some(2)
def test_parts_of_any_number_of_steps(rng, k, specialise):
    """A step each, and as many steps as stages, one more and one less, and loads by all warps."""
    hints = {"ctas": 6, "split_k": -(-k // 32), "specialise": specialise}
    check(chosen((1,), 64, k, 1 + specialise), rng, **hints)


@pytest.mark.parametrize("ctas", [1, 2, 3, 5, 12])
def test_the_interpreter_gets_the_same_result(rng, monkeypatch, ctas):
    """No CTA waits for its slot: each part of a tile has another."""
    waits = statements.wait_until

    def is_free(happened: Any, event: str) -> Any:
        assert "to be taken" not in event or happened(), event
        return waits(happened, event)

    monkeypatch.setattr(statements, "wait_until", is_free)
    case = chosen((1, 3))
    program = squeeze_vectors(canonicalize(read(hinted(case.func, split_k=3))))
    arguments = case.arguments(rng)
    after = [np.copy(one) for one in arguments]
    wl.interpret(split_tiles(program, ctas).to_func(), after)
    assert worst_error(case, arguments, after) <= 1


def test_owners_wait_for_others_that_come_later(rng):
    case = chosen((0, 3))
    arguments = case.arguments(rng)
    func = last_cta_first(hinted(case.func, ctas=6, **WORKSPACE))
    assert worst_error(case, arguments, run(func, [np.copy(one) for one in arguments])) <= 1


def test_statements_behind_the_branch_are_declined():
    with pytest.raises(Decline, match="has another case or is followed by statements"):
        lower(hinted(chosen((), after=True).func, split_k=2))
