"""A warp-specialised GEMM for Blackwell: C = A B, one tile of C for each CTA.

Warps have roles. One thread of the first warp fills a ring of shared-memory stages by TMA, one
thread of the second multiplies from it with tcgen05 into tensor memory, the third warp allocates
that memory, and a warpgroup of four warps stores the result. Three kinds of mbarriers hand over:

* ``full``: one arrival (the producer, announcing the stage's bytes) and those bytes;
* ``empty``: one arrival, by the commit of the products that read the stage;
* ``done``: one arrival, by the commit of the last product of the tile.
"""

from __future__ import annotations

from tvm.backend.cuda.lang.pipeline import PipelineState, TCGen05Bar, TMABar
from tvm.backend.cuda.tile_primitive.tma_utils import mma_shared_layout
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from warploom.kernels.kernel_name import named
from warploom.kernels.load import alloc_ring, load_tile
from warploom.kernels.signature import row_count
from warploom.kernels.sm100_config import TILE_M, Sm100GemmConfig
from warploom.kernels.sm100_epilogue import AccumulatorStore
from warploom.kernels.tensor_memory import TensorMemory
from warploom.schedulers.raster import grouped_tile
from warploom.target.swizzle import Swizzle


@named
def sm100_gemm(config: Sm100GemmConfig, n: int, k: int, m: int | None = None) -> PrimFunc:
    """Build the kernel for ``n`` columns and ``k`` products, for one ``m`` or for all.

    Parameters
    ----------
    config : Sm100GemmConfig
        Dtypes and tiles; 16-bit operands, ``cta_group`` 1.
    n, k : int
        Extents of C = A B; edges may be ragged.
    m : int, optional
        Rows of A and C; without it the kernel takes any number, 0 included.

    Returns
    -------
    PrimFunc
        ``(A, B, C)``: A ``[M, K]``, B ``[N, K]``, C ``[M, N]``, all contiguous.

    Raises
    ------
    IllegalCombination
        If the configuration is for another kernel, or a row pitch is no multiple of 16 bytes.
    """
    config.require("sm100_gemm", cta_group=1, scaled=False)
    config.check_shape(n, k, m)
    rows, dtype, out_dtype = row_count(m), config.dtype, config.out_dtype
    tile_n, tile_k, stages = config.tile_n, config.tile_k, config.stages
    a_tile, b_tile = config.a_tile, config.b_tile
    k_tiles, n_tiles = -(-k // tile_k), -(-n // tile_n)
    m_tiles = T.truncdiv(rows + (TILE_M - 1), TILE_M)
    c_ring = (config.store_buffers, TILE_M, config.store_n)
    c_layout = mma_shared_layout(out_dtype, Swizzle(2 * config.store_n).bits, c_ring)

    @T.prim_func
    def gemm(a: T.handle, b: T.handle, c: T.handle):
        A = T.match_buffer(a, (rows, k), dtype, align=16)
        B = T.match_buffer(b, (n, k), dtype, align=16)
        C = T.match_buffer(c, (rows, n), out_dtype, align=16)
        if rows > 0:
            with T.attr({"tirx.device_entry": T.bool(True)}):
                T.attr({"tirx.launch_bounds_min_blocks_per_sm": 1})
                cta = T.cta_id([m_tiles * n_tiles])
                wg = T.warpgroup_id([2])
                warp = T.warp_id_in_wg([4])
                lane = T.lane_id([32])

                pool = T.SMEMPool()
                As = alloc_ring(pool, a_tile, stages)
                Bs = alloc_ring(pool, b_tile, stages)
                Cs = pool.alloc(c_ring, out_dtype, align=1024, layout=c_layout)
                full = TMABar(pool, stages)
                empty = TCGen05Bar(pool, stages)
                done = TCGen05Bar(pool, 1)
                memory = TensorMemory(pool, config.tensor_memory)
                pool.commit()
                full.init(1)
                empty.init(1)
                done.init(1)
                T.ptx.fence.proxy.async_.shared__cta()
                if T.And(wg == 0, warp == 2):
                    memory.allocate()
                T.cuda.cta_sync()
                memory.open()
                sums = memory.columns("accumulators")

                tile_row, tile_column = T.meta_var(
                    grouped_tile(cta, m_tiles, n_tiles, config.group)
                )
                row: T.int32 = tile_row * TILE_M
                column: T.int32 = tile_column * tile_n
                if wg == 0:
                    if warp == 0 and T.cuda.elect_sync() != T.uint32(0):
                        ring = PipelineState(stages, 1)
                        for kt in T.serial(k_tiles):
                            empty.wait(ring.stage, ring.phase)
                            full.arrive(ring.stage, config.stage_bytes)
                            bar = T.meta_var(full.ptr_to([ring.stage]))
                            load_tile(As, a_tile, ring.stage, A, (row, kt * tile_k), bar)
                            load_tile(Bs, b_tile, ring.stage, B, (column, kt * tile_k), bar)
                            ring.advance()
                    elif warp == 1 and T.cuda.elect_sync() != T.uint32(0):
                        ring = PipelineState(stages, 0)
                        for kt in T.serial(k_tiles):
                            full.wait(ring.stage, ring.phase)
                            T.ptx.tcgen05.fence__after_thread_sync()
                            Tx.gemm_async(
                                sums[:, :], As[ring.stage, :, :], Bs[ring.stage, :, :],
                                dispatch="tcgen05", accum=(kt != 0),
                            )  # fmt: skip
                            empty.arrive(ring.stage)
                            ring.advance()
                        done.arrive(0)
                else:
                    leader: T.bool = T.And(warp == 0, lane == 0)
                    output = AccumulatorStore(Cs, sums, tile_n, 1, leader)
                    done.wait(0, 0)
                    T.ptx.tcgen05.fence__after_thread_sync()
                    output.store(C, row, column)
                    output.drain()
                    T.ptx.tcgen05.fence__before_thread_sync()
                T.cuda.cta_sync()
                if T.And(wg == 0, warp == 2):
                    memory.free()

    return gemm
