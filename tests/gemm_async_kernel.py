"""The kernel that runs one case of ``generators``: operands in, one ``gemm_async`` loop, D out.

Apart from the call under test it uses nothing of warploom but the layouts of its buffers. Operands
are filled element by element through those layouts; register fragments are filled and read through
coordinates computed here from the figures of the PTX ISA ("Register Fragments for
wgmma.mma_async"), so a wrong layout cannot cancel out.
"""

from __future__ import annotations

import tvm
from generators import Case, Tile
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx.layout import S, TileLayout
from warploom.layout.fragment import wgmma_accumulator, wgmma_register_a
from warploom.layout.smem_matrix import SharedMatrix
from warploom.target.swizzle import Major

TARGET = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})
#: Iterations of the loop around the call.
ROUNDS = 2
#: The loops that fill shared memory are short to compile rather than fast.
FILL = {"disable_unroll": True}


def shared_layout(case: Case, form, tile: Tile):
    """Layout of all stages of an operand in shared memory."""
    rows, columns = tile.shape
    mn, k = (rows, columns) if form.major is Major.K else (columns, rows)
    matrix = SharedMatrix(case.kind.b, form.major, form.swizzle, mn, k)
    return matrix.layout((case.stages,) if case.stages > 1 else ())


def accumulator_place(register, columns: int, warp, lane, first_row):
    """Row and column of D of one 32-bit accumulator ``register`` of a thread."""
    per_block = columns // 2
    within = register % per_block
    row = first_row + register // per_block * 64 + warp * 16 + within // 2 % 2 * 8 + lane // 4
    return row, within // 4 * 8 + lane % 4 * 2 + within % 2


def register_a_place(element, columns: int, case: Case, warp, lane):
    """Row and column of A of one ``element`` of a thread: registers 0 to 3 of every instruction.

    Registers 0 and 1 hold rows ``g`` and ``g + 8`` of the first half of K, 2 and 3 of the second.
    """
    packed = 32 // case.kind.bits
    register, position = element // packed, element % packed
    step = register // 4 % (columns // case.kind.k)
    row = register // 4 // (columns // case.kind.k) * 64 + warp * 16 + register % 2 * 8 + lane // 4
    half = register // 2 % 2
    return row, step * case.kind.k + half * (case.kind.k // 2) + lane % 4 * packed + position


def _span(tile: Tile, dimension: int) -> slice:
    return tile.slices[dimension]


def make_kernel(case: Case):
    """``kernel(A, B, C, D)``: ``A [stages, *a_tile]``, ``B [stages, *b_tile]``, C and D ``[m, n']``.

    C is what the fragment holds before, D after; both include the columns before ``d_tile``.
    """
    a_tile, b_tile, d_tile = case.a_tile, case.b_tile, case.d_tile
    a_type, b_type, d_type = case.dtypes
    stages, threads = case.stages, 128 * case.warpgroups
    in_registers = case.a_form is None
    lead = (stages,) if stages > 1 else ()
    trans_a = not in_registers and case.a_form.major is Major.MN
    trans_b = case.b_form.major is Major.MN
    d_rows, d_columns = d_tile.shape
    rows_each = d_rows // case.warpgroups
    d_count = rows_each * d_columns // 128
    a_count = a_tile.count // 128
    a_rows, a_columns = a_tile.shape
    b_columns = b_tile.shape[1]
    scope = Tx.wg if case.warpgroups == 1 else Tx.cta

    def part(buffer, tile, stage):
        region = (_span(tile, 0), _span(tile, 1))
        return buffer[(stage, *region)] if len(buffer.shape) > 2 else buffer[region]

    def multiply(d, a, b, it):
        stage = stages - 1 - it
        accum = {"overwrite": False, "keep": True, "first": it != 0}[case.accum]
        a_part = a[_span(a_tile, 0), _span(a_tile, 1)] if in_registers else part(a, a_tile, stage)
        d_part = d[_span(d_tile, 0), _span(d_tile, 1)]
        scope.gemm_async(
            d_part,
            a_part,
            part(b, b_tile, stage),
            transA=trans_a,
            transB=trans_b,
            accum=accum,
            dispatch="wgmma",
            **({"wait": True} if case.wait else {}),
        )

    def store_shared(buffer, source, columns, stage, index):
        place = (T.truncdiv(index, columns), T.truncmod(index, columns))
        target = [stage, *place] if len(buffer.shape) > 2 else [*place]
        T.buffer_store(buffer, source[(stage, *place)], target)

    # fmt: off
    @T.prim_func
    def kernel(A_ptr: T.handle, B_ptr: T.handle, C_ptr: T.handle, D_ptr: T.handle):
        A = T.match_buffer(A_ptr, (stages, *a_tile.shape), a_type, align=16)
        B = T.match_buffer(B_ptr, (stages, *b_tile.shape), b_type, align=16)
        C = T.match_buffer(C_ptr, d_tile.shape, d_type, align=16)
        D = T.match_buffer(D_ptr, d_tile.shape, d_type, align=16)
        T.device_entry()
        T.cta_id([1])
        wg = T.warpgroup_id([case.warpgroups])
        warp = T.warp_id_in_wg([4])
        lane = T.lane_id([32])
        thread = T.meta_var(wg * 128 + warp * 32 + lane)

        pool = T.SMEMPool()
        if not in_registers:
            As = pool.alloc((*lead, *a_tile.shape), a_type, align=1024, layout=shared_layout(case, case.a_form, a_tile))
        Bs = pool.alloc((*lead, *b_tile.shape), b_type, align=1024, layout=shared_layout(case, case.b_form, b_tile))
        pool.commit()
        d = T.alloc_buffer(d_tile.shape, d_type, scope="local", layout=wgmma_accumulator(d_rows, d_columns, case.warpgroups))
        if in_registers:
            a = T.alloc_buffer(a_tile.shape, a_type, scope="local", layout=wgmma_register_a(a_type, a_columns, a_rows))
            a_flat = a.local(a_count, layout=TileLayout(S[(a_count,)]))
        d_flat = d.local(d_count, layout=TileLayout(S[(d_count,)]))

        for stage in T.serial(stages):
            if not in_registers:
                for i in T.serial(-(-a_tile.count // threads), annotations=FILL):
                    if i * threads + thread < a_tile.count:
                        store_shared(As, A, a_columns, stage, i * threads + thread)
            for i in T.serial(-(-b_tile.count // threads), annotations=FILL):
                if i * threads + thread < b_tile.count:
                    store_shared(Bs, B, b_columns, stage, i * threads + thread)
        for i in T.unroll(d_count):
            place = T.meta_var(accumulator_place(i, d_columns, warp, lane, wg * rows_each))
            d_flat[i] = C[place[0], place[1]]
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()

        # Not unrolled, so that each instruction is once in the PTX.
        for it in T.serial(ROUNDS, annotations=FILL):
            stage = T.meta_var(stages - 1 - it if stages > 1 else 0)
            if in_registers:
                for i in T.unroll(a_count):
                    place = T.meta_var(register_a_place(i, a_columns, case, warp, lane))
                    a_flat[i] = A[stage, place[0], place[1]]
            if not case.wait:
                T.ptx.wgmma.fence.sync.aligned()
            multiply(d, a if in_registers else As, Bs, it)
            if not case.wait:
                T.ptx.wgmma.commit_group.sync.aligned()
                T.ptx.wgmma.wait_group.sync.aligned(0)

        for i in T.unroll(d_count):
            place = T.meta_var(accumulator_place(i, d_columns, warp, lane, wg * rows_each))
            D[place[0], place[1]] = d_flat[i]
    # fmt: on
    return kernel


def lower(cases: list[Case], names: list[str] | None = None):
    """Compile one module with a kernel for each case, named ``case_0``, ``case_1``, ..."""
    names = names or [f"case_{i}" for i in range(len(cases))]
    kernels = {
        name: make_kernel(case).with_attr("global_symbol", name)
        for name, case in zip(names, cases, strict=True)
    }
    with TARGET:
        return tvm.compile(tvm.IRModule(kernels), target=TARGET, tir_pipeline="tirx")
