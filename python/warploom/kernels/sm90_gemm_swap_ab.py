"""GEMM for few rows of A on Hopper: C^T = B A^T, so that no wgmma row is wasted.

wgmma computes 64 rows at least. With 16 rows of A, three quarters of the work of the kernel in
:mod:`warploom.kernels.sm90_gemm` would be zeros, in shared memory too. Here the many rows of B
(the weights of a layer) are the 64-row side and the rows of A the N of the instruction, which may
be as small as 8. Such a product is limited by reading B once: what matters are deep stages, not
sharing, so there is no cluster, and the small result goes straight from registers to memory.

The ring and its two mbarriers a stage are those of the other kernel, within one CTA. Any number of
rows is correct; more than ``tile_m`` of them read B again.
"""

from __future__ import annotations

from tvm.backend.cuda.lang.pipeline import MBarrier, PipelineState, TMABar
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from warploom.kernels.config import GemmConfig
from warploom.kernels.kernel_name import named
from warploom.kernels.load import alloc_ring, load_tile
from warploom.kernels.signature import drop_unused_scales, row_count
from warploom.layout.fragment import wgmma_accumulator
from warploom.schedulers.raster import TileLoop
from warploom.target.wgmma import WGMMA_M


@named
def sm90_gemm_swap_ab(config: GemmConfig, n: int, k: int, m: int | None = None) -> PrimFunc:
    """Build the kernel for ``n`` columns and ``k`` products, for one ``m`` or for all.

    Parameters, result and errors are those of :func:`warploom.kernels.sm90_gemm.sm90_gemm`; the
    rows of C may have any pitch.
    """
    config.check_shape(n, k, m)
    rows, dtype, out_dtype = row_count(m), config.dtype, config.out_dtype
    tile_m, tile_n, tile_k = config.tile_m, config.tile_n, config.tile_k
    stages, consumers, wg_rows = config.stages, config.consumers, config.consumer_rows
    a_tile, b_tile = config.a_tile, config.b_tile
    k_major = config.layout == "NT"
    k_tiles, n_tiles = -(-k // tile_k), -(-n // tile_n)
    registers = config.accumulator_registers
    per_block = registers * WGMMA_M // wg_rows

    def weights(ring, stage, first):
        """The rows of B that one consumer multiplies."""
        part = slice(first, first + wg_rows)
        return ring[stage, part, 0:tile_k] if k_major else ring[stage, 0:tile_k, part]

    def element(register, warp, lane):
        """Row and column in the tile of C of a thread's accumulator register.

        In fragment order: 64-column block, 8 rows, half of the warp's 16 columns, pair of rows.
        """
        block, within = register // per_block, register % per_block
        row = within // 4 * 8 + lane % 4 * 2 + within % 2
        return row, block * WGMMA_M + warp * 16 + within // 2 % 2 * 8 + lane // 4

    @T.prim_func
    def gemm(a: T.handle, b: T.handle, sa: T.handle, sb: T.handle, c: T.handle):
        A = T.match_buffer(a, (rows, k), dtype, align=16)
        B = T.match_buffer(b, (n, k) if k_major else (k, n), dtype, align=16)
        scale_a = T.match_buffer(sa, (1,), "float32")
        scale_b = T.match_buffer(sb, (1,), "float32")
        C = T.match_buffer(c, (rows, n), out_dtype)
        if rows > 0:
            with T.attr({"tirx.device_entry": T.bool(True)}):
                T.attr({"tirx.launch_bounds_min_blocks_per_sm": 1})
                cta = T.cta_id([config.ctas])
                wg = T.warpgroup_id([consumers + 1])
                warp = T.warp_id_in_wg([4])
                lane = T.lane_id([32])

                pool = T.SMEMPool()
                Bs = alloc_ring(pool, b_tile, stages)
                As = alloc_ring(pool, a_tile, stages)
                full = TMABar(pool, stages)
                empty = MBarrier(pool, stages)
                pool.commit()
                full.init(1)
                empty.init(consumers)
                T.ptx.fence.proxy.async_.shared__cta()
                T.cuda.cta_sync()

                m_tiles = T.meta_var(T.truncdiv(rows + (tile_m - 1), tile_m))
                tiles = TileLoop(m_tiles, n_tiles, config.group, cta, config.ctas)
                if wg == consumers:
                    if warp == 0 and T.cuda.elect_sync() != T.uint32(0):
                        ring = PipelineState(stages, 1)
                        while tiles.valid():
                            tiles.locate()
                            row = T.meta_var(tiles.row * tile_m)
                            col = T.meta_var(tiles.column * tile_n)
                            for kt in T.serial(k_tiles):
                                empty.wait(ring.stage, ring.phase)
                                full.arrive(ring.stage, config.stage_bytes)
                                bar = T.meta_var(full.ptr_to([ring.stage]))
                                load_tile(Bs, b_tile, ring.stage, B, (col, kt * tile_k), bar)
                                load_tile(As, a_tile, ring.stage, A, (row, kt * tile_k), bar)
                                ring.advance()
                            tiles.advance()
                else:
                    first = T.meta_var(wg * wg_rows if consumers > 1 else 0)
                    leader: T.bool = T.And(warp == 0, lane == 0)
                    acc = T.alloc_buffer(
                        (wg_rows, tile_m), "float32", scope="local",
                        layout=wgmma_accumulator(wg_rows, tile_m),
                    )  # fmt: skip
                    values = acc.local(registers)
                    scale: T.float32 = 1.0
                    if config.scaled:
                        scale = scale_a[0] * scale_b[0]
                    ring = PipelineState(stages, 0)
                    while tiles.valid():
                        tiles.locate()
                        for kt in T.serial(k_tiles):
                            full.wait(ring.stage, ring.phase)
                            Tx.wg.gemm_async(
                                acc[:, :], weights(Bs, ring.stage, first), As[ring.stage, :, :],
                                transA=not k_major, accum=(kt != 0), wait=True,
                            )  # fmt: skip
                            if leader:
                                empty.arrive(ring.stage)
                            ring.advance()
                        for i in T.unroll(registers):
                            at = T.meta_var(element(i, warp, lane))
                            m_at = T.meta_var(tiles.row * tile_m + at[0])
                            n_at = T.meta_var(tiles.column * tile_n + first + at[1])
                            if m_at < rows and n_at < n:
                                C[m_at, n_at] = T.cast(values[i] * scale, out_dtype)
                        tiles.advance()

    return drop_unused_scales(gemm, config)
