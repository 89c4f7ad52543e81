"""The kernel that runs one case of ``generators``: operands in, one ``gemm_async`` loop, D out.

Apart from the call under test it uses nothing of warploom but the layouts of its buffers. Operands
are filled element by element through those layouts; register fragments are filled and read through
coordinates computed here from the figures of the PTX ISA ("Register Fragments for
wgmma.mma_async"), so a wrong layout cannot cancel out.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx.layout import S, TileLayout

from tests.shared.generators import Case, Tile
from warploom.layout.fragment import wgmma_accumulator, wgmma_register_a
from warploom.layout.smem_matrix import SharedMatrix
from warploom.target.swizzle import Major

TARGET = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})
#: Iterations of the loop around the call.
ROUNDS = 2
#: For loops that the CUDA compiler leaves rolled: each instruction is once in the PTX.
ROLLED = {"disable_unroll": True}


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


def make_kernel(case: Case):
    """``kernel(A, B, C, D)`` for one case.

    A is ``[stages, *a_tile.shape]``, B ``[stages, *b_tile.shape]``. C is what the fragment of D
    holds before and D what it holds after, both ``d_tile.shape``: with the columns beside the part
    that is computed.
    """
    a_tile, b_tile, d_tile = case.a_tile, case.b_tile, case.d_tile
    a_type, b_type, d_type = case.dtypes
    stages, warpgroups, threads = case.stages, case.warpgroups, 128 * case.warpgroups
    in_registers = case.a_form is None
    options = {
        "transA": not in_registers and case.a_form.major is Major.MN,
        "transB": case.b_form.major is Major.MN,
        "dispatch": "wgmma",
    } | ({"wait": True} if case.wait else {})
    d_rows, d_columns = d_tile.shape
    rows_each = d_rows // warpgroups
    d_count = rows_each * d_columns // 128
    a_count = a_tile.count // 128

    def allocate_shared(pool, dtype, form, tile):
        shape = (*((stages,) if stages > 1 else ()), *tile.shape)
        return pool.alloc(shape, dtype, align=1024, layout=shared_layout(case, form, tile))

    def allocate_registers(dtype, shape, layout, count):
        """A fragment, and the elements of one thread in the order of its registers."""
        buffer = T.alloc_buffer(shape, dtype, scope="local", layout=layout)
        return buffer, buffer.local(count, layout=TileLayout(S[(count,)]))

    def allocate_a():
        layout = wgmma_register_a(a_type, a_tile.shape[1], a_tile.shape[0])
        return allocate_registers(a_type, a_tile.shape, layout, a_count)

    def allocate_d():
        layout = wgmma_accumulator(d_rows, d_columns, warpgroups)
        return allocate_registers(d_type, d_tile.shape, layout, d_count)

    def part(buffer, tile, stage):
        return buffer[(stage, *tile.slices) if len(buffer.shape) > 2 else tile.slices]

    def multiply(d, a, b, it):
        stage = stages - 1 - it
        accum = {"overwrite": False, "keep": True, "first": it != 0}[case.accum]
        scope = Tx.wg if warpgroups == 1 else Tx.cta
        operands = part(d, d_tile, stage), part(a, a_tile, stage), part(b, b_tile, stage)
        scope.gemm_async(*operands, accum=accum, **options)

    def store_element(buffer, source, tile, stage, index):
        columns = tile.shape[1]
        place = (T.truncdiv(index, columns), T.truncmod(index, columns))
        target = [stage, *place] if len(buffer.shape) > 2 else [*place]
        T.buffer_store(buffer, source[(stage, *place)], target)

    @T.inline
    def fill_shared(buffer, source, tile, stage, thread):
        for i in T.serial(-(-tile.count // threads), annotations=ROLLED):
            index = T.meta_var(i * threads + thread)
            if index < tile.count:
                store_element(buffer, source, tile, stage, index)

    @T.prim_func
    def kernel(A_ptr: T.handle, B_ptr: T.handle, C_ptr: T.handle, D_ptr: T.handle):
        A = T.match_buffer(A_ptr, (stages, *a_tile.shape), a_type, align=16)
        B = T.match_buffer(B_ptr, (stages, *b_tile.shape), b_type, align=16)
        C = T.match_buffer(C_ptr, d_tile.shape, d_type, align=16)
        D = T.match_buffer(D_ptr, d_tile.shape, d_type, align=16)
        T.device_entry()
        T.cta_id([1])
        wg = T.warpgroup_id([warpgroups])
        warp = T.warp_id_in_wg([4])
        lane = T.lane_id([32])
        thread = T.meta_var(wg * 128 + warp * 32 + lane)
        first_row = T.meta_var(wg * rows_each)

        pool = T.SMEMPool()
        if not in_registers:
            a_shared = T.meta_var(allocate_shared(pool, a_type, case.a_form, a_tile))
        b_shared = T.meta_var(allocate_shared(pool, b_type, case.b_form, b_tile))
        pool.commit()
        if in_registers:
            a, a_elements = T.meta_var(allocate_a())
        d, d_elements = T.meta_var(allocate_d())

        for stage in T.serial(stages):
            if not in_registers:
                fill_shared(a_shared, A, a_tile, stage, thread)
            fill_shared(b_shared, B, b_tile, stage, thread)
        for i in T.unroll(d_count):
            place = T.meta_var(accumulator_place(i, d_columns, warp, lane, first_row))
            d_elements[i] = C[place[0], place[1]]
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()

        for it in T.serial(ROUNDS, annotations=ROLLED):
            if in_registers:
                stage = T.meta_var(stages - 1 - it if stages > 1 else 0)
                for i in T.unroll(a_count):
                    place = T.meta_var(register_a_place(i, a_tile.shape[1], case, warp, lane))
                    a_elements[i] = A[stage, place[0], place[1]]
            if not case.wait:
                T.ptx.wgmma.fence.sync.aligned()
            multiply(d, a if in_registers else a_shared, b_shared, it)
            if not case.wait:
                T.ptx.wgmma.commit_group.sync.aligned()
                T.ptx.wgmma.wait_group.sync.aligned(0)

        for i in T.unroll(d_count):
            place = T.meta_var(accumulator_place(i, d_columns, warp, lane, first_row))
            D[place[0], place[1]] = d_elements[i]

    return kernel


def lower(cases: Sequence[Case]):
    """Compile one module with a kernel for each case, named ``case_0``, ``case_1``, ..."""
    kernels = {
        f"case_{i}": make_kernel(case).with_attr("global_symbol", f"case_{i}")
        for i, case in enumerate(cases)
    }
    with TARGET:
        return tvm.compile(tvm.IRModule(kernels), target=TARGET, tir_pipeline="tirx")
