"""8- and 32-bit operands that lie along M or N, and 8-bit operands in registers, on Hopper."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

import warploom
from tests.shared import tile_programs
from tests.shared.lowered_programs import check, local_memory, run
from tests.shared.tile_programs.case import Case, poisoned, random_values, wide
from warploom import language as wl
from warploom.lower.hopper import alternate_operands, mma_waits
from warploom.lower.lowerings import lower
from warploom.lower.trace import lower_trace
from warploom.target import cuda_target

BYTES = ("int8", "float8_e4m3fn")
LAYOUTS = ("NN", "TT", "TN")


def gemm(*sizes: Any, **options: Any) -> Case:
    case = tile_programs.gemm(*sizes, **options)
    # The tensor core ignores the low 13 bits of float32.
    narrow = options["dtype"] == "float32"
    return dataclasses.replace(case, tolerance=2e-3) if narrow else case


def cuda(func: Any) -> str:
    module = tvm.IRModule({"main": lower(func, "sm_90a", quiet=True)})
    built = tvm.compile(module, cuda_target("sm_90a"), tir_pipeline="tirx")
    return built.mod.imports[0].inspect_source()


def decisions(func: Any) -> list[str]:
    return [one for step in lower_trace(func, "sm_90a") for one in step.decisions]


@pytest.mark.parametrize("dtype", [*BYTES, "float8_e5m2", "uint8", "float32"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("tile", [(64, 64, 32), (128, 96, 64), (64, 32, 128), (128, 16, 32)])
@pytest.mark.some(5)
def test_operands_along_m_and_n(dtype, layout, tile, rng):
    check(gemm(144, 112, 160, tile, dtype=dtype, layout=layout), rng)


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("k", [32, 64, 96, 160])
@pytest.mark.parametrize("specialise", [True, False])
@pytest.mark.some(4)
def test_trip_counts_around_the_stages(stages, k, specialise, rng):
    case = gemm(128, 64, k, (128, 64, 32), dtype="int8", layout="TN", stages=stages)
    check(case, rng, specialise=specialise)


@pytest.mark.parametrize("n", [64, 70])
def test_rows_of_any_length(n, rng):
    check(gemm(64, n, 64, (64, 64, 32), dtype="int8", layout="NN"), rng)


def in_registers(
    dtype: str, of: str, b_along_k: bool, columns: int = 64, part: int = 0, rows: int = 128
) -> Case:
    """D = f(A) B: A from shared memory, or the result of another MMA, in registers."""
    acc = "int32" if dtype == "int8" else "float32"
    k, n = columns - part, 48
    steps = 3
    b_tile = (n, k) if b_along_k else (k, n)

    @T.prim_func
    def program(
        A: T.Buffer((rows, steps * columns), dtype), B: T.Buffer((steps, *b_tile), dtype),
        D: T.Buffer((rows, n), acc),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((rows, columns), dtype, scope="shared")
        B_s = T.alloc_buffer(b_tile, dtype, scope="shared")
        A_f = T.alloc_buffer((rows, columns), dtype, scope="fragment")
        wide = T.alloc_buffer((rows, columns), acc, scope="fragment")
        sums = T.alloc_buffer((rows, n), acc, scope="accumulator")
        for step in wl.pipelined(steps, 2):
            Tx.cta.copy_async(A_s, A[0:rows, step * columns : step * columns + columns])
            Tx.cta.copy_async(B_s, B[step, 0 : b_tile[0], 0 : b_tile[1]])
            if of == "shared":
                for i, j in T.grid(rows, columns):
                    A_f[i, j] = A_s[i, j]
            else:
                for i, j in T.grid(rows, columns):
                    wide[i, j] = T.cast(A_s[i, j], acc)
                for i, j in T.grid(rows, columns):
                    A_f[i, j] = T.cast(wide[i, j], dtype)
            Tx.cta.gemm_async(
                sums, A_f[0:rows, part:columns], B_s, transB=not b_along_k, accum=step > 0
            )
        Tx.cta.copy(D[0:rows, 0:n], sums)

    def arguments(rng: np.random.Generator) -> list[Any]:
        shapes = (rows, steps * columns), (steps, *b_tile)
        made = [random_values(rng, shape, dtype) for shape in shapes]
        return [*made, poisoned((rows, n), acc)]

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        a, b = map(wide, args[:2])
        a = a.reshape(rows, steps, columns)[:, :, part:].transpose(1, 0, 2)
        return {2: (a @ (b.swapaxes(1, 2) if b_along_k else b)).sum(0)}

    return Case(program, arguments, expected, 1e-5)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("of", ["shared", "fragments"])
@pytest.mark.parametrize("b_along_k", [True, False])
@pytest.mark.parametrize("consumers", [1, 2])
@pytest.mark.some(5)
def test_bytes_of_a_in_registers(dtype, of, b_along_k, consumers, rng):
    check(in_registers(dtype, of, b_along_k, rows=64 * consumers), rng, consumers=consumers)


@pytest.mark.parametrize("b_along_k", [True, False])
def test_a_part_of_the_columns_in_registers(b_along_k, rng):
    check(in_registers("int8", "fragments", b_along_k, 96, 32, rows=64), rng)


def test_the_way_of_bytes_to_registers_is_told():
    func = in_registers("int8", "fragments", True).func
    assert "operand A_f: columns of each thread exchanged between lanes" in decisions(func)
    assert cuda(func).count("warploom_from_lane(") > 2
    func = in_registers("int8", "fragments", False).func
    assert "operand A_f: columns of each thread as they are" in decisions(func)
    assert "from_lane" not in cuda(func)
    # Nests on elements in shared memory begin with the order of the operand.
    func = in_registers("int8", "shared", True).func
    assert not any("columns of each thread" in one for one in decisions(func))


@pytest.mark.parametrize("in_loop", [True, False])
def test_a_tile_is_transposed_once_and_before_a_loop_that_reads_it_again(in_loop, rng):
    @T.prim_func
    def program(
        A: T.Buffer((64, 64), "int8"), B: T.Buffer((192, 64), "int8"),
        D: T.Buffer((64, 64), "int32"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((64, 64), "int8", scope="shared")
        B_s = T.alloc_buffer((64, 64), "int8", scope="shared")
        d = T.alloc_buffer((64, 64), "int32", scope="accumulator")
        e = T.alloc_buffer((64, 64), "int32", scope="accumulator")
        if not in_loop:
            Tx.cta.copy_async(A_s, A[0:64, 0:64])
        for step in wl.pipelined(3, 2):
            if in_loop:
                Tx.cta.copy_async(A_s, A[0:64, 0:64])
            Tx.cta.copy_async(B_s, B[step * 64 : step * 64 + 64, 0:64])
            Tx.cta.gemm_async(d, A_s, B_s, transA=True, accum=step > 0)
            Tx.cta.gemm_async(e, A_s, B_s, transA=True, accum=step > 0)
        for i, j in T.grid(64, 64):
            d[i, j] = d[i, j] + e[i, j]
        Tx.cta.copy(D[0:64, 0:64], d)

    def arguments(rng: np.random.Generator) -> list[Any]:
        made = [random_values(rng, shape, "int8") for shape in ((64, 64), (192, 64))]
        return [*made, poisoned((64, 64), "int32")]

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        a, b = map(wide, args[:2])
        return {2: 2 * a.T @ b.reshape(3, 64, 64).sum(0).T}

    check(Case(program, arguments, expected, 0.0), rng)
    (transposed,) = [one for one in decisions(program) if "A_s: transposed by threads" in one]
    assert transposed.endswith("as sm_90a reads int8 along K")
    source = cuda(program)
    # One transposition of 64 x 64 bytes: two parts for each of four warps.
    assert source.count("warploom_ldmatrix_trans(rows_of_k") == 2
    before = source.index("warploom_ldmatrix_trans(rows_of_k") < source.index("for (int step")
    assert before == (not in_loop) or source.count("for (int step") > 1


def transposing(**options: Any) -> Any:
    return gemm(128, 64, 160, (128, 64, 32), dtype="int8", layout="NN", **options).func


def test_threads_transpose_while_the_mma_before_runs():
    func = transposing(stages=2)
    assert any("2 copies, which iterations over step alternate" in one for one in decisions(func))
    loop = cuda(func).split("warploom_ldmatrix_trans(rows_of_k", 1)[1]
    assert loop.index("wait_group_sync_aligned_1") < loop.index("wait_group_sync_aligned_0")


def test_the_emulator_misses_the_second_copy(monkeypatch, rng):
    """All iterations write the copy that the MMA before still reads."""
    case = gemm(128, 64, 160, (128, 64, 32), dtype="int8", layout="NN", stages=2)
    first = tvm.tirx.const(0, "int32")
    monkeypatch.setattr(alternate_operands, "copy_in", lambda _: first)

    def pretend(loop: Any) -> Any:
        return frozenset(one for one in loop.effects.writes if one.name.endswith("k_major"))

    monkeypatch.setattr(mma_waits, "alternating", pretend)
    with pytest.raises(Exception, match="race"):
        run(lower(case.func, "sm_90a", quiet=True), case.arguments(rng))


def test_one_copy_where_there_is_no_room_for_two(rng):
    case = gemm(128, 96, 512, (128, 96, 256), dtype="int8", layout="NN", stages=3)
    assert not any("2 copies" in one for one in decisions(case.func))
    check(case, rng)


@pytest.mark.parametrize("layout", ["NN", "TN"])
@pytest.mark.some(1)
def test_usual_tiles_do_not_spill_and_wait_for_no_register(layout):
    func = gemm(512, 512, 1024, (128, 128, 128), dtype="int8", layout=layout).func
    assert local_memory(func, "sm_90a") == (0, 0, 0)
    built = tvm.compile(tvm.IRModule({"main": func}), cuda_target("h200"), tir_pipeline="warploom")
    assert "problems: none" in str(warploom.compile_report(built, cuda_target("h200")))
