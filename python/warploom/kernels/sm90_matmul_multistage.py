"""A generated matmul without roles: who multiplies also loads, some stages ahead.

One thread issues the copies, all warpgroups multiply. A stage is loaded again when the products of
the one after it have been issued and its own are done; where several warpgroups multiply, they meet
before, since all of them read it. One mbarrier a stage, ``full``, counts the bytes.
"""

from __future__ import annotations

from tvm.backend.cuda.lang.pipeline import PipelineState, TMABar
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from warploom.kernels.barrier_log import PRODUCER, RoleLog
from warploom.kernels.kernel_name import named
from warploom.kernels.load import alloc_ring
from warploom.kernels.matmul_parts import (
    consumer_log,
    load_stage,
    multiply,
    shapes,
    store,
    wait_mmas,
)
from warploom.kernels.matmul_shape import check_shape
from warploom.kernels.matmul_spec import MatmulSpec
from warploom.kernels.signature import row_count
from warploom.layout.fragment import wgmma_accumulator
from warploom.schedulers.raster import grouped_tile


@named
def sm90_matmul_multistage(spec: MatmulSpec, m: int | None, n: int, k: int) -> PrimFunc:
    """Build ``C = A B`` for these extents; see :func:`warploom.kernels.matmul_multistage`."""
    check_shape(spec, m, n, k)
    rows = row_count(m)
    a_shape, b_shape = shapes(spec, rows, n, k)
    tile_m, tile_n, tile_k = spec.tile
    stages, consumers, wg_rows = spec.stages, spec.consumers, spec.consumer_rows
    k_tiles, n_tiles = -(-k // tile_k), -(-n // tile_n)
    several = stages > 1
    ahead = stages - 1 if several else 1

    def meet() -> None:
        # One warpgroup needs no barrier: a wait is over when the products of all its warps are.
        if consumers > 1:
            T.evaluate(T.cuda.cta_sync())

    @T.prim_func
    def matmul(a: T.handle, b: T.handle, c: T.handle):
        A = T.match_buffer(a, a_shape, spec.dtype, align=16)
        B = T.match_buffer(b, b_shape, spec.b_dtype, align=16)
        C = T.match_buffer(c, (rows, n), spec.out_dtype)
        if rows > 0:
            with T.attr({"tirx.device_entry": T.bool(True)}):
                T.attr({"tirx.launch_bounds_min_blocks_per_sm": spec.ctas_per_sm})
                m_tiles = T.meta_var(T.truncdiv(rows + (tile_m - 1), tile_m))
                cta = T.cta_id([m_tiles * n_tiles])
                wg = T.warpgroup_id([consumers])
                warp = T.warp_id_in_wg([4])
                lane = T.lane_id([32])
                pool = T.SMEMPool()
                As = alloc_ring(pool, spec.a_tile, stages)
                Bs = alloc_ring(pool, spec.b_tile, stages)
                full = TMABar(pool, stages)
                pool.commit()
                full.init(1)
                T.ptx.fence.proxy.async_.shared__cta()
                T.cuda.cta_sync()
                place = T.meta_var(grouped_tile(cta, m_tiles, n_tiles, spec.group))
                tile_row: T.int32 = place[0]
                tile_column: T.int32 = place[1]
                loads = T.meta_var(
                    T.And(warp == 0, lane == 0)
                    if consumers == 1
                    else T.And(wg == 0, T.And(warp == 0, lane == 0))
                )
                tell = T.meta_var(RoleLog(spec.log, PRODUCER, (tile_row, tile_column)))

                @T.inline
                def load(step, stage):
                    full.arrive(stage, spec.stage_bytes)
                    tell(step, "full[%d] expects %d bytes", stage, spec.stage_bytes)
                    load_stage(
                        spec, (As, Bs), stage, (A, B),
                        (tile_row * tile_m, tile_column * tile_n), step, full.ptr_to([stage]),
                    )  # fmt: skip
                    tell(step, "full[%d] copies issued", stage)

                if loads:
                    # Rolled: each copy in the program has a tensor map of its own.
                    for early in T.serial(min(stages, k_tiles)):
                        load(early, early if several else 0)
                first = T.meta_var(wg * wg_rows if consumers > 1 else 0)
                log = T.meta_var(consumer_log(spec, (tile_row, tile_column), wg, warp, lane))
                acc = T.alloc_buffer(
                    (wg_rows, tile_n), spec.accumulator, scope="local",
                    layout=wgmma_accumulator(wg_rows, tile_n),
                )  # fmt: skip
                ring = PipelineState(stages, 0)
                last: T.int32 = 0
                for kt in T.serial(k_tiles):
                    # TVM gives a dimension of extent 1 no stride: it is indexed with a number.
                    stage = T.meta_var(ring.stage if several else 0)
                    log.wait(kt, "full", full, stage, ring.phase)
                    multiply(spec, acc, (As, Bs), stage, first, kt)
                    log(kt, "full[%d] products issued", stage)
                    # The products of the stage before are done; those of a single one have to be.
                    wait_mmas(1 if several else 0)
                    meet()
                    if loads and kt >= (1 if several else 0) and kt + ahead < k_tiles:
                        load(kt + ahead, last if several else 0)
                    last = stage
                    ring.advance()
                wait_mmas(0)
                store(spec, C, acc, tile_row * tile_m + first, tile_column * tile_n)

    return matmul
