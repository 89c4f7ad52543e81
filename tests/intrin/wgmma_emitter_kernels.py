"""Kernels that multiply one tile with ``wl.WgmmaEmitter``, in several ways of issuing its atoms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm.backend.cuda.lang.pipeline import TMABar
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from tests.shared import reference
from warploom import language as wl
from warploom.kernels.load import load_tile
from warploom.layout.smem_matrix import SharedMatrix
from warploom.target import Major, Swizzle, cuda_target

TARGET = cuda_target("h200")
#: Ways to issue the same instructions.
WHOLE, REGIONS, LOOPS, UNROLLED = "whole", "regions", "loops", "unrolled"
FORMS = (WHOLE, REGIONS, LOOPS, UNROLLED)


@dataclass(frozen=True)
class Case:
    """One matmul, A from shared memory or (``rs``) from registers."""

    name: str
    emitter: wl.WgmmaEmitter
    rs: bool = False
    accum: bool = False
    options: dict[str, Any] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        return self.name

    @property
    def a_tile(self) -> SharedMatrix:
        """How A comes to shared memory; for ``rs`` only to be copied from there."""
        e = self.emitter
        return e.a or SharedMatrix(e.kind.a, Major.K, Swizzle.NONE, e.m, e.k)


def case(name: str, *shape: Any, rs: bool = False, accum: bool = False, **options: Any) -> Case:
    return Case(name, wl.WgmmaEmitter.of(*shape, a_in_registers=rs, **options), rs, accum)


CASES = (
    case("f16", 64, 128, 64, "float16"),
    case("f16_in_f16_ragged", 64, 40, 32, "float16", "float16", accum=True),
    case("f16_both_mn", 128, 64, 32, "float16", a_major="MN", b_major="MN"),
    case("f16_rs_two_blocks", 128, 24, 32, "float16", rs=True),
    case("bf16_unswizzled", 64, 72, 32, "bfloat16", a_swizzle=Swizzle.NONE),
    case("bf16_rs_mn_negated", 64, 64, 64, "bfloat16", rs=True, b_major="MN", negate_a=True),
    case("tf32", 64, 16, 32, "float32", accum=True),
    case("tf32_rs", 64, 8, 16, "float32", rs=True, negate_b=True),
    case("e4m3", 64, 32, 64, "float8_e4m3fn", b_swizzle=Swizzle.B32),
    case("e5m2_e4m3_rs", 64, 32, 64, "float8_e5m2", "float16", b_dtype="float8_e4m3fn", rs=True),
    case("s8", 64, 48, 64, "int8", accum=True),
    case("u8_s8_rs", 64, 40, 32, "uint8", b_dtype="int8", rs=True, satfinite=True),
    case("s8_wide", 64, 240, 32, "int8"),
)


def issue(case: Case, form: str, acc: Any, a: Any, b: Any) -> None:
    """The instructions of a matmul, in one of the ways."""
    e = case.emitter
    whole, atom = (e.rs, e.rs_atom) if case.rs else (e.ss, e.ss_atom)
    if form == WHOLE:
        whole(acc, a if case.rs else e.a_descriptor(a), e.b_descriptor(b), case.accum)
    elif form == REGIONS:
        whole(acc, a, b, case.accum)
    elif form == LOOPS:
        left, right = a if case.rs else e.a_descriptor(a), e.b_descriptor(b)
        for i, j, k in e.atoms():
            atom(acc, left, right, i, j, k, case.accum)
    else:
        left, right = a if case.rs else e.a_descriptor(a), e.b_descriptor(b)
        columns = range(len(e.widths))
        with T.unroll(e.steps) as k, T.unroll(e.blocks) as i:
            for j in columns:
                atom(acc, left, right, i, j, k, case.accum)


def kernel(case: Case, form: str) -> PrimFunc:
    """``D (+)= A Bᵀ`` of one tile: ``(A, B, D)``, with all operands as they are stored."""
    e = case.emitter
    a_tile, b_tile = case.a_tile, e.b
    size = (a_tile.mn + b_tile.mn) * e.k * a_tile.element_bytes

    def alloc(pool, tile):
        layout = tile.layout((1,))
        return pool.alloc((1, *tile.shape), tile.dtype, align=1024, layout=layout)

    def matrix(buffer):
        return buffer[(0, *(slice(0, extent) for extent in buffer.shape[1:]))]

    @T.prim_func
    def multiply(a: T.handle, b: T.handle, d: T.handle):
        A = T.match_buffer(a, a_tile.shape, e.kind.a, align=16)
        B = T.match_buffer(b, b_tile.shape, e.kind.b, align=16)
        D = T.match_buffer(d, (e.m, e.n), e.kind.d, align=16)
        T.device_entry()
        T.cta_id([1])
        T.warpgroup_id([1])
        thread = T.thread_id_in_wg([128])
        pool = T.SMEMPool()
        A_s = T.meta_var(alloc(pool, a_tile))
        B_s = T.meta_var(alloc(pool, b_tile))
        full = TMABar(pool, 1)
        pool.commit()
        full.init(1)
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()
        if thread == 0:
            full.arrive(0, size)
            load_tile(A_s, a_tile, 0, A, (0, 0), full.ptr_to([0]))
            load_tile(B_s, b_tile, 0, B, (0, 0), full.ptr_to([0]))
        full.wait(0, 0)
        acc = T.alloc_buffer((e.m, e.n), e.kind.d, scope="local", layout=e.d_layout)
        if case.accum:
            Tx.wg.copy(acc[:, :], D[:, :])
        if case.rs:
            held = T.alloc_buffer((e.m, e.k), e.kind.a, scope="local", layout=e.a_layout)
            Tx.wg.copy(held[:, :], A[:, :])
            e.fence_a(held)
        e.fence_d(acc)
        e.arrive()
        issue(case, form, acc, held if case.rs else matrix(A_s), matrix(B_s))
        e.commit()
        e.wait(0)
        e.fence_d(acc)
        Tx.wg.copy(D[:, :], acc[:, :])

    return multiply.with_attr("global_symbol", f"{case.name}_{form}")


def lower(cases: Iterable[Case], forms: Callable[[Case], Iterable[str]]) -> Any:
    """One compiled module with each case in its forms, by name ``<case>_<form>``."""
    kernels = [kernel(case, form) for case in cases for form in forms(case)]
    module = tvm.IRModule({str(func.attrs["global_symbol"]): func for func in kernels})
    return tvm.compile(module, target=TARGET, tir_pipeline="tirx")


def operands(case: Case, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random A ``[m, k]``, B ``[n, k]`` and what D holds before."""
    e = case.emitter
    a = reference.random_array(rng, (e.m, e.k), e.kind.a)
    b = reference.random_array(rng, (e.n, e.k), e.kind.b)
    fill = reference.random_array if case.accum else reference.poison
    return a, b, fill(rng, (e.m, e.n), e.kind.d)


def stored(tile: SharedMatrix, matrix: np.ndarray) -> np.ndarray:
    """``[mn, k]`` as the buffer of a tile has it."""
    return np.ascontiguousarray(matrix if tile.major is Major.K else matrix.T)
