"""Small kernels whose author orchestrates the threads, with the scopes of the dialect."""

from __future__ import annotations

from tvm.backend.cuda.lang.pipeline import PipelineState, TCGen05Bar, TMABar
from tvm.backend.cuda.tile_primitive.tma_utils import mma_shared_layout
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc
from tvm.tirx.layout import S, TileLayout

from warploom import language as wl
from warploom.layout.fragment import wgmma_accumulator

DTYPE = "float16"
M, N, BM, BN, BK = 128, 72, 64, 72, 64


def sm90(steps: int, stages: int = 2, pool: bool = False) -> PrimFunc:
    """C = A B^T: a loading warp, a multiplying warpgroup, a ring; part of it in a pool of TVM."""
    k = steps * BK
    layout = mma_shared_layout(DTYPE, 3, (stages, BM, BK))

    @T.prim_func
    def matmul(a: T.handle, b: T.handle, c: T.handle):
        A, B = T.match_buffer(a, (M, max(k, BK)), DTYPE), T.match_buffer(b, (N, max(k, BK)), DTYPE)
        C = T.match_buffer(c, (M, N), "float32")
        T.device_entry()
        i = T.cta_id([M // BM])
        wg = T.warpgroup_id([2])
        warp = T.warp_id_in_wg([4])
        lane = T.lane_id([32])
        if pool:
            theirs = T.SMEMPool()
            A_s = theirs.alloc((stages, BM, BK), DTYPE, align=1024, layout=layout)
            theirs.commit()
        else:
            A_s = T.alloc_buffer((stages, BM, BK), DTYPE, scope="shared")
        B_s = T.alloc_buffer((stages, BN, BK), DTYPE, scope="shared")
        full = TMABar(wl.mbarrier.Pool(), stages)
        empty = wl.mbarrier.alloc(stages)
        full.init(1)
        if T.cuda.thread_rank() == 0:
            wl.mbarrier.init(empty, 1)
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()
        ring = PipelineState(stages, 0)
        if wg == 0:
            if warp == 0 and T.cuda.elect_sync() != T.uint32(0):
                for step in T.serial(steps):
                    wl.mbarrier.wait(empty, ring.stage, ring.phase ^ 1)
                    full.arrive(ring.stage, (BM + BN) * BK * 2)
                    Tx.copy_async(
                        A_s[ring.stage, :, :], A[i * BM : i * BM + BM, step * BK : step * BK + BK],
                        dispatch="tma_auto", mbar=full.ptr_to([ring.stage]),
                    )  # fmt: skip
                    Tx.copy_async(
                        B_s[ring.stage, :, :], B[:, step * BK : step * BK + BK],
                        dispatch="tma_auto", mbar=full.ptr_to([ring.stage]),
                    )  # fmt: skip
                    ring.advance()
        else:
            acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
            Tx.wg.fill(acc, T.float32(0))
            for _ in T.serial(steps):
                full.wait(ring.stage, ring.phase)
                Tx.wg.gemm_async(
                    acc, A_s[ring.stage, :, :], B_s[ring.stage, :, :], accum=True, wait=True
                )
                if warp == 0 and lane == 0:
                    wl.mbarrier.arrive(empty, ring.stage)
                ring.advance()
            Tx.wg.copy(C[i * BM : i * BM + BM, :], acc)

    return matmul


def descriptors() -> PrimFunc:
    """C = A B^T of one tile, with wgmma from TVM's table and descriptors moved by hand."""
    layout = mma_shared_layout(DTYPE, 3, (64, BK))

    @T.prim_func
    def matmul(
        A: T.Buffer((64, BK), DTYPE), B: T.Buffer((8, BK), DTYPE), C: T.Buffer((64, 8), "float32")
    ):
        T.device_entry()
        T.cta_id([1])
        T.warpgroup_id([1])
        thread = T.thread_id_in_wg([128])
        A_s = T.alloc_buffer((64, BK), DTYPE, scope="shared", layout=layout)
        B_s = T.alloc_buffer(
            (8, BK), DTYPE, scope="shared", layout=mma_shared_layout(DTYPE, 3, (8, BK))
        )
        here = wl.mbarrier.alloc()
        if thread == 0:
            wl.mbarrier.init(here, 1)
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()
        if thread == 0:
            wl.mbarrier.expect(here, 0, (64 + 8) * BK * 2)
            Tx.copy_async(A_s, A[:, :], dispatch="tma_auto", mbar=wl.mbarrier.address(here))
            Tx.copy_async(B_s, B[:, :], dispatch="tma_auto", mbar=wl.mbarrier.address(here))
        wl.mbarrier.wait(here, 0, 0)
        left = T.alloc_buffer((1, 1), "uint64", scope="wgmma.descriptor")
        right = T.alloc_buffer((1, 1), "uint64", scope="wgmma.descriptor")
        left[0, 0] = wl.descriptor(A_s)
        right[0, 0] = wl.descriptor(B_s)
        acc = T.alloc_buffer((64, 8), "float32", scope="local", layout=wgmma_accumulator(64, 8))
        d = acc.local(4, layout=TileLayout(S[(4,)]))
        T.ptx.wgmma.fence.sync.aligned()
        for k in T.unroll(BK // 16):
            T.ptx["wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"](
                d[0], d[1], d[2], d[3], left[0, 0], right[0, 0],
                T.ptx.pred(T.cast(k > 0, "bool")), 1, 1, 0, 0,
            )  # fmt: skip
            left[0, 0] = left[0, 0] + T.uint64(2)  # 32 bytes
            right[0, 0] = right[0, 0] + T.uint64(2)
        T.ptx.wgmma.commit_group.sync.aligned()
        T.ptx.wgmma.wait_group.sync.aligned(0)
        Tx.wg.copy(C[:, :], acc)

    return matmul


def sm100(rows: int = 128, scope: str = "tmem", columns: int = 64) -> PrimFunc:
    """C = A B^T of one tile, in tensor memory, read by a warpgroup."""

    @T.prim_func
    def matmul(a: T.handle, b: T.handle, c: T.handle):
        A, B = T.match_buffer(a, (rows, BK), DTYPE), T.match_buffer(b, (columns, BK), DTYPE)
        C = T.match_buffer(c, (rows, columns), "float32")
        T.device_entry()
        T.cta_id([1])
        T.warpgroup_id([1])
        thread = T.thread_id_in_wg([128])
        A_s = T.alloc_buffer((rows, BK), DTYPE, scope="shared")
        B_s = T.alloc_buffer((columns, BK), DTYPE, scope="shared")
        acc = T.alloc_buffer((rows, columns), "float32", scope=scope)
        here = wl.mbarrier.alloc()
        done = TCGen05Bar(wl.mbarrier.Pool(), 1)
        done.init(1)
        if thread == 0:
            wl.mbarrier.init(here, 1)
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()
        if thread == 0:
            wl.mbarrier.expect(here, 0, (rows + columns) * BK * 2)
            Tx.copy_async(A_s, A[:, :], dispatch="tma_auto", mbar=wl.mbarrier.address(here))
            Tx.copy_async(B_s, B[:, :], dispatch="tma_auto", mbar=wl.mbarrier.address(here))
            wl.mbarrier.wait(here, 0, 0)
            T.ptx.tcgen05.fence__after_thread_sync()
            Tx.gemm_async(acc, A_s, B_s, accum=False, dispatch="tcgen05")
            done.arrive(0)
        done.wait(0, 0)
        T.ptx.tcgen05.fence__after_thread_sync()
        held = T.alloc_buffer((rows, columns), "float32", scope="fragment")
        Tx.wg.copy_async(held, acc)
        T.evaluate(T.ptx.tcgen05.wait__ld.sync.aligned())
        Tx.wg.copy(C[:, :], held)

    return matmul
