"""Builtins that take values: constants, expressions, casts and parts of buffers of every dtype."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm.script import tirx as T
from tvm.tirx import PrimFunc, decl_buffer

from tests.language.builtins.vocabulary import ARCHS, compiled, poisoned
from warploom import language as wl
from warploom.errors import IllegalCombination
from warploom.language.builtins.values import numpy_of

WARP = 32
#: Bits -> the value that a thread stores, and what that is in numpy, by ``t`` and ``a``.
STORED = {
    32: {
        "T.float32(1.5)": "f4(1.5 + 0 * t)",
        "-2.5": "f4(-2.5 + 0 * t)",
        "T.Broadcast(T.float16(1.5), 2)": "f2(rep(1.5 + 0 * t, 2))",
        "T.Broadcast(T.Cast('bfloat16', A[t]), 2)": "rep(a, 2).astype(bf16)",
        "T.Broadcast(T.int8(-3), 4)": "rep(-3 + 0 * t, 4).astype('i1')",
        "T.Broadcast(T.Cast('int8', t), 4)": "rep(t, 4).astype('i1')",
        "T.Cast('float32', A[t] > T.float32(0))": "f4(a > 0)",
        "T.Cast('uint32', t)": "t.astype('u4')",
        "T.if_then_else(t > 3, T.int32(4), T.int32(7))": "np.where(t > 3, 4, 7).astype('i4')",
        "A[t] + T.float32(1)": "a + f4(1)",
        "bytes_[0:4]": "(t[:, None] + np.arange(4)).astype('i1')",
        "halves[2:4]": "f2(rep(a, 2))",
        "small[4:8]": "rep(a, 4).astype(e4m3)",
        "tile[t : t + 1]": "a",
        "A[t : t + 1]": "a",
    },
    64: {
        "T.float64(1.5)": "1.5 + 0 * t",
        "T.int64(-5)": "-5 + 0 * t",
        "T.uint64(5)": "5 + 0 * t",
        "T.Cast('int64', t)": "t",
        "T.Cast('float64', A[t])": "a.astype('f8')",
        "T.if_then_else(t > 3, T.int64(4), T.int64(7))": "np.where(t > 3, 4, 7)",
        "T.Broadcast(A[t], 2)": "rep(a, 2)",
        "bytes_": "(t[:, None] + np.arange(8)).astype('i1')",
    },
    128: {
        "T.Broadcast(T.float32(2), 4)": "f4(rep(2 + 0 * t, 4))",
        "T.Broadcast(T.int64(2), 2)": "rep(2 + 0 * t, 2)",
        "T.Broadcast(T.Cast('int64', t), 2)": "rep(t, 2)",
        "T.Broadcast(T.int8(2), 16)": "rep(2 + 0 * t, 16).astype('i1')",
        "halves[0:8]": "f2(rep(a, 8))",
        "wl.ldg128(A[4:8])": "rep(a[4:8], 32).reshape(4, 32).T",
    },
    256: {
        "T.Broadcast(T.float32(2), 8)": "f4(rep(2 + 0 * t, 8))",
        "T.Broadcast(A[t], 8)": "rep(a, 8)",
        "T.Broadcast(T.int64(-2), 4)": "rep(-2 + 0 * t, 4)",
        "floats[0:8]": "a[:, None] + np.arange(8, dtype='f4')",
    },
}


def evaluated(text: str, a: np.ndarray) -> np.ndarray:
    names = {
        "np": np, "a": a, "t": np.arange(WARP), "f2": np.float16, "f4": np.float32,
        "bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn,
        "rep": lambda values, count: np.repeat(values[:, None], count, 1),
    }  # fmt: skip
    return np.ascontiguousarray(eval(text, names))


def stores(bits: int) -> PrimFunc:
    """Each value of a width in a row of its own."""
    rows, count = STORED[bits], bits // 32
    statements = "\n".join(
        f"    wl.stg{bits}(B[{row}, t * {count}], {value})" for row, value in enumerate(rows)
    )
    return tvm.script.from_source(
        f"""
@T.prim_func
def main(A: T.Buffer((32,), "float32"), B: T.Buffer(({len(rows)}, {32 * count}), "float32")):
    T.device_entry()
    T.cta_id([1])
    t = T.thread_id([32])
    tile = T.alloc_buffer((32,), "float32", scope="shared")
    bytes_ = T.alloc_buffer((8,), "int8", scope="local")
    small = T.alloc_buffer((8,), "float8_e4m3fn", scope="local")
    halves = T.alloc_buffer((8,), "float16", scope="local")
    floats = T.alloc_buffer((8,), "float32", scope="local")
    tile[t] = A[t]
    for i in T.unroll(8):
        bytes_[i] = T.Cast("int8", i + t)
        small[i] = T.Cast("float8_e4m3fn", A[t])
        halves[i] = T.Cast("float16", A[t])
        floats[i] = A[t] + T.Cast("float32", i)
{statements}
""",
        {"wl": wl, "T": T},
    )


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("bits", "arch"), [(bits, ARCHS[bits == 256 or bits == 64]) for bits in STORED]
)
def test_stored_values(bits, arch, rng):
    a = rng.standard_normal(WARP).astype("float32")
    before = poisoned((len(STORED[bits]), bits), "float32")
    _, after = compiled(stores, arch, bits).run(a, before)
    for row, (value, expected) in zip(after, STORED[bits].items(), strict=True):
        stored = evaluated(expected, a)
        assert stored.nbytes == row.nbytes, value
        assert row.tobytes() == stored.tobytes(), value


#: A value that lanes exchange -> its dtype, and what it is in numpy.
SHUFFLED = {
    "3": ("int32", "3 + 0 * t"),
    "2.5": ("float32", "2.5 + 0 * t"),
    "True": ("bool", "t >= 0"),
    "T.int64(1 << 40)": ("int64", "(1 << 40) + 0 * t"),
    "T.float16(1.5)": ("float16", "1.5 + 0 * t"),
    "T.float64(0.1)": ("float64", "0.1 + 0 * t"),
    "T.Cast('int8', t - 9)": ("int8", "t - 9"),
    "T.Cast('uint8', t + 200)": ("uint8", "t + 200"),
    "T.Cast('int16', t - 9)": ("int16", "t - 9"),
    "T.Cast('uint16', t + 65000)": ("uint16", "(t + 65000) % 65536"),
    "t % 3 == 0": ("bool", "t % 3 == 0"),
    "T.Cast('float16', A[t])": ("float16", "f2(a)"),
    "T.Cast('bfloat16', A[t])": ("bfloat16", "a.astype(bf16)"),
    "T.Cast('float8_e4m3fn', A[t])": ("float8_e4m3fn", "a.astype(e4m3)"),
    "T.Cast('float8_e4m3fn', T.float32(2))": ("float8_e4m3fn", "(2.0 + 0 * t).astype(e4m3)"),
    "T.Cast('float64', A[t])": ("float64", "a"),
    "T.Broadcast(T.Cast('float16', A[t]), 2)": ("float16x2", "f2(rep(a, 2))"),
    "T.Broadcast(T.Cast('bfloat16', A[t]), 2)": ("bfloat16x2", "rep(a, 2).astype(bf16)"),
    "T.Broadcast(A[t], 4)": ("float32x4", "rep(a, 4)"),
}
KINDS = {
    "wl.shfl_xor({}, 5)": "t ^ 5",
    "wl.shfl_down({}, 3)": "np.where(t + 3 < 32, t + 3, t)",
    "wl.shfl_up({}, 7)": "np.where(t >= 7, t - 7, t)",
    "wl.shfl_sync(0xFFFFFFFF, {}, 19)": "19 + 0 * t",
}


def scalar(dtype: str) -> tuple[str, int]:
    """The dtype of the elements, and their number."""
    kind, _, lanes = dtype.partition("x")
    return kind, int(lanes or 1)


def shuffles(part: int) -> PrimFunc:
    """Every value by every kind of shuffle."""
    values = list(SHUFFLED.items())[part::2]
    parameters, statements = "", ""
    for row, (value, (dtype, _)) in enumerate(values):
        kind, lanes = scalar(dtype)
        parameters += f', B{row}: T.Buffer((4, {32 * lanes}), "{kind}")'
        for i, call in enumerate(KINDS):
            shuffled = call.format(value)
            if lanes == 1:
                statements += f"    B{row}[{i}, t] = {shuffled}\n"
            else:
                statements += f"    B{row}[{i}, t * {lanes} : t * {lanes} + {lanes}] = {shuffled}\n"
    return tvm.script.from_source(
        f"""
@T.prim_func
def main(A: T.Buffer((32,), "float32"){parameters}):
    T.device_entry()
    T.cta_id([1])
    t = T.thread_id([32])
{statements}
""",
        {"wl": wl, "T": T},
    )


@pytest.mark.gpu
@pytest.mark.parametrize(("part", "arch"), list(enumerate(ARCHS)))
def test_shuffled_values(part, arch, rng):
    a = rng.standard_normal(WARP).astype("float32")
    values = list(SHUFFLED.items())[part::2]
    kinds = [scalar(dtype) for _, (dtype, _) in values]
    outputs = [poisoned((4, 32 * lanes), str(numpy_of(kind))) for kind, lanes in kinds]
    _, *after = compiled(shuffles, arch, part).run(a, *outputs)
    for got, (value, (dtype, text)) in zip(after, values, strict=True):
        _kind, lanes = scalar(dtype)
        numbers = evaluated(text, a).astype(got.dtype).reshape(WARP, lanes)
        for row, lane in zip(got, KINDS.values(), strict=True):
            assert row.tobytes() == numbers[evaluated(lane, a)].tobytes(), (value, lane)


FENCED = (
    "int8", "uint8", "float8_e4m3fn", "float8_e5m2", "bool", "int16", "float16", "bfloat16",
    "int32", "uint32", "float32", "int64", "uint64", "float64",
)  # fmt: skip


def fences() -> PrimFunc:
    """Registers of every dtype are written, fenced, and stored."""
    parameters = "".join(f', B_{one}: T.Buffer((32, 8), "{one}")' for one in FENCED)
    statements = "".join(
        f"""    r_{one} = T.alloc_buffer((8,), "{one}", scope="local")
    for i in T.unroll(8):
        r_{one}[i] = T.Cast("{one}", t + i)
    wl.warpgroup_fence_operand(r_{one})
    wl.warpgroup_fence_operand(r_{one}, 4, 1)
    wl.warpgroup_fence_operand(r_{one}.ptr_to([0]), 0, 1, "{one}")
    for i in T.unroll(8):
        B_{one}[t, i] = r_{one}[i]
"""
        for one in FENCED
    )
    return tvm.script.from_source(
        f"""
@T.prim_func
def main(A: T.Buffer((32,), "float32"){parameters}):
    T.device_entry()
    T.cta_id([1])
    t = T.thread_id([32])
{statements}
""",
        {"wl": wl, "T": T},
    )


@pytest.mark.gpu
@pytest.mark.parametrize("arch", ARCHS)
def test_fences_keep_registers_of_every_dtype(arch):
    dtypes = [numpy_of(one) for one in FENCED]
    outputs = [poisoned((WARP, 8), str(one)) for one in dtypes]
    _, *after = compiled(fences, arch).run(np.zeros(WARP, "float32"), *outputs)
    expected = np.arange(WARP)[:, None] + np.arange(8)
    for got, dtype in zip(after, dtypes, strict=True):
        assert got.tobytes() == expected.astype(dtype).tobytes(), dtype


def test_values_of_another_size():
    floats = decl_buffer((8,), "float32", "floats", scope="local")
    to = decl_buffer((8, 8), "float16", "to")
    for value, message in {
        1.5: "the value of stg32 is the number 1.5; it must have 32 bits, so give it a dtype",
        T.float16(1): "must have 32 bits",
        floats: "a part of floats of 256 bits; it must have 32 bits",
        "x": "'x'; it must have 32 bits",
    }.items():
        with pytest.raises(IllegalCombination, match=message):
            wl.stg32(to, value)
    with pytest.raises(IllegalCombination, match="region of to with gaps"):
        wl.ldg128(to[0:2, 0:4])
