"""Rows of a tile that are stored to places with an index each."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.lowered_programs import check, hinted, local_memory, run
from tests.shared.tile_programs import rows_by_index
from warploom import emulator
from warploom import language as wl
from warploom.errors import TileProgramError
from warploom.lower.lowerings import lower
from warploom.lower.trace import lower_trace
from warploom.target import cuda_target

ARCHS = ("sm_90a", "sm_100a")


def decisions(func, arch):
    return [one for step in lower_trace(func, arch) for one in step.decisions]


def cuda(func, arch: str) -> str:
    module = tvm.IRModule({"main": lower(func, arch, quiet=True)})
    built = tvm.compile(module, cuda_target(arch), tir_pipeline="tirx")
    return built.mod.imports[0].inspect_source()


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("out", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("primitive", [False, True], ids=["loop", "scatter"])
@pytest.mark.parametrize("columns", [16, 64, 96])
@pytest.mark.some(4)
def test_rows_are_scattered(arch, out, primitive, columns, rng):
    case = rows_by_index(
        "", scatters=True, tile=(64, columns, 32), steps=1, out_dtype=out, primitive=primitive
    )
    assert any("into C" in one and "to rows by index" in one for one in decisions(case.func, arch))
    check(case, rng, arch)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(
    "hints",
    [{"persistent": False}, {"ctas": 1}, {"store_buffers": 1}, {"store_columns": 32}, {}],
    ids=str,
)
@pytest.mark.some(3)
def test_two_warpgroups_and_other_choices(arch, hints, rng):
    case = rows_by_index("a", scatters=True, tile=(128, 64, 32), steps=1, tiles=3)
    check(case, rng, arch, **hints)


def test_the_instructions():
    case = rows_by_index("", scatters=True, tile=(128, 64, 32), out_dtype="float16")
    source = cuda(case.func, "sm_100a")
    assert source.count("scatter4_bulk_group(((void*)") == 1
    source = cuda(case.func, "sm_90a")
    assert source.count("warploom_shared_to_global_128((&(") == 64 * 8 // 128


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.in_turn(2)
def test_no_registers_are_spilled(arch):
    case = rows_by_index("a", True, tile=(128, 128, 64), steps=8, stages=None, out_dtype="float16")
    assert local_memory(case.func, arch) == (0, 0, 0)


def test_a_gather_has_one_tensor_map():
    """Copies of a kernel that need the same tensor map share it."""
    source = cuda(rows_by_index("a", scatters=True).func, "sm_100a")
    kernel = source[source.rindex('extern "C" __global__') :].partition("{")[0]
    assert kernel.count("CUtensorMap") == 3


def through(dtype: str, columns: int, scope: str, index: str = "int32"):
    """C[To] = A B^T, of which only some rows are in C."""

    @T.prim_func
    def func(A: T.Buffer((64, 32), "float16"), B: T.Buffer((columns, 32), "float16"),
             To: T.Buffer((64,), index), C: T.Buffer((50, columns), dtype)):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_shared((64, 32), "float16")
        B_s = T.alloc_shared((columns, 32), "float16")
        acc = T.alloc_buffer((64, columns), "float32", scope="accumulator")
        out = T.alloc_buffer((64, columns), dtype, scope=scope)
        Tx.cta.copy_async(A_s, A)
        Tx.cta.copy_async(B_s, B)
        Tx.cta.gemm_async(acc, A_s, B_s)
        Tx.cta.cast(out, acc)
        Tx.cta.scatter(C[0:50, 0:columns], out, lambda r: To[r])

    return func


def data(rng, dtype: str, columns: int, index: str = "int32"):
    a, b = (rng.standard_normal((n, 32)).astype(np.float16) for n in (64, columns))
    to = np.concatenate([rng.permutation(50), [-1, 50, -700, 2**31 - 1] * 4])[:64]
    to = rng.permutation(to.astype(index))
    if index == "int64":
        to[to == 50] = 2**32 + 3  # which is row 3 of 32 bits
    return [a, b, to, np.full((50, columns), 7, dtype)]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(
    ("dtype", "columns", "scope", "index", "reason"),
    [
        ("float16", 64, "fragment", "int32", None),
        ("float32", 16, "fragment", "int64", None),
        ("float16", 24, "fragment", "int32", None),
        ("float16", 64, "shared", "int32", "is a tile of float16 in shared memory"),
        ("float16", 24, "shared", "int32", "is a tile of float16 in shared memory"),
        ("int8", 64, "fragment", "int32", "is a tile of int8 in fragment memory"),
    ],
    ids=["rows", "int64", "24 columns", "shared", "rows of 48 bytes", "bytes"],
)
@pytest.mark.some(4)
def test_rows_outside_are_not_stored(arch, dtype, columns, scope, index, reason, rng):
    func = through(dtype, columns, scope, index)
    if reason is not None:
        assert any(reason in one for one in decisions(func, arch))
    arguments = data(rng, dtype, columns, index)
    expected = [np.copy(one) for one in arguments]
    wl.interpret(func, expected)
    after = run(lower(func, arch), arguments, arch)[3].astype(np.float64)
    np.testing.assert_allclose(after, expected[3].astype(np.float64), atol=2e-2, rtol=1e-2)
    inside = (arguments[2] >= 0) & (arguments[2] < 50)
    product = arguments[0].astype(np.float64) @ arguments[1].astype(np.float64).T
    rounded = np.trunc(product) if dtype == "int8" else product
    np.testing.assert_allclose(after[arguments[2][inside]], rounded[inside], atol=2e-2, rtol=1e-2)


def test_two_rows_to_one_place(rng):
    """The interpreter refuses them."""
    func = through("float16", 64, "fragment")
    arguments = data(rng, "float16", 64)
    arguments[2][:] = np.arange(64)
    arguments[2][9] = 4
    with pytest.raises(TileProgramError, match="rows 4 and 9 of a tile to row 4 of C"):
        wl.interpret(func, arguments)


@pytest.mark.gpu
def test_the_emulator_reports_two_rows_to_one_place(rng):
    if not emulator.is_enabled():
        pytest.skip("checks are the emulator's")
    case = rows_by_index("", scatters=True, tile=(64, 64, 32), steps=1)
    arguments = case.arguments(rng)
    arguments[4][70] = arguments[4][5]  # of another CTA
    for arch in ARCHS:
        with pytest.raises(Exception, match="data race"):
            run(lower(hinted(case.func, persistent=False), arch), list(arguments), arch)


def test_rules(rng):
    def program(body):
        @T.prim_func(check_well_formed=False)
        def func(A: T.Buffer((64, 64), "float16"), C: T.Buffer((64, 64), "float16")):
            T.device_entry()
            T.cta_id([1])
            A_s = T.alloc_shared((64, 64), "float16")
            Tx.cta.copy_async(A_s, A)
            body(A, C, A_s)

        return func

    def part(A, C, A_s):
        Tx.cta.scatter(C[0:32, 0:64], A_s, lambda r: r)

    def columns(A, C, A_s):
        Tx.cta.scatter(C[0:64, 0:32], A_s, lambda r: r)

    def functions(A, C, A_s):
        Tx.cta.gather(A_s, A[0:64, 0:64])

    def tile(A, C, A_s):
        Tx.cta.scatter(A_s[0:64, 0:64], A_s, lambda r: r)

    wrong = {
        part: "takes a part of dimension 0 of C; write 0:64 there",
        columns: "the second is the last of the tensor's region",
        functions: "has 0 functions",
        tile: "takes rows of A_s in shared memory",
    }
    for body, message in wrong.items():
        arguments = [np.zeros((64, 64), np.float16) for _ in "AC"]
        with pytest.raises(TileProgramError, match=message):
            wl.interpret(program(body), arguments)
        with pytest.raises(TileProgramError, match=message):
            lower(program(body), "sm_90a")
