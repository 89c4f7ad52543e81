"""Results that are computed as the transpose: who holds them, and how they leave."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import tirx
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared import gemm_functions, tile_programs
from tests.shared.gemm_functions import FUNCTIONS, Function
from tests.shared.lowered_programs import check, hinted, run
from tests.shared.sampling import sampled
from tests.shared.tile_programs.case import Case, poisoned, random_values, wide
from warploom import language as wl
from warploom.decide import Config
from warploom.errors import Decline
from warploom.gemm import recognise
from warploom.gemm.generate import tile_program
from warploom.layout.fragment import wgmma_accumulator
from warploom.lower.analysis.fragments import Fragments, fragments_of
from warploom.lower.analysis.transposed import transposed_tiles
from warploom.lower.lowerings import lower
from warploom.lower.trace import lower_trace
from warploom.target import transposed_chunks
from warploom.tile.program import allocations
from warploom.tile.read import read


def swapped(tile_m: int, tile_n: int, **more: Any) -> Config:
    """Configs of a GEMM with A and B swapped, with few stages."""
    return Config(
        tile_m, tile_n, 64, 2, swap_ab=True, **{"consumers": min(2, tile_n // 64), **more}
    )


def decisions(function: Function, config: Config) -> list[str]:
    program = tile_program(recognise(function.func), config)
    return [one for step in lower_trace(program) for one in step.decisions]


def compute(function: Function, config: Config, rng: np.random.Generator, **hints: Any) -> None:
    """Run the program of a function on the emulator, checked, and compare."""
    program = hinted(tile_program(recognise(function.func), config), **hints)
    arguments = function.arguments(rng)
    after = run(lower(program), [np.copy(one) for one in arguments])
    function.assert_right(after[len(after) - function.outputs :], arguments)


@pytest.mark.parametrize("rows", range(8, 264, 8))
@pytest.mark.parametrize(("columns", "size"), [(64, 2), (64, 4), (128, 2)])
def test_chunks_cover_all_rows_and_begin_at_multiples_of_their_own(rows, columns, size):
    heights = transposed_chunks(rows, columns, size)
    assert sum(heights) == rows and all(one % 8 == 0 for one in heights)
    first = np.cumsum([0, *heights[:-1]])
    assert not any(start % height for start, height in zip(first, heights, strict=True))
    assert max(heights) * columns * size <= 4096


def test_other_rows_have_no_chunks():
    assert transposed_chunks(20, 64, 2) == []


@pytest.mark.parametrize("row_a_thread", [False, True])
def test_a_transposed_fragment_is_held_as_its_transpose_is(row_a_thread):
    plain, turned = Fragments(row_a_thread), Fragments(row_a_thread, transposed=True)
    held, transpose = plain.matrix(128, 24), turned.matrix(24, 128)
    for y, x in [(0, 0), (5, 9), (8, 127), (23, 64)]:
        there = {str(axis): int(v) for axis, v in held.apply(x, y, shape=[128, 24]).items()}
        here = {str(axis): int(v) for axis, v in transpose.apply(y, x, shape=[24, 128]).items()}
        assert here == there


@pytest.mark.parametrize(
    ("m", "n", "config", "out", "chunks"),
    [
        (1, 72, swapped(8, 64), "float16", "8 x 64"),
        (7, 200, swapped(8, 128), "bfloat16", "8 x 64"),
        (200, 136, swapped(200, 64), "float16", "32 or 8 x 64"),
        (213, 264, swapped(200, 128), "float16", "32 or 8 x 64"),
        (100, 328, swapped(56, 192, consumers=3), "float16", "32 or 16 or 8 x 64"),
        (90, 264, swapped(40, 256), "float16", "32 or 8 x 64"),
        (90, 264, swapped(40, 256), "float32", "16 or 8 x 64"),
        (1, 68, swapped(8, 64), "float32", "8 x 64"),
        (77, 104, swapped(72, 128, split_k=2), "float32", "16 or 8 x 64"),
        (77, 104, swapped(72, 64, split_k=2, reduce_through="cluster"), "float16", "32 or 8 x 64"),
        (60, 136, swapped(24, 64, specialise=False), "float16", "16 or 8 x 64"),
        (60, 136, swapped(24, 64, persistent=False), "float16", "16 or 8 x 64"),
        (300, 200, swapped(80, 128, cluster_m=2), "float16", "32 or 16 x 64"),
    ],
)  # fmt: skip
@pytest.mark.some(3)
def test_swapped_results_leave_in_chunks(m, n, config, out, chunks, rng):
    dtype = "bfloat16" if out == "bfloat16" else "float16"
    function = gemm_functions.matmul(m, n, 136, dtype=dtype, out=out)
    assert f"store into C: by TMA, in chunks of {chunks} elements" in decisions(function, config)
    compute(function, config, rng)


@pytest.mark.parametrize("out", ["float16", "float32"])
@pytest.mark.parametrize("store_buffers", [1, 2, 4])
@pytest.mark.some(3)
def test_buffers_serve_tile_after_tile(out, store_buffers, rng):
    function = gemm_functions.matmul(180, 200, 96, out=out)
    compute(function, swapped(56, 128), rng, ctas=2, store_buffers=store_buffers)


@pytest.mark.parametrize("name", sampled(FUNCTIONS, 2))
@pytest.mark.some(3)
def test_functions_are_computed_as_the_transpose(name, rng):
    function = FUNCTIONS[name]()
    compute(function, swapped(40, 64), rng)
    parts = swapped(24, 128, split_k=2, reduce_through="cluster")
    if recognise(function.func).problem.k > parts.tile_k:  # a part has a step at least
        compute(function, parts, rng)


@pytest.mark.in_turn(3)
def test_a_residual_comes_through_the_buffers_of_chunks(rng):
    function = gemm_functions.epilogue(150, 136)
    for config in (swapped(72, 128), swapped(136, 64)):
        assert "residual: comes through the buffers of chunks" in decisions(function, config)
        compute(function, config, rng, ctas=2)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda: gemm_functions.matmul(40, 70), "rows of no whole 16 bytes"),
        (lambda: gemm_functions.matmul(40, 80, out="float8_e4m3fn"), "too few neighbours"),
    ],
)
def test_other_results_go_through_a_whole_tile(function, why, rng):
    function = function()
    config = swapped(40, 64)
    gemm = recognise(function.func)
    assert not config.stores_in_chunks(gemm.problem, gemm.problem.outputs[0]), why
    program = tile_program(gemm, config)
    assert [b.scope() for b in allocations(read(program).body) if b.name == "out"] == ["shared"]
    if "float8" not in gemm.problem.outputs[0]:
        compute(function, config, rng)


@pytest.mark.parametrize("tile_m", [8, 56, 152])
@pytest.mark.parametrize("tile_n", [64, 128, 256])
@pytest.mark.parametrize(
    ("n", "out"), [(328, "float16"), (328, "float32"), (330, "float16"), (332, "float32")]
)
@pytest.mark.some(9)
def test_config_know_the_bytes_that_results_go_through(tile_m, tile_n, n, out):
    function = gemm_functions.matmul(200, n, 96, out=out)
    config = swapped(tile_m, tile_n)
    (used,) = (
        int(one.split()[2])
        for one in decisions(function, config)
        if one.startswith("shared memory")
    )
    assert 0 <= config.shared_bytes(recognise(function.func).problem) - used <= 1024


def turned(reads: str) -> Any:
    """A program whose results are the transpose of its sums, with vectors along either side."""

    @T.prim_func
    def func(
        A: T.Buffer((40, 64), "float16"), B: T.Buffer((192, 64), "float16"),
        V: T.Buffer((40,), "float32"), W: T.Buffer((192,), "float32"),
        C: T.Buffer((40, 192), "float16"),
    ):  # fmt: skip
        T.device_entry()
        wl.hints(consumers=1)
        i = T.cta_id([3])
        A_s = T.alloc_buffer((40, 64), "float16", scope="shared")
        B_s = T.alloc_buffer((64, 64), "float16", scope="shared")
        acc = T.alloc_buffer((64, 40), "float32", scope="accumulator")
        by_row = T.alloc_buffer((40,), "float32", scope="fragment")
        by_column = T.alloc_buffer((64,), "float32", scope="fragment")
        some = T.alloc_buffer((40, 64), "float32", scope="fragment")
        out = T.alloc_buffer((40, 64), "float16", scope="fragment")
        Tx.cta.copy_async(A_s, A[0:40, 0:64])
        Tx.cta.copy_async(B_s, B[i * 64 : i * 64 + 64, 0:64])
        Tx.cta.gemm_async(acc, B_s, A_s, accum=False)
        for y in T.serial(40):
            by_row[y] = V[y]
        for x in T.serial(64):
            by_column[x] = W[i * 64 + x]
        for y, x in T.grid(40, 64):
            some[y, x] = acc[x, y] * by_row[y]
        if reads == "sum":
            Tx.cta.sum(by_row, some, axes=(1,))
        for y, x in T.grid(40, 64):
            out[y, x] = T.cast(some[y, x] + by_column[x], "float16")
        Tx.cta.copy(C[0:40, i * 64 : i * 64 + 64], out)

    return func


def test_vectors_lie_along_either_side_of_transposed_tiles(rng):
    def arguments(rng: np.random.Generator) -> list:
        operands = [random_values(rng, (rows, 64), "float16") for rows in (40, 192)]
        vectors = [random_values(rng, (length,), "float32") for length in (40, 192)]
        return [*operands, *vectors, poisoned((40, 192), "float16")]

    def expected(args: list) -> dict[int, np.ndarray]:
        a, b, v, w = map(wide, args[:4])
        return {4: a @ b.T * v[:, None] + w}

    func = turned("")
    names = {tile.name for tile in transposed_tiles(read(func).block)}
    assert names == {"some", "out"}
    check(Case(func, arguments, expected, 1e-3), rng)


def test_tiles_that_are_reduced_are_not_transposed():
    with pytest.raises(Decline, match="The tile some has 40 rows; a warpgroup"):
        lower(turned("sum"))


@pytest.mark.parametrize(
    ("to", "transposed"), [("global", True), ("shared", False), ("cast", False)]
)
def test_only_copies_to_global_memory_leave_a_tile_transposed(to, transposed):
    """Any other primitive wants its operand as it is, a copy to shared memory too."""

    @T.prim_func
    def func(A: T.Buffer((128, 64), "float16"), B: T.Buffer((64, 64), "float16"),
             C: T.Buffer((64, 128), "float32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((128, 64), "float16", scope="shared")
        B_s = T.alloc_buffer((64, 64), "float16", scope="shared")
        out_s = T.alloc_buffer((64, 128), "float32", scope="shared")
        acc = T.alloc_buffer((128, 64), "float32", scope="accumulator")
        out = T.alloc_buffer((64, 128), "float32", scope="fragment")
        other = T.alloc_buffer((64, 128), "float16", scope="fragment")
        for k in wl.pipelined(1, 1):
            Tx.cta.copy_async(A_s, A)
            Tx.cta.copy_async(B_s, B)
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
        for y, x in T.grid(64, 128):
            out[y, x] = acc[x, y]
        if to == "shared":
            Tx.cta.copy(out_s, out)
        if to == "cast":
            Tx.cta.cast(other, out)
        Tx.cta.copy(C, out)

    names = {tile.name for tile in transposed_tiles(read(func).block)}
    assert names == ({"out"} if transposed else set())


def test_the_layout_of_a_tile_tells_whether_it_is_transposed():
    for rows, columns, transposed in [(64, 64, False), (64, 64, True), (24, 128, True)]:
        layout = Fragments(transposed=transposed).matrix(rows, columns)
        tile = tirx.decl_buffer((rows, columns), "float16", scope="local", layout=layout)
        assert fragments_of(tile, False) == Fragments(transposed=transposed)
    tile = tirx.decl_buffer((128, 40), "float32", scope="local", layout=wgmma_accumulator(128, 40))
    assert fragments_of(tile, False) == Fragments()


@pytest.mark.parametrize("tile", [(16, 128, 64), (8, 64, 128)])
def test_blackwell_stores_transposed_tiles_too(tile, rng):
    case = tile_programs.packed(13, bits=8, tile=tile, group=64, n=200)
    check(case, rng, arch="sm_100a")
