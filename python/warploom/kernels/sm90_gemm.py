"""A persistent, warp-specialised GEMM for Hopper: C = A B with tiles of any size and ragged edges.

One producer thread fills a ring of shared-memory stages by TMA; consumer warpgroups multiply from
it with wgmma and store through shared memory. The CTAs of a cluster lie above each other in C and
need the same tile of B: each loads a part of it and multicasts that to all. Two mbarriers a stage
carry the hand-over:

* ``full``: one arrival (the producer, announcing the stage's bytes) and those bytes, which come
  from every CTA of the cluster;
* ``empty``: one arrival by each consumer of each CTA of the cluster, because all of them read what
  this CTA's multicast would overwrite.

Tiles that reach over the edge of a matrix need no code: TMA fills zeros when it loads, clips when
it stores, and counts the full box either way.
"""

from __future__ import annotations

from tvm.backend.cuda.lang.pipeline import MBarrier, PipelineState, TMABar
from tvm.backend.cuda.tile_primitive.tma_utils import mma_shared_layout
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from warploom.kernels.config import GemmConfig
from warploom.kernels.epilogue import TileStore
from warploom.kernels.kernel_name import named
from warploom.kernels.load import alloc_ring, load_tile
from warploom.kernels.signature import drop_unused_scales, row_count
from warploom.layout.fragment import wgmma_accumulator
from warploom.schedulers.raster import TileLoop
from warploom.target.swizzle import Swizzle
from warploom.target.wgmma import WGMMA_M


@named
def sm90_gemm(config: GemmConfig, n: int, k: int, m: int | None = None) -> PrimFunc:
    """Build the kernel for ``n`` columns and ``k`` products, for one ``m`` or for all.

    Parameters
    ----------
    config : GemmConfig
        Dtypes, operand layout, tiles.
    n, k : int
        Extents of C = A B; edges may be ragged.
    m : int, optional
        Rows of A and C; without it the kernel takes any number, 0 included.

    Returns
    -------
    PrimFunc
        Arguments as in :mod:`warploom.kernels.signature`.

    Raises
    ------
    IllegalCombination
        If a row pitch is no multiple of 16 bytes.
    """
    config.check_shape(n, k, m)
    rows, dtype, out_dtype = row_count(m), config.dtype, config.out_dtype
    tile_m, tile_n, tile_k = config.tile_m, config.tile_n, config.tile_k
    stages, cluster, consumers = config.stages, config.cluster, config.consumers
    a_tile, b_tile = config.a_tile, config.b_tile
    share, wg_rows = config.b_share, config.consumer_rows
    k_major = config.layout == "NT"
    k_tiles, n_tiles = -(-k // tile_k), -(-n // tile_n)
    clusters = config.ctas // cluster
    everyone = (1 << cluster) - 1 if cluster > 1 else 0
    c_ring = (consumers, config.store_buffers, WGMMA_M, config.store_n)
    c_layout = mma_shared_layout(out_dtype, Swizzle(2 * config.store_n).bits, c_ring)
    split = config.register_split

    def set_registers(direction: str, role: int) -> None:
        if split is not None:
            T.evaluate(T.ptx[f"setmaxnreg.{direction}.sync.aligned.u32"](split[role]))

    def cluster_sync() -> None:
        T.evaluate(T.cuda.cluster_sync() if cluster > 1 else T.cuda.cta_sync())

    def barrier_of(peer, empty):
        """The ``empty`` barriers of CTA ``peer`` of the cluster."""
        return empty.remote_view(peer) if cluster > 1 else empty

    @T.prim_func
    def gemm(a: T.handle, b: T.handle, sa: T.handle, sb: T.handle, c: T.handle):
        A = T.match_buffer(a, (rows, k), dtype, align=16)
        B = T.match_buffer(b, (n, k) if k_major else (k, n), dtype, align=16)
        scale_a = T.match_buffer(sa, (1,), "float32")
        scale_b = T.match_buffer(sb, (1,), "float32")
        C = T.match_buffer(c, (rows, n), out_dtype, align=16)
        if rows > 0:
            with T.attr({"tirx.device_entry": T.bool(True)}):
                T.attr({"tirx.launch_bounds_min_blocks_per_sm": 1})
                rank = T.cta_id_in_cluster([cluster])
                cta = T.cta_id([config.ctas])
                wg = T.warpgroup_id([consumers + 1])
                warp = T.warp_id_in_wg([4])
                lane = T.lane_id([32])

                pool = T.SMEMPool()
                As = alloc_ring(pool, a_tile, stages)
                Bs = alloc_ring(pool, b_tile, stages)
                Cs = pool.alloc(c_ring, out_dtype, align=1024, layout=c_layout)
                full = TMABar(pool, stages)
                empty = MBarrier(pool, stages)
                pool.commit()
                full.init(1)
                empty.init(consumers * cluster)
                T.ptx.fence.mbarrier_init.release.cluster()
                T.ptx.fence.proxy.async_.shared__cta()
                cluster_sync()

                m_tiles = T.meta_var(T.truncdiv(rows + (tile_m * cluster - 1), tile_m * cluster))
                tiles = TileLoop(m_tiles, n_tiles, config.group, cta // cluster, clusters)
                if wg == 0:
                    set_registers("dec", 0)
                    if warp == 0 and T.cuda.elect_sync() != T.uint32(0):
                        ring = PipelineState(stages, 1)
                        while tiles.valid():
                            tiles.locate()
                            row = T.meta_var((tiles.row * cluster + rank) * tile_m)
                            col = T.meta_var(tiles.column * tile_n)
                            for kt in T.serial(k_tiles):
                                empty.wait(ring.stage, ring.phase)
                                full.arrive(ring.stage, config.stage_bytes)
                                bar = T.meta_var(full.ptr_to([ring.stage]))
                                load_tile(As, a_tile, ring.stage, A, (row, kt * tile_k), bar)
                                load_tile(
                                    Bs, b_tile, ring.stage, B, (col, kt * tile_k), bar,
                                    (rank * share, share), everyone,
                                )  # fmt: skip
                                ring.advance()
                            tiles.advance()
                else:
                    set_registers("inc", 1)
                    consumer = T.meta_var(wg - 1 if consumers > 1 else 0)
                    first = T.meta_var(consumer * wg_rows)
                    leader: T.bool = T.And(warp == 0, lane == 0)
                    # Lane r of the first warp tells CTA r that a stage is free.
                    releases: T.bool = T.And(warp == 0, lane < cluster)
                    freed = T.meta_var(barrier_of(lane % cluster, empty))
                    acc = T.alloc_buffer(
                        (wg_rows, tile_n), "float32", scope="local",
                        layout=wgmma_accumulator(wg_rows, tile_n),
                    )  # fmt: skip
                    scale: T.float32 = 1.0
                    if config.scaled:
                        scale = scale_a[0] * scale_b[0]
                    output = TileStore(Cs, consumer, wg_rows, tile_n, wg, leader)
                    ring = PipelineState(stages, 0)
                    last: T.int32 = 0
                    while tiles.valid():
                        tiles.locate()
                        for kt in T.serial(k_tiles):
                            full.wait(ring.stage, ring.phase)
                            T.ptx.wgmma.fence.sync.aligned()
                            Tx.wg.gemm_async(
                                acc[:, :], As[ring.stage, first : first + wg_rows, :],
                                Bs[ring.stage, :, :], transB=not k_major, accum=(kt != 0),
                            )  # fmt: skip
                            T.ptx.wgmma.commit_group.sync.aligned()
                            # The products of the stage before are done, its readers too.
                            T.ptx.wgmma.wait_group.sync.aligned(1)
                            if kt > 0 and releases:
                                freed.arrive(last)
                            last = ring.stage
                            ring.advance()
                        T.ptx.wgmma.wait_group.sync.aligned(0)
                        if releases:
                            freed.arrive(last)
                        if config.scaled:
                            Tx.wg.mul(acc[:, :], acc[:, :], scale)
                        row = T.meta_var((tiles.row * cluster + rank) * tile_m + first)
                        output.store(C, acc, row, tiles.column * tile_n)
                        tiles.advance()
                    output.drain()
                # No CTA leaves while another may still write to its memory or its barriers.
                cluster_sync()

    return drop_unused_scales(gemm, config)
