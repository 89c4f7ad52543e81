"""``Tx.cta.gemm_async`` in a branch: only the warpgroups that take it share the rows of D."""

import numpy as np
import pytest
import tvm
from tvm.backend.cuda.tile_primitive.tma_utils import mma_shared_layout
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

import warploom
from warploom.layout.fragment import wgmma_accumulator
from warploom.target import cuda_target

N, K = 64, 64


def branched(idle: int, active: int):
    """C = A B^T in warpgroups ``idle`` to ``idle + active - 1``; the others only load."""
    m, warpgroups = 64 * active, idle + active
    first_warp = 4 * idle if active > 1 else 0
    threads = 128 * warpgroups

    def store(matrix, tile):
        """A tile of one warpgroup is that warpgroup's, whatever scope multiplied into it."""
        (Tx.wg if active == 1 else Tx.cta).copy(matrix[:, :], tile[:, :])

    @T.prim_func
    def kernel(a: T.handle, b: T.handle, c: T.handle):
        A = T.match_buffer(a, (m, K), "float16")
        B = T.match_buffer(b, (N, K), "float16")
        C = T.match_buffer(c, (m, N), "float32")
        T.device_entry()
        T.cta_id([1])
        warpgroup = T.warpgroup_id([warpgroups])
        T.warp_id_in_wg([4])
        T.lane_id([32])
        thread = T.thread_id([threads])
        pool = T.SMEMPool()
        As = pool.alloc(
            (m, K), "float16", align=1024, layout=mma_shared_layout("float16", 3, (m, K))
        )
        Bs = pool.alloc(
            (N, K), "float16", align=1024, layout=mma_shared_layout("float16", 3, (N, K))
        )
        pool.commit()
        for i in T.serial((m * K + threads - 1) // threads):
            at: T.int32 = i * threads + thread
            if at < m * K:
                As[at // K, at % K] = A[at // K, at % K]
            if at < N * K:
                Bs[at // K, at % K] = B[at // K, at % K]
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()
        if warpgroup >= idle:
            acc = T.alloc_buffer(
                (m, N), "float32", scope="local",
                layout=wgmma_accumulator(m, N, active, first_warp),
            )  # fmt: skip
            Tx.cta.gemm_async(acc[:, :], As[:, :], Bs[:, :], wait=True)
            store(C, acc)

    return kernel


SPLITS = [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (2, 2)]


@pytest.fixture(scope="module")
def executable():
    functions = {f"f{i}{a}": branched(i, a) for i, a in SPLITS}
    named = {name: f.with_attr("global_symbol", name) for name, f in functions.items()}
    return tvm.compile(tvm.IRModule(named), cuda_target("h200"), tir_pipeline="tirx")


def test_each_compiles_without_problems(executable):
    report = warploom.compile_report(executable, cuda_target("h200"))
    assert len(report.kernels) == len(SPLITS) and not report.problems


@pytest.mark.gpu
@pytest.mark.parametrize(("idle", "active"), SPLITS)
def test_rows_are_shared_by_those_who_take_the_branch(executable, idle, active, rng):
    device = tvm.cuda(0)
    a, b = (rng.standard_normal((rows, K)).astype("float16") for rows in (64 * active, N))
    c = tvm.runtime.tensor(np.full((64 * active, N), np.nan, "float32"), device)
    executable[f"f{idle}{active}"](tvm.runtime.tensor(a, device), tvm.runtime.tensor(b, device), c)
    expected = a.astype("float64") @ b.astype("float64").T
    np.testing.assert_allclose(c.numpy(), expected, rtol=1e-4, atol=1e-4)
