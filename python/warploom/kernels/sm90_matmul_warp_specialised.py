"""A generated matmul with roles: one thread loads, other warpgroups multiply.

Two mbarriers a stage: ``full`` (one arrival, and the bytes of the copies) and ``empty`` (one
arrival by each consumer, once its products of the stage are done). A consumer releases a stage when
the products of the next one have been issued, so that the tensor core never waits for it; with a
single stage it waits for them at once.
"""

from __future__ import annotations

from typing import Any

from tvm.backend.cuda.lang.pipeline import MBarrier, PipelineState, TMABar
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
def sm90_matmul_warp_specialised(spec: MatmulSpec, m: int | None, n: int, k: int) -> PrimFunc:
    """Build ``C = A B`` for these extents; see :func:`warploom.kernels.matmul_warp_specialised`."""
    check_shape(spec, m, n, k)
    rows = row_count(m)
    a_shape, b_shape = shapes(spec, rows, n, k)
    tile_m, tile_n, tile_k = spec.tile
    stages, consumers, wg_rows = spec.stages, spec.consumers, spec.consumer_rows
    k_tiles, n_tiles = -(-k // tile_k), -(-n // tile_n)
    split, several = spec.register_split, stages > 1

    def set_registers(direction: str, role: int) -> None:
        if split is not None:
            T.evaluate(T.ptx[f"setmaxnreg.{direction}.sync.aligned.u32"](split[role]))

    def release(log: Any, step: Any, empty: Any, here: Any, stage: Any, last: Any) -> None:
        """Tell the producer which stage nobody reads any more."""
        wait_mmas(1 if several else 0)
        freed = last if several else 0
        with T.If(T.And(here, step > 0) if several else here), T.Then():
            empty.arrive(freed)
        log(step, "empty[%d] arrive", freed, when=step > 0 if several else None)
        if several:
            T.buffer_store(last.source, stage, [0])

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
                wg = T.warpgroup_id([consumers + 1])
                warp = T.warp_id_in_wg([4])
                lane = T.lane_id([32])
                pool = T.SMEMPool()
                As = alloc_ring(pool, spec.a_tile, stages)
                Bs = alloc_ring(pool, spec.b_tile, stages)
                full = TMABar(pool, stages)
                empty = MBarrier(pool, stages)
                pool.commit()
                full.init(1)
                empty.init(consumers)
                T.ptx.fence.proxy.async_.shared__cta()
                T.cuda.cta_sync()
                place = T.meta_var(grouped_tile(cta, m_tiles, n_tiles, spec.group))
                tile_row: T.int32 = place[0]
                tile_column: T.int32 = place[1]
                if wg == 0:
                    set_registers("dec", 0)
                    if warp == 0 and T.cuda.elect_sync() != T.uint32(0):
                        log = T.meta_var(RoleLog(spec.log, PRODUCER, (tile_row, tile_column)))
                        ring = PipelineState(stages, 1)
                        for kt in T.serial(k_tiles):
                            # TVM gives a dimension of extent 1 no stride: it needs a number.
                            stage = T.meta_var(ring.stage if several else 0)
                            log.wait(kt, "empty", empty, stage, ring.phase)
                            full.arrive(stage, spec.stage_bytes)
                            log(kt, "full[%d] expects %d bytes", stage, spec.stage_bytes)
                            load_stage(
                                spec, (As, Bs), stage, (A, B),
                                (tile_row * tile_m, tile_column * tile_n), kt,
                                full.ptr_to([stage]),
                            )  # fmt: skip
                            log(kt, "full[%d] copies issued", stage)
                            ring.advance()
                else:
                    set_registers("inc", 1)
                    consumer = T.meta_var(wg - 1 if consumers > 1 else 0)
                    first = T.meta_var(consumer * wg_rows)
                    leader: T.bool = T.And(warp == 0, lane == 0)
                    log = T.meta_var(
                        consumer_log(spec, (tile_row, tile_column), consumer, warp, lane)
                    )
                    acc = T.alloc_buffer(
                        (wg_rows, tile_n), spec.accumulator, scope="local",
                        layout=wgmma_accumulator(wg_rows, tile_n),
                    )  # fmt: skip
                    ring = PipelineState(stages, 0)
                    last = T.local_scalar("int32")
                    last = 0
                    for kt in T.serial(k_tiles):
                        stage = T.meta_var(ring.stage if several else 0)
                        log.wait(kt, "full", full, stage, ring.phase)
                        multiply(spec, acc, (As, Bs), stage, first, kt)
                        log(kt, "full[%d] products issued", stage)
                        release(log, kt, empty, leader, stage, last)
                        ring.advance()
                    wait_mmas(0)
                    store(spec, C, acc, tile_row * tile_m + first, tile_column * tile_n)

    return matmul
