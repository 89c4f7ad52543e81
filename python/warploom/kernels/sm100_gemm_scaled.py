"""A block-scaled float8 GEMM for Blackwell (mxfp8): each 32 elements of K have a power of two.

Roles, ring and barriers are those of :mod:`warploom.kernels.sm100_gemm`. A stage also holds the
scale factors of its tiles. The thread that multiplies copies them on to tensor memory, where the
tensor core wants them, right before its products; each stage has columns of its own there, so that
the ``empty`` barrier, which tells that the products of a stage are done, frees them as well.

Scale factors lie in memory as the tensor core reads them: in blocks of 128 rows (of A, or of B)
by 4 factors, 512 bytes, where row ``r`` and factor ``f`` are at byte ``r % 32 * 16 + r // 32 * 4 +
f``. :func:`block_scales` brings a plain array into that order.
"""

from __future__ import annotations

import numpy as np
from tvm.backend.cuda.lang.pipeline import PipelineState, TCGen05Bar, TMABar
from tvm.backend.cuda.tile_primitive.gemm_async.tcgen05 import sf_smem_layout, sf_tmem_layout
from tvm.backend.cuda.tile_primitive.tma_utils import mma_shared_layout
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from warploom.kernels.kernel_name import named
from warploom.kernels.load import alloc_ring, load_tile
from warploom.kernels.signature import row_count
from warploom.kernels.sm100_config import (
    SCALE_COLUMNS,
    SCALE_DTYPE,
    SCALE_ROWS,
    TILE_M,
    Sm100GemmConfig,
)
from warploom.kernels.sm100_epilogue import AccumulatorStore
from warploom.kernels.tensor_memory import TensorMemory
from warploom.schedulers.raster import grouped_tile
from warploom.target import SM100A
from warploom.target.swizzle import Swizzle

#: Shape of one block of scale factors in memory.
BLOCK = (SM100A.warp, SCALE_ROWS * SCALE_COLUMNS // SM100A.warp)


def block_scales(scales: np.ndarray) -> np.ndarray:
    """Bring scale factors into the order that :func:`sm100_gemm_scaled` takes.

    Parameters
    ----------
    scales : numpy.ndarray
        ``(rows, ceil(K / 32))`` factors of a type of one byte.

    Returns
    -------
    numpy.ndarray
        Bytes, ``(ceil(rows / 128), ceil(K / 128), 32, 16)``, padded with the factor 1.
    """
    rows, columns = scales.shape
    padded = np.ones((-(-rows // SCALE_ROWS) * SCALE_ROWS, -(-columns // SCALE_COLUMNS) *
                      SCALE_COLUMNS), np.float32).astype(scales.dtype)  # fmt: skip
    padded[:rows, :columns] = scales
    lanes, quarters = BLOCK[0], SCALE_ROWS // BLOCK[0]
    blocks = padded.reshape(-1, quarters, lanes, padded.shape[1] // SCALE_COLUMNS, SCALE_COLUMNS)
    ordered = blocks.transpose(0, 3, 2, 1, 4)
    return np.ascontiguousarray(ordered).view(np.uint8).reshape(len(blocks), -1, *BLOCK)


@named
def sm100_gemm_scaled(config: Sm100GemmConfig, n: int, k: int, m: int | None = None) -> PrimFunc:
    """Build the kernel for ``n`` columns and ``k`` products, for one ``m`` or for all.

    Parameters
    ----------
    config : Sm100GemmConfig
        Dtypes and tiles; float8_e4m3fn operands, ``cta_group`` 1.
    n, k, m : int
        As for :func:`warploom.kernels.sm100_gemm.sm100_gemm`.

    Returns
    -------
    PrimFunc
        ``(A, B, scale_a, scale_b, C)``: A ``[M, K]``, B ``[N, K]``, C ``[M, N]``, all contiguous;
        the scales, bytes of float8_e8m0fnu, as :func:`block_scales` makes them from
        ``[M, K / 32]`` and ``[N, K / 32]``.

    Raises
    ------
    IllegalCombination
        If the configuration is for another kernel, or a row pitch is no multiple of 16 bytes.
    """
    config.require("sm100_gemm_scaled", cta_group=1, scaled=True)
    config.check_shape(n, k, m)
    rows, dtype, out_dtype = row_count(m), config.dtype, config.out_dtype
    tile_n, tile_k, stages = config.tile_n, config.tile_k, config.stages
    a_tile, b_tile = config.a_tile, config.b_tile
    k_tiles, n_tiles = -(-k // tile_k), -(-n // tile_n)
    m_tiles = T.truncdiv(rows + (TILE_M - 1), TILE_M)
    c_ring = (config.store_buffers, TILE_M, config.store_n)
    c_layout = mma_shared_layout(out_dtype, Swizzle(2 * config.store_n).bits, c_ring)
    n_blocks = -(-n // SCALE_ROWS)

    def alloc_scales(pool, tile_rows):
        """Scale factors of a tile in shared memory: as TMA and as the tensor core see them."""
        pool.offset = -(-pool.offset // 128) * 128
        start, blocks = pool.offset, tile_rows // SCALE_ROWS
        copied = pool.alloc((stages, blocks, 1, *BLOCK), "uint8")
        pool.move_base_to(start)
        layout = sf_smem_layout(tile_rows, SCALE_COLUMNS, 1, pipe_depth=stages)
        return copied, pool.alloc((stages, tile_rows, SCALE_COLUMNS), SCALE_DTYPE, layout=layout)

    def scale_columns(memory, name, tile_rows):
        """Scale factors of a tile in tensor memory."""
        layout = sf_tmem_layout(tile_rows, SCALE_COLUMNS, 1, pipe_depth=stages)
        return memory.buffer(name, (stages, tile_rows, SCALE_COLUMNS), SCALE_DTYPE, layout)

    def load_scales(shared, stage, scales, block, count, kt, barrier):
        """Emit the copy of the blocks of one tile into one stage."""
        Tx.copy_async(
            shared[stage, 0:count, :, :, :], scales[block : block + count, kt : kt + 1, :, :],
            dispatch="tma_auto", mbar=barrier,
        )  # fmt: skip

    @T.prim_func
    def gemm(a: T.handle, b: T.handle, sa: T.handle, sb: T.handle, c: T.handle):
        A = T.match_buffer(a, (rows, k), dtype, align=16)
        B = T.match_buffer(b, (n, k), dtype, align=16)
        scale_a = T.match_buffer(sa, (m_tiles, k_tiles, *BLOCK), "uint8", align=16)
        scale_b = T.match_buffer(sb, (n_blocks, k_tiles, *BLOCK), "uint8", align=16)
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
                scale_a_copied, scale_a_shared = T.meta_var(alloc_scales(pool, TILE_M))
                scale_b_copied, scale_b_shared = T.meta_var(alloc_scales(pool, tile_n))
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
                scale_a_columns = scale_columns(memory, "scale_a", TILE_M)
                scale_b_columns = scale_columns(memory, "scale_b", tile_n)

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
                            load_scales(scale_a_copied, ring.stage, scale_a, tile_row, 1, kt, bar)
                            load_scales(
                                scale_b_copied, ring.stage, scale_b,
                                tile_column * (tile_n // SCALE_ROWS), tile_n // SCALE_ROWS, kt, bar,
                            )  # fmt: skip
                            ring.advance()
                    elif warp == 1 and T.cuda.elect_sync() != T.uint32(0):
                        ring = PipelineState(stages, 0)
                        for kt in T.serial(k_tiles):
                            full.wait(ring.stage, ring.phase)
                            T.ptx.tcgen05.fence__after_thread_sync()
                            Tx.copy_async(
                                scale_a_columns[ring.stage, :, :], scale_a_shared[ring.stage, :, :]
                            )
                            Tx.copy_async(
                                scale_b_columns[ring.stage, :, :], scale_b_shared[ring.stage, :, :]
                            )
                            Tx.gemm_async(
                                sums[:, :], As[ring.stage, :, :], Bs[ring.stage, :, :],
                                SFA=scale_a_columns[ring.stage, :, :],
                                SFB=scale_b_columns[ring.stage, :, :],
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
