"""Element-wise primitives as nests: the same values, nothing of scope cta left but the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx.layout import tmem_datapath_layout
from tvm.tirx.tile_primitive import TilePrimitiveCall

from tests.shared import tile_programs
from tests.shared.lowered_programs import run
from warploom import language as wl
from warploom.errors import Decline
from warploom.lower.lowerings import lower
from warploom.lower.passes.canonicalize import ELEMENTWISE, canonicalize
from warploom.tile.primitives import op_name
from warploom.tile.read import read

ROWS, COLUMNS = 8, 16
#: Primitive -> how a program writes it; x, y and z are tiles, row and column are broadcast.
CALLS = {
    "fill": lambda x, y, z, row, column: Tx.cta.fill(z, T.float32(2.5)),
    "memset": lambda x, y, z, row, column: Tx.cta.memset(z, T.float32(1)),
    "zero": lambda x, y, z, row, column: Tx.cta.zero(z),
    "cast": lambda x, y, z, row, column: Tx.cta.cast(z, x),
    "add": lambda x, y, z, row, column: Tx.cta.add(z, x, column),
    "sub": lambda x, y, z, row, column: Tx.cta.sub(z, x, row),
    "mul": lambda x, y, z, row, column: Tx.cta.mul(z, x, T.float32(3)),
    "fdiv": lambda x, y, z, row, column: Tx.cta.fdiv(z, x, y),
    "maximum": lambda x, y, z, row, column: Tx.cta.maximum(z, x, row),
    "minimum": lambda x, y, z, row, column: Tx.cta.minimum(z, x, y),
    "fma": lambda x, y, z, row, column: Tx.cta.fma(z, x, y, column),
    "sqrt": lambda x, y, z, row, column: Tx.cta.sqrt(z, y),
    "exp": lambda x, y, z, row, column: Tx.cta.exp(z, x),
    "exp2": lambda x, y, z, row, column: Tx.cta.exp2(z, x),
    "log2": lambda x, y, z, row, column: Tx.cta.log2(z, y),
    "reciprocal": lambda x, y, z, row, column: Tx.cta.reciprocal(z, y),
    "silu": lambda x, y, z, row, column: Tx.cta.silu(z, x),
}


def program_of(call: Any) -> Any:
    """A program that applies a primitive to tiles that it copies from global memory."""

    @T.prim_func
    def program(
        X: T.Buffer((ROWS, COLUMNS), "float32"), Y: T.Buffer((ROWS, COLUMNS), "float32"),
        R: T.Buffer((1, COLUMNS), "float32"), C: T.Buffer((ROWS, 1), "float32"),
        Z: T.Buffer((ROWS, COLUMNS), "float32"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        x = T.alloc_buffer((ROWS, COLUMNS), "float32", scope="fragment")
        y = T.alloc_buffer((ROWS, COLUMNS), "float32", scope="fragment")
        z = T.alloc_buffer((ROWS, COLUMNS), "float32", scope="fragment")
        row = T.alloc_buffer((1, COLUMNS), "float32", scope="fragment")
        column = T.alloc_buffer((ROWS, 1), "float32", scope="fragment")
        Tx.cta.copy(x, X[0:ROWS, 0:COLUMNS])
        Tx.cta.copy(y, Y[0:ROWS, 0:COLUMNS])
        Tx.cta.copy(row, R[0:1, 0:COLUMNS])
        Tx.cta.copy(column, C[0:ROWS, 0:1])
        call(x, y, z, row, column)
        Tx.cta.copy(Z[0:ROWS, 0:COLUMNS], z)

    return program


def primitives_of(program: Any) -> list[str]:
    found: list[str] = []
    for one in program.body:
        tvm_ffi.structural_walk(one, (TilePrimitiveCall, lambda c: found.append(op_name(c))))
    return found


def test_every_elementwise_primitive_is_tested():
    assert set(ELEMENTWISE) == {*CALLS, "select"}


@pytest.mark.parametrize("name", CALLS)
def test_a_nest_has_the_values_of_the_primitive(name, rng):
    func = program_of(CALLS[name])
    x, r, c = (rng.standard_normal(s).astype("float32") for s in ((8, 16), (1, 16), (8, 1)))
    y = rng.uniform(0.5, 4, (ROWS, COLUMNS)).astype("float32")
    results = []
    after = canonicalize(read(func))
    for each in (func, after.to_func()):
        z = np.full((ROWS, COLUMNS), np.nan, "float32")
        wl.interpret(each, [x, y, r, c, z])
        results.append(z)
    np.testing.assert_allclose(results[1], results[0], rtol=3e-7, atol=1e-6)
    assert not set(primitives_of(after)) & set(ELEMENTWISE)


def test_other_primitives_stay(rng):
    case = tile_programs.row_sums()
    before, after = (primitives_of(p) for p in (read(case.func), canonicalize(read(case.func))))
    kept = ("gemm_async", "copy_async", "sum", "max")
    assert [n for n in before if n in kept] == [n for n in after if n in kept]
    assert "gemm_async" in after


def test_a_store_of_unknown_extent_is_guarded(rng):
    case = tile_programs.grouped()
    before, after = (primitives_of(p) for p in (read(case.func), canonicalize(read(case.func))))
    assert before.count("copy") == after.count("copy") + 1


def in_tensor_memory(scope: str = "tmem", layout: Any = "default", dtype: str = "float32"):
    """A B^T, whose accumulator has a place that the author chose."""

    @T.prim_func
    def program(A: T.Buffer((128, 64), "float16"), C: T.Buffer((128, 128), "float32")):
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((128, 64), "float16", scope="shared")
        acc = T.alloc_buffer((128, 128), dtype, scope=scope, layout=layout)
        Tx.cta.copy_async(A_s, A[0:128, 0:64])
        Tx.cta.gemm_async(acc, A_s, A_s)
        Tx.cta.copy(C[0:128, 0:128], acc)

    return program


def test_tiles_of_tensor_memory_are_accumulators(rng):
    func = in_tensor_memory()
    assert tvm_ffi.structural_equal(tvm.script.from_source(func.script()), func)
    a = rng.standard_normal((128, 64)).astype("float16")
    c = np.full((128, 128), np.nan, np.float32)
    wl.interpret(func, [a, c])
    (_, found) = run(lower(func, "sm_100a"), [a, np.full_like(c, np.nan)], "sm_100a")
    assert np.abs(found - c).max() <= 1e-5 * np.abs(c).max()


@pytest.mark.parametrize(
    ("program", "arch", "words"),
    [
        (in_tensor_memory(), "sm_90a", "acc lies in tensor memory, which sm_90a does not have"),
        (
            in_tensor_memory(layout=tmem_datapath_layout("D", 128, 256)), "sm_100a",
            "with a layout of its own",
        ),
    ],
)  # fmt: skip
def test_places_that_are_declined(program, arch, words):
    with pytest.raises(Decline, match=words):
        lower(program, arch)
