"""Products that warpgroups share, of operands that are parts of larger shared buffers."""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared import reference
from warploom import language as wl
from warploom.errors import IllegalCombination
from warploom.layout.smem_matrix import SharedMatrix
from warploom.target import WGMMA_KINDS, Major, Swizzle, WgmmaKind, cuda_target

#: Loops that stay loops: unrolled stores of elements make compilation slow.
ROLLED = {"disable_unroll": True}


@dataclass(frozen=True)
class Case:
    """One matmul: types, layouts, where operands lie in their buffers, who shares it.

    ``a_at`` and ``b_at`` are the first element of an operand, as ``(mn, k)``.
    """

    kind: WgmmaKind
    block: tuple[int, int, int]
    warps: tuple[int, int, int]
    majors: tuple[Major, Major]
    swizzles: tuple[Swizzle, Swizzle]
    a_at: tuple[int, int]
    b_at: tuple[int, int]
    rs: bool = False
    described: bool = False

    def __str__(self) -> str:
        kind = f"{self.kind.a}_{self.kind.b}_{self.kind.d}"
        pairs = zip(self.majors, self.swizzles, strict=True)
        layouts = [f"{major.value}{swizzle.row_bytes}" for major, swizzle in pairs]
        parts = ["x".join(map(str, one)) for one in (self.block, self.warps, self.a_at, self.b_at)]
        form = "rs" * self.rs + "d" * self.described
        return "-".join([kind, *parts, *layouts, form])

    @property
    def buffers(self) -> tuple[SharedMatrix, SharedMatrix]:
        """The smallest buffers of whole atoms that hold the operands, and an atom behind them."""
        m, n, k = self.block
        return tuple(
            _buffer(dtype, major, swizzle, at[0] + extent, at[1] + k)
            for dtype, major, swizzle, at, extent in zip(
                (self.kind.a, self.kind.b), self.majors, self.swizzles, (self.a_at, self.b_at),
                (m, n), strict=True,
            )
        )  # fmt: skip

    @property
    def emitter(self) -> wl.WgmmaEmitter:
        a, b = self.buffers
        row_warps, col_warps, reduce_k = self.warps
        return wl.WgmmaEmitter.of(
            *self.block, self.kind.a, self.kind.d, b_dtype=self.kind.b, a_major=self.majors[0],
            b_major=self.majors[1], a_swizzle=self.swizzles[0], b_swizzle=self.swizzles[1],
            a_shape=a.shape, b_shape=b.shape, a_in_registers=self.rs,
            block_row_warps=row_warps, block_col_warps=col_warps, reduce_k=reduce_k,
        )  # fmt: skip


def _buffer(dtype: str, major: Major, swizzle: Swizzle, mn: int, k: int) -> SharedMatrix:
    bits = tvm.DataType(dtype).bits
    units = [8, swizzle.row_bytes * 8 // bits]
    mn_unit, k_unit = units if major is Major.K else units[::-1]
    extents = [-(-extent // unit) * unit for extent, unit in ((mn, mn_unit), (k, k_unit))]
    return SharedMatrix(dtype, major, swizzle, *extents)


#: Warps along rows and columns, and parts of K.
WARPS = ((4, 1, 1), (8, 1, 1), (4, 2, 1), (4, 1, 2), (8, 2, 1), (12, 1, 1), (4, 2, 2), (8, 2, 2))


def draw(rng: random.Random) -> Case:
    """A random legal case."""
    while True:
        kind = rng.choice(WGMMA_KINDS)
        rs = rng.random() < 0.3
        # A in registers comes from global memory, where it is K-major.
        majors = (Major.K if rs else rng.choice(kind.majors), rng.choice(kind.majors))
        swizzles = tuple(rng.choice(list(Swizzle)) for _ in "AB")
        warps = rng.choice(WARPS)
        counts = (warps[0] // 4, *warps[1:])
        each = (64 * rng.choice((1, 1, 2)), 8 * rng.randint(1, 10), kind.k * rng.randint(1, 3))
        block = tuple(one * count for one, count in zip(each, counts, strict=True))
        rs = rs and warps[2] == 1
        described = rng.random() < 0.3
        starts = []
        for major, swizzle in zip(majors, swizzles, strict=True):
            columns = swizzle.row_bytes * 8 // kind.bits
            mn = rng.randint(0, 2) * (8 if major is Major.K else columns)
            starts.append((mn, rng.randint(0, 3) * kind.k))
        case = Case(kind, block, warps, majors, swizzles, *starts, rs, described)
        try:
            fits = _fits_registers(case)
        except IllegalCombination:
            continue
        size = sum(prod(one.shape) * one.element_bytes for one in case.buffers)
        if fits and size <= 96 << 10 and _describable(case):
            return case


def _fits_registers(case: Case) -> bool:
    """Whether ptxas can keep D, an A in registers and addresses in what a thread may have."""
    emitter = case.emitter
    of_a = emitter.m * emitter.k * case.kind.bits // (128 * 32) if case.rs else 0
    most = min(255, 65536 // (128 * prod(emitter.warpgroups)))
    return emitter.d_registers <= 64 and emitter.d_registers + of_a + 32 <= most


def _describable(case: Case) -> bool:
    """Whether one descriptor serves a whole operand: it starts where an atom does."""
    if not case.described:
        return True
    columns = [s.row_bytes * 8 // case.kind.bits for s in case.swizzles]
    part = case.emitter.k
    return all(
        major is Major.MN or (at[1] % width == 0 and (case.warps[2] == 1 or part % width == 0))
        for major, at, width in zip(case.majors, (case.a_at, case.b_at), columns, strict=True)
    )


def kernel(case: Case) -> Any:
    """``(A, B, D)``: the shared buffers as they are, and D ``[parts of K, m, n]``."""
    e, (a_tile, b_tile) = case.emitter, case.buffers
    m, n, k = case.block
    count = prod(e.warpgroups)
    depth = e.warpgroups[2]

    def part(buffer, major, at, extent):
        mn, along = slice(at[0], at[0] + extent), slice(at[1], at[1] + k)
        return buffer[(mn, along) if major is Major.K else (along, mn)]

    def multiply(acc, a_s, b_s, held, warpgroup):
        mine = e.at(warpgroup) if count > 1 else e
        a, b = part(a_s, case.majors[0], case.a_at, m), part(b_s, case.majors[1], case.b_at, n)
        if case.described:
            a, b = a if case.rs else mine.a_descriptor(a), mine.b_descriptor(b)
        if case.rs:
            mine.rs(acc, held, b, False, wait=0)
        else:
            mine.ss(acc, a, b, False, wait=0)
        mine.fence_d(acc)

    def place(warpgroup):
        mine = e.at(warpgroup) if count > 1 else e
        row, column = mine.origin
        return row, column, T.truncdiv(warpgroup, count // depth) if depth > 1 else 0

    def fill(shared, source, thread):
        rows, columns = (int(one) for one in shared.shape)
        with T.serial(0, -(-rows * columns // (128 * count)), annotations=ROLLED) as i:
            at = i * (128 * count) + thread
            with T.If(at < rows * columns), T.Then():
                index = [T.truncdiv(at, columns), T.truncmod(at, columns)]
                T.buffer_store(shared, source[tuple(index)], index)

    @T.prim_func
    def func(a: T.handle, b: T.handle, d: T.handle):
        A = T.match_buffer(a, a_tile.shape, case.kind.a, align=16)
        B = T.match_buffer(b, b_tile.shape, case.kind.b, align=16)
        D = T.match_buffer(d, (depth, m, n), case.kind.d, align=16)
        T.device_entry()
        T.cta_id([1])
        warpgroup = T.warpgroup_id([count])
        inside = T.thread_id_in_wg([128])
        pool = T.SMEMPool()
        A_s = pool.alloc(a_tile.shape, case.kind.a, align=1024, layout=a_tile.layout())
        B_s = pool.alloc(b_tile.shape, case.kind.b, align=1024, layout=b_tile.layout())
        pool.commit()
        thread = T.meta_var(warpgroup * 128 + inside)
        fill(A_s, A, thread)
        fill(B_s, B, thread)
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()
        acc = T.alloc_buffer((e.m, e.n), case.kind.d, scope="local", layout=e.d_layout)
        here = T.meta_var(place(warpgroup))
        row, column, layer = T.meta_var(here[0]), T.meta_var(here[1]), T.meta_var(here[2])
        held = T.alloc_buffer((e.m, e.k), case.kind.a, scope="local", layout=e.a_layout)
        if case.rs:
            first = T.meta_var(case.a_at[0] + row)
            start = T.meta_var(case.a_at[1])
            Tx.wg.copy(held[:, :], A[first : first + e.m, start : start + e.k])
            e.fence_a(held)
        multiply(acc, A_s, B_s, held, warpgroup)
        Tx.wg.copy(D[layer, row : row + e.m, column : column + e.n], acc[:, :])

    return func


def lower(cases: list[Case]) -> Any:
    """One compiled module; case ``i`` is function ``f<i>``."""
    functions = {f"f{i}": kernel(one).with_attr("global_symbol", f"f{i}")
                 for i, one in enumerate(cases)}  # fmt: skip
    return tvm.compile(tvm.IRModule(functions), cuda_target("h200"), tir_pipeline="tirx")


def check(case: Case, run: Any, rng: np.random.Generator) -> None:
    """Run a kernel on operands within poison, and compare each part of K with float64."""
    device = tvm.cuda(0)
    m, n, k = case.block
    matrices, stored = [], []
    for tile, at, extent in zip(case.buffers, (case.a_at, case.b_at), (m, n), strict=True):
        whole = reference.poison(rng, (tile.mn, tile.k), tile.dtype)
        matrix = reference.random_array(rng, (extent, k), tile.dtype)
        whole[at[0] : at[0] + extent, at[1] : at[1] + k] = matrix
        matrices.append(matrix)
        stored.append(np.ascontiguousarray(whole if tile.major is Major.K else whole.T))
    depth = case.warps[2]
    d = tvm.runtime.tensor(reference.poison(rng, (depth, m, n), case.kind.d), device)
    run(*(tvm.runtime.tensor(one, device) for one in stored), d)
    fraction = reference.error_fraction(case.kind.a, case.kind.d)
    for layer, found in enumerate(d.numpy()):
        some = slice(layer * k // depth, (layer + 1) * k // depth)
        parts = [one[:, some] for one in matrices]
        expected = reference.accumulate([parts[0]], [parts[1]], None, fraction)
        assert not expected.mismatches(found).any(), expected.worst(found)
