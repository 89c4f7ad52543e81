"""A GEMM for Blackwell in which two CTAs, a pair, compute one tile of C together.

The tile has 256 rows, 128 for each CTA, and every CTA loads its own rows of A but only half of B:
the tensor cores read the other half from the partner's shared memory. The first CTA of the pair
issues all products. Barriers are those of :mod:`warploom.kernels.sm100_gemm`, with two changes:

* ``full`` of the first CTA counts the bytes of both, since its products read both;
* the commits that arrive at ``empty`` and ``done`` arrive in both CTAs (multicast).
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
from warploom.target.tcgen05 import PAIR

#: The mask that names both CTAs of a pair in a multicast.
BOTH = 0b11


@named
def sm100_gemm_pair(config: Sm100GemmConfig, n: int, k: int, m: int | None = None) -> PrimFunc:
    """Build the kernel for ``n`` columns and ``k`` products, for one ``m`` or for all.

    Parameters
    ----------
    config : Sm100GemmConfig
        Dtypes and tiles; 16-bit operands, ``cta_group`` 2.
    n, k, m : int
        As for :func:`warploom.kernels.sm100_gemm.sm100_gemm`.

    Returns
    -------
    PrimFunc
        ``(A, B, C)``: A ``[M, K]``, B ``[N, K]``, C ``[M, N]``, all contiguous.

    Raises
    ------
    IllegalCombination
        If the configuration is for another kernel, or a row pitch is no multiple of 16 bytes.
    """
    config.require("sm100_gemm_pair", cta_group=PAIR, scaled=False)
    config.check_shape(n, k, m)
    rows, dtype, out_dtype = row_count(m), config.dtype, config.out_dtype
    tile_n, tile_k, stages = config.tile_n, config.tile_k, config.stages
    a_tile, b_tile, share = config.a_tile, config.b_tile, config.b_share
    k_tiles, n_tiles = -(-k // tile_k), -(-n // tile_n)
    m_tiles = T.truncdiv(rows + (PAIR * TILE_M - 1), PAIR * TILE_M)
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
                rank = T.cta_id_in_cluster([PAIR])
                cta = T.cta_id([m_tiles * (n_tiles * PAIR)])
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
                memory = TensorMemory(pool, config.tensor_memory, PAIR)
                pool.commit()
                full.init(1)
                empty.init(1)
                done.init(1)
                T.ptx.fence.mbarrier_init.release.cluster()
                T.ptx.fence.proxy.async_.shared__cta()
                if T.And(wg == 0, warp == 2):
                    memory.allocate()
                T.cuda.cluster_sync()
                memory.open()
                sums = memory.columns("accumulators")

                tile_row, tile_column = T.meta_var(
                    grouped_tile(T.truncdiv(cta, PAIR), m_tiles, n_tiles, config.group)
                )
                row: T.int32 = (tile_row * PAIR + rank) * TILE_M
                column: T.int32 = tile_column * tile_n
                if wg == 0:
                    if warp == 0 and T.cuda.elect_sync() != T.uint32(0):
                        first_full = T.meta_var(full.remote_view(0))
                        ring = PipelineState(stages, 1)
                        for kt in T.serial(k_tiles):
                            empty.wait(ring.stage, ring.phase)
                            if rank == 0:
                                full.arrive(ring.stage, PAIR * config.stage_bytes)
                            bar = T.meta_var(first_full.ptr_to([ring.stage]))
                            load_tile(
                                As, a_tile, ring.stage, A, (row, kt * tile_k), bar,
                                cta_group=PAIR,
                            )  # fmt: skip
                            load_tile(
                                Bs, b_tile, ring.stage, B, (column + rank * share, kt * tile_k),
                                bar, cta_group=PAIR,
                            )  # fmt: skip
                            ring.advance()
                        # The leader's commits arrive in both CTAs, which have to be there.
                        for _ in T.serial(stages):
                            empty.wait(ring.stage, ring.phase)
                            ring.advance()
                    elif T.And(rank == 0, warp == 1) and T.cuda.elect_sync() != T.uint32(0):
                        ring = PipelineState(stages, 0)
                        for kt in T.serial(k_tiles):
                            full.wait(ring.stage, ring.phase)
                            T.ptx.tcgen05.fence__after_thread_sync()
                            Tx.gemm_async(
                                sums[:, :], As[ring.stage, :, :], Bs[ring.stage, :, :],
                                dispatch="tcgen05", cta_group=PAIR, accum=(kt != 0),
                            )  # fmt: skip
                            empty.arrive(ring.stage, PAIR, BOTH)
                            ring.advance()
                        done.arrive(0, PAIR, BOTH)
                else:
                    leader: T.bool = T.And(warp == 0, lane == 0)
                    output = AccumulatorStore(Cs, sums, tile_n, 1, leader)
                    done.wait(0, 0)
                    T.ptx.tcgen05.fence__after_thread_sync()
                    output.store(C, row, column)
                    output.drain()
                    T.ptx.tcgen05.fence__before_thread_sync()
                # Neither CTA leaves, or gives its columns back, while the pair still uses them.
                T.cuda.cluster_sync()
                if T.And(wg == 0, warp == 2):
                    memory.free()

    return gemm
