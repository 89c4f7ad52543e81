"""Synchronisation bugs planted in the Hopper GEMM and in kernels of generic loads and stores.

Each has the report that names its cause. Those of Blackwell are in ``sm100.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.emulator.mutants.mutation import Edit, asm, drop, instead, repeat, replace

#: What a deadlock and an instruction's own complaint count as; other kinds are the checker's.
ERROR = "error"
RACE, UNINITIALISED, FENCE = "data race", "uninitialised read", "missing proxy fence"
INIT_RACE, EARLY_EXIT = "mbarrier init race", "early exit"
REGISTERS = "wgmma register race"


@dataclass(frozen=True)
class Mutant:
    """One bug.

    Attributes
    ----------
    program : str
        Name of the correct kernel.
    name : str
        What the author did wrong.
    edits : tuple of Edit
        How the source of the kernel says so.
    kind : str
        Kind of the expected report.
    words : tuple of str
        What that report has to contain: instructions, lines of the program, numbers.
    """

    program: str
    name: str
    edits: tuple[Edit, ...]
    kind: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.program}: {self.name}"


# --- Step 10 of the ladder for Hopper: warp-specialised, clusters of two, two consumers ---

#: Lines of its generated source.
EMPTY_WAIT = "(ring_phase_ptr[0] ^ 0));"
FULL_WAIT = "(ring_phase_ptr_1[0] ^ 0));"
EXPECT = "mbarrier_arrive_expect_tx"
LOAD_A = "cluster_global_mbarrier__complete_tx__bytes("
LOAD_B = "mbarrier__complete_tx__bytes_multicast__cluster("
RELEASE = "mbarrier_arrive_nocount_arrive_shared__cluster"
WAIT_ONE, WAIT_ALL = "wait_group_wait_group_sync_aligned_1", "wait_group_wait_group_sync_aligned_0"
NAMED_BARRIER = "tvm_builtin_cuda_warpgroup_sync("
STORE_READ = "cp_async_bulk_wait_group_async_bulk_wait_group_read_1"
STORE_COMMIT = "cp_async_bulk_commit_group"
PROXY_FENCE = "fence_proxy_proxy_async"
INIT_FENCE = "fence_mbarrier_init"
CLUSTER_SYNC = "tvm_builtin_cuda_cluster_sync();"
FIRST_FULL, FIRST_EMPTY = "pool_buf_ptr)[6656]))), (uint)", "pool_buf_ptr)[6659]))), (uint)"

#: Lines of the program, as reports quote them.
AT_FULL_WAIT, AT_EMPTY_WAIT = "full.wait(ring.stage, ring.phase)", "empty.wait(ring.stage, ring."
AT_STORE = "Tx.copy_async("
WGMMA, TMA_LOAD, TMA_STORE = "wgmma.mma_async", "cp.async.bulk.tensor.2d.shared", "2d.global.shared"
#: The slot is filled again while it is being read; it is read while it is being filled.
OVERWRITTEN = (TMA_LOAD, "writes shared", WGMMA, "reads, and nothing orders the two")
UNFINISHED = (WGMMA, "reads shared")
STAGING = ("stmatrix", "writes shared", TMA_STORE, "reads")


def _hopper(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("hopper_step_10", name, edits, kind, words)


HOPPER = (
    _hopper("the wait for products allows one group too many",
            (instead(WAIT_ONE, asm("wgmma.wait_group.sync.aligned 2")),), RACE, *OVERWRITTEN),
    _hopper("a stage is released without any wait for its products",
            (drop(WAIT_ONE),), RACE, *OVERWRITTEN),
    _hopper("a stage is released before the wait for its products",
            (drop(WAIT_ONE), instead("last_ptr[0] = ring_stage_ptr_1[0];",
                                     "@ " + asm("wgmma.wait_group.sync.aligned 1"))),
            RACE, *OVERWRITTEN),
    _hopper("the accumulators of a tile are used before its products are done",
            (drop(WAIT_ALL),), REGISTERS, "cvt", "reads an accumulator", WGMMA, "wgmma.wait_group"),
    _hopper("no wgmma.fence between other uses of the accumulators and the products",
            (drop("wgmma_fence_fence"),), REGISTERS, WGMMA, "no wgmma.fence"),
    _hopper("products are not committed to the group that is waited for",
            (drop("wgmma_commit_group"),), RACE, *OVERWRITTEN),
    _hopper("the current stage is released instead of the last one",
            (replace(RELEASE, "last_ptr[0]", "ring_stage_ptr_1[0]", 0, 2),),
            ERROR, "deadlock", AT_EMPTY_WAIT, "4 of 4 arrivals"),
    _hopper("the producer starts with the parity of a consumer",
            (replace("ring_phase_ptr[0] = 1;", "1;", "0;"),),
            ERROR, "deadlock", "waits for parity 0", AT_EMPTY_WAIT, "4 of 4 arrivals"),
    _hopper("the consumer starts with the parity of a producer",
            (replace("ring_phase_ptr_1[0] = 0;", "0;", "1;"),), UNINITIALISED, *UNFINISHED),
    _hopper("the consumer always waits for the same parity",
            (replace(FULL_WAIT, "ring_phase_ptr_1[0] ^ 0", "0"),),
            ERROR, "deadlock", "waits for parity 0", AT_FULL_WAIT, "1 of 1 arrivals"),
    _hopper("the producer's phase never flips",
            (drop("ring_phase_ptr[0] = (ring_phase_ptr[0] ^ 1)"),),
            ERROR, "mbarrier.arrive", "0 of 1 arrivals are pending", "full.arrive("),
    _hopper("the consumer's phase never flips",
            (drop("ring_phase_ptr_1[0] = (ring_phase_ptr_1[0] ^ 1)"),),
            ERROR, "deadlock", AT_FULL_WAIT, "1 of 1 arrivals"),
    _hopper("the consumer does not wait for the stage to be full",
            (drop(FULL_WAIT),), UNINITIALISED, *UNFINISHED),
    _hopper("the producer does not wait for the stage to be empty",
            (drop(EMPTY_WAIT),), ERROR, "mbarrier.arrive", "0 of 1 arrivals are pending"),
    _hopper("too few bytes are announced",
            (replace(EXPECT, "12288", "8192"),), RACE, *UNFINISHED, TMA_LOAD),
    _hopper("too many bytes are announced",
            (replace(EXPECT, "12288", "12304"),),
            ERROR, "deadlock", "0 of 1 arrivals and 16 bytes pending", AT_FULL_WAIT),
    _hopper("no bytes are announced",
            (replace(EXPECT, "12288", "0"),), UNINITIALISED, *UNFINISHED),
    _hopper("no bytes are announced for one of six stages",
            (replace(EXPECT, "(uint)12288", "(uint)12288 * (kt != 3)"),), RACE, *UNFINISHED),
    _hopper("bytes are announced twice",
            (repeat(EXPECT),), ERROR, "mbarrier.arrive", "0 of 1 arrivals are pending"),
    _hopper("a full barrier expects one arrival too many",
            (replace(FIRST_FULL, "(uint)1", "(uint)2"),),
            ERROR, "deadlock", "1 of 2 arrivals and 0 bytes pending", AT_FULL_WAIT),
    _hopper("an empty barrier expects one arrival too few",
            (replace(FIRST_EMPTY, "(uint)4", "(uint)3"),), RACE, *OVERWRITTEN),
    _hopper("an empty barrier expects one arrival too many",
            (replace(FIRST_EMPTY, "(uint)4", "(uint)5"),),
            ERROR, "deadlock", "1 of 5 arrivals", AT_EMPTY_WAIT),
    _hopper("barriers are initialised without any fence",
            (drop(INIT_FENCE), drop(PROXY_FENCE, 0, 3)), INIT_RACE, TMA_LOAD, "initialised by"),
    _hopper("barriers are initialised without a fence before a relaxed cluster barrier",
            (drop(INIT_FENCE),
             instead(CLUSTER_SYNC, asm("barrier.cluster.arrive.relaxed.aligned")
                     + asm("barrier.cluster.wait.aligned"), 0, 2)),
            INIT_RACE, "initialised by"),
    _hopper("no thread waits for the barriers to be initialised",
            (drop(CLUSTER_SYNC, 0, 2),), ERROR, "never initialised"),
    _hopper("the other CTA's barriers may not be initialised yet",
            (instead(CLUSTER_SYNC, "__syncthreads();", 0, 2),),
            INIT_RACE, "multicast::cluster", "signals the mbarrier", "initialised by"),
    _hopper("no proxy fence before the TMA store",
            (drop(PROXY_FENCE, 1, 3),), FENCE, TMA_STORE, "stmatrix", AT_STORE),
    _hopper("a fence of the wrong kind before the TMA store",
            (instead(PROXY_FENCE, asm("fence.acq_rel.cta"), 1, 3),), FENCE, TMA_STORE, "stmatrix"),
    _hopper("the TMA store does not wait for the other warps",
            (drop(NAMED_BARRIER, 1, 4),), RACE, TMA_STORE, "reads shared", "stmatrix"),
    _hopper("the staging buffer is filled before the leader has waited for it",
            (drop(NAMED_BARRIER, 0, 4),), RACE, *STAGING),
    _hopper("both consumers use the same named barrier",
            tuple(replace(NAMED_BARRIER, "(warp_id_in_cta >> 2)", "1", i, 4) for i in range(4)),
            ERROR, "deadlock", "waits at barrier 1"),
    _hopper("a named barrier with half of the threads",
            (instead(NAMED_BARRIER, 'asm volatile("bar.sync %0, 64;" :: "r"(wg) : "memory");',
                     1, 4),),
            ERROR, "used with 128 threads and with 64 threads"),
    _hopper("the staging buffer is filled while the last store reads it",
            (drop(STORE_READ, 0, 2),), RACE, *STAGING),
    _hopper("the wait for the last stores allows one group too many",
            (instead(STORE_READ, asm("cp.async.bulk.wait_group.read 2"), 0, 2),
             instead(STORE_READ, asm("cp.async.bulk.wait_group.read 2"))), RACE, *STAGING),
    _hopper("a TMA store is not committed to the group that is waited for",
            (drop(STORE_COMMIT, 0, 2),), RACE, *STAGING),
    _hopper("the last stores are not waited for before the CTA exits",
            (drop("wait_group_async_bulk_wait_group_0"),), EARLY_EXIT, TMA_STORE, AT_STORE),
    _hopper("the multicast leaves out one CTA",
            (replace(LOAD_B, "(ushort)3", "(ushort)1"),), ERROR, "deadlock", AT_EMPTY_WAIT),
    _hopper("stages are released in one CTA only",
            (replace("mapa_u64(", "& 1", "& 0"),), RACE, *OVERWRITTEN),
    _hopper("a CTA exits while others still arrive at its barriers",
            (drop(CLUSTER_SYNC, 1, 2),), EARLY_EXIT, "mbarrier.arrive.shared::cluster"),
    _hopper("a CTA waits only for its own threads before it exits",
            (instead(CLUSTER_SYNC, "__syncthreads();", 1, 2),),
            EARLY_EXIT, "mbarrier.arrive.shared::cluster", "barrier.cluster"),
    _hopper("A is loaded into the stage after the one that is announced",
            (replace(LOAD_A, "ring_stage_ptr[0] * 4096", "((ring_stage_ptr[0] + 1) % 3) * 4096"),),
            RACE, *UNFINISHED, TMA_LOAD),
    _hopper("a stage is released twice",
            (repeat(RELEASE, 0, 2),), RACE, *OVERWRITTEN),
    _hopper("the last stage of a tile is never released",
            (drop(RELEASE, 1, 2),),
            ERROR, "deadlock", AT_EMPTY_WAIT, "4 of 4 arrivals"),
)  # fmt: skip


# --- Kernels of generic loads and stores, in CUDA C++ (cuda_programs.py) ---


def _generic(program: str, name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant(program, name, edits, kind, words)


SYNC = "__syncthreads();"
GENERIC = (
    _generic("exchange", "no barrier between store and load of shared memory",
             (drop(SYNC, 0, 3),), RACE, "st.shared", "ld.shared"),
    _generic("exchange", "no barrier between load and the next store of shared memory",
             (drop(SYNC, 1, 3),), RACE, "st.shared", "ld.shared"),
    _generic("exchange", "no barrier between store and load of two lanes of a warp",
             (drop("__syncwarp();"),), RACE, "ld.shared", "st.shared",
             "nothing orders the two lanes of one warp"),
    _generic("exchange", "lanes of a warp meet at a shuffle instead of a barrier",
             (instead("__syncwarp();", "value += 0 * __shfl_xor_sync(~0u, value, 1);"),),
             RACE, "ld.shared", "st.shared", "neither convergence nor shfl.sync orders memory"),
    _generic("exchange", "no barrier before the sums of other warps are read",
             (drop(SYNC, 2, 3),), RACE, "st.shared", "ld.shared"),
    _generic("exchange", "two warps write the same element",
             (replace("sums[warp] =", "warp", "warp / 2"),), RACE, "st.shared", "writes"),
    _generic("exchange", "part of the threads skip a barrier",
             (replace(SYNC, SYNC, "if (t < 128) __syncthreads();", 0, 3),),
             RACE, "st.shared", "ld.shared"),
    _generic("exchange", "a store beyond the end of an allocation",
             (replace("output[t] =", "[t]", "[t + 1]"),), ERROR, "st.global"),
    _generic("exchange", "a store beyond the end of shared memory",
             (replace("row[t] = value;", "[t]", "[t + 65536]"),), ERROR, "st.shared"),
    _generic("exchange", "an element that nothing has written is read",
             (replace("row[t] = input[t];", "row[t]", "if (t != 7) row[t]"),),
             UNINITIALISED, "ld.shared"),
    _generic("remote", "the other CTA's value is read before it is written",
             (drop("cluster_barrier();", 0, 2),), RACE, "ld.shared::cluster"),
    _generic("remote", "a CTA exits before the other one has read its value",
             (drop("cluster_barrier();", 1, 2),), EARLY_EXIT, "ld.shared::cluster"),
    _generic("copies", "cp.async is not waited for",
             (drop("cp.async.wait_group"),), RACE, "cp.async", "ld.shared"),
    _generic("copies", "the wait for cp.async allows one group too many",
             (replace("cp.async.wait_group", "wait_group 0", "wait_group 1"),),
             RACE, "cp.async", "ld.shared"),
    _generic("copies", "cp.async of other threads is not waited for",
             (drop(SYNC),), RACE, "cp.async", "ld.shared"),
)  # fmt: skip

MUTANTS = (*HOPPER, *GENERIC)
