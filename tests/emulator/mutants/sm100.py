"""Synchronisation bugs planted in the Blackwell kernels: tensor memory, tcgen05, pairs of CTAs."""

from __future__ import annotations

from tests.emulator.mutants.mutation import Edit, asm, drop, instead, replace
from tests.emulator.mutants.sm90 import (
    AT_EMPTY_WAIT,
    AT_FULL_WAIT,
    CLUSTER_SYNC,
    EMPTY_WAIT,
    ERROR,
    EXPECT,
    FENCE,
    FULL_WAIT,
    INIT_RACE,
    PROXY_FENCE,
    RACE,
    TMA_LOAD,
    TMA_STORE,
    UNINITIALISED,
    Mutant,
)

#: Lines of the generated sources.
CTA_SYNC = "tvm_builtin_cuda_cta_sync();"
MMA = "tvm_builtin_ptx_tcgen05_mma"
ALLOC, DEALLOC = "tcgen05_alloc_alloc", "tcgen05_dealloc_dealloc"
LOAD = "tcgen05.ld.sync"
WAIT_LOAD = "tcgen05_wait_wait__ld"
BEFORE, AFTER = "tcgen05_fence_fence__before", "tcgen05_fence_fence__after"

TENSOR = "tensor memory"

# --- step 8 of the ladder: two accumulators, the epilogue overlaps with the next tile ---

COMMIT = "tvm_builtin_ptx_tcgen05_commit_commit_cta_group__1"
DRAINED_WAIT = "(slot_phase_ptr[0] ^ 0));"
DONE_WAIT = "(slot_phase_ptr_1[0] ^ 0));"
DRAINED = "mbarrier_arrive_arrive_shared_b64"
FIRST_DRAINED = "pool_buf_ptr)[5640]))), (uint)"


ARRIVE = ("tvm_builtin_ptx_mbarrier_arrive_arrive_shared_b64", 1)
#: The same in a source that has no plain arrival: one that announces no bytes.
EXPECT_NOTHING = ("tvm_builtin_ptx_mbarrier_arrive_expect_tx_arrive_expect_tx_shared_b64", 0)


def _arrive(barrier: str, how: tuple[str, int] = ARRIVE) -> str:
    """A thread's own arrival at a barrier, which waits for no MMA."""
    address = f"(&(((uint64_t*)pool_buf_ptr)[{barrier}]))"
    return f"{how[0]}(tvm_builtin_cuda_cvta_generic_to_shared({address}), {how[1]});"


def _persistent(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("blackwell_step_8", name, edits, kind, words)


PERSISTENT = (
    _persistent("a stage is released by an arrival instead of a commit",
                (instead(COMMIT, _arrive("ring_stage_ptr_1[0] + 5635"), 0, 2),),
                RACE, TMA_LOAD, "writes shared", "tcgen05.mma"),
    _persistent("the products of a stage are not committed",
                (drop(COMMIT, 0, 2),), ERROR, "deadlock", AT_EMPTY_WAIT, "1 of 1 arrivals"),
    _persistent("the products of a tile are not committed",
                (drop(COMMIT, 1, 2),), ERROR, "deadlock", "done.wait(", "1 of 1 arrivals"),
    _persistent("the commit of a tile goes to the barrier of the other accumulator",
                (replace(COMMIT, "slot_stage_ptr[0] + 5638", "(slot_stage_ptr[0] ^ 1) + 5638",
                         1, 2),),
                ERROR, "deadlock", "done.wait(", "1 of 1 arrivals"),
    _persistent("the tile is declared done by an arrival instead of a commit",
                (instead(COMMIT, _arrive("slot_stage_ptr[0] + 5638"), 1, 2),),
                TENSOR, LOAD, "reads lane", "tcgen05.mma"),
    _persistent("the products do not wait for the stage to be full",
                (drop(FULL_WAIT),), RACE, "tcgen05.mma", "reads shared", TMA_LOAD),
    _persistent("the producer does not wait for the stage to be empty",
                (drop(EMPTY_WAIT),), ERROR, "mbarrier.arrive", "0 of 1 arrivals are pending"),
    _persistent("too few bytes are announced",
                (replace(EXPECT, "12288", "8192"),),
                RACE, "tcgen05.mma", "reads shared", TMA_LOAD),
    _persistent("the accumulator is not waited for until it is drained",
                (drop(DRAINED_WAIT),), TENSOR, "tcgen05.mma", "writes lane", LOAD, "reads"),
    _persistent("the drained barrier expects the arrivals of three warps only",
                (replace(FIRST_DRAINED, "128", "96"),),
                TENSOR, "tcgen05.mma", "writes lane", LOAD, "reads"),
    _persistent("the drained barrier expects one arrival too many",
                (replace(FIRST_DRAINED, "128", "129"),),
                ERROR, "deadlock", "drained.wait(", "1 of 129 arrivals"),
    _persistent("the epilogue never tells that it is done",
                (drop(DRAINED),), ERROR, "deadlock", "drained.wait(", "128 of 128 arrivals"),
    _persistent("the epilogue tells that it is done before its loads are",
                (drop(WAIT_LOAD, 1, 2),
                 instead(DRAINED, "@ " + asm("tcgen05.wait::ld.sync.aligned"))),
                TENSOR, "tcgen05.mma", "writes lane", "tcgen05.wait::ld is missing"),
    _persistent("the epilogue uses what it loads without a wait",
                (drop(WAIT_LOAD, 0, 2),), TENSOR, "reads a register", LOAD,
                "tcgen05.wait::ld is missing between the two"),
    _persistent("no fence after the wait for the accumulator",
                (drop(AFTER, 2, 4),), TENSOR, LOAD, "fence::after_thread_sync is missing"),
    _persistent("no fence before the accumulator is given back",
                (drop(BEFORE, 1, 3),),
                TENSOR, "tcgen05.mma", "writes lane", "fence::before_thread_sync is missing"),
    _persistent("no fence between the waits and the products",
                (drop(AFTER, 1, 4),),
                TENSOR, "tcgen05.mma", "writes lane", "fence::after_thread_sync is missing"),
    _persistent("the epilogue does not wait for the products",
                (drop(DONE_WAIT),), UNINITIALISED, LOAD, "tcgen05.alloc"),
    _persistent("the first product adds to an accumulator that nothing has written",
                (replace("(0 < kt_1)", "(0 < kt_1)", "(bool)1"),),
                UNINITIALISED, "tcgen05.mma", "reads lane", "tcgen05.alloc"),
    _persistent("tensor memory is never given back",
                (drop(DEALLOC),), ERROR, "exits and holds columns 0 to 127", "tcgen05.dealloc"),
    _persistent("tensor memory is given back twice",
                (instead(DEALLOC, "@ @"),),
                ERROR, "tcgen05.dealloc", "no allocation begins", "holds no columns"),
    _persistent("tensor memory is given back while the epilogue loads from it",
                (drop(CTA_SYNC, 1, 2),), TENSOR, "tcgen05.mma", "tcgen05.dealloc"),
    _persistent("half of the columns are given back",
                (replace(DEALLOC, "(uint)128", "(uint)64"),),
                ERROR, "tcgen05.dealloc of 64 columns", "it allocated 128 columns"),
    _persistent("only the columns of one accumulator are allocated",
                (replace(ALLOC, "(uint)128", "(uint)64"),
                 replace(DEALLOC, "(uint)128", "(uint)64")),
                ERROR, "64 columns from column 64", "not all allocated", "tcgen05.mma"),
    _persistent("the address of tensor memory is read before it is there",
                (drop(CTA_SYNC, 0, 2),), UNINITIALISED, "ld.shared", "tensor_memory"),
    _persistent("the products start with the parity of the epilogue",
                (replace("slot_phase_ptr[0] = 1;", "1;", "0;"),),
                ERROR, "deadlock", "drained.wait(", "128 of 128 arrivals"),
    _persistent("the epilogue's phase never flips",
                (drop("slot_phase_ptr_1[0] = (slot_phase_ptr_1[0] ^ 1)"),),
                TENSOR, LOAD, "reads lane", "tcgen05.mma"),
    _persistent("no proxy fence before the TMA store",
                (drop(PROXY_FENCE, 1, 3),), FENCE, TMA_STORE, "st.shared"),
    _persistent("accumulators are loaded from behind the allocation",
                (replace("tcgen05_ld_ld_sync", "tensor_memory", "(tensor_memory + 256)", 0, 2),),
                ERROR, "32 columns from column 256", "not all allocated", "tcgen05.ld"),
)  # fmt: skip

# --- step 9 of the ladder: two CTAs compute a tile, the first one issues the MMAs ---

FIRST_ONLY = "if (tvm_builtin_cluster_ctaid_x() == 0) @"
BOTH_COMMIT = "tvm_builtin_ptx_tcgen05_commit_multicast"


def _pair(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("blackwell_step_9", name, edits, kind, words)


PAIR = (
    _pair("stages are released in the first CTA only",
          (replace(BOTH_COMMIT, "(ushort)3", "(ushort)1", 0, 2),),
          ERROR, "deadlock", AT_FULL_WAIT, "0 of 1 arrivals and 10240 bytes pending"),
    _pair("the second CTA is never told that the tile is done",
          (replace(BOTH_COMMIT, "(ushort)3", "(ushort)1", 1, 2),), ERROR, "deadlock", "done.wait("),
    _pair("only the bytes of one CTA are announced",
          (replace(EXPECT, "20480", "10240"),), RACE, "tcgen05.mma", "reads shared", TMA_LOAD),
    _pair("each CTA's loads signal its own barrier",
          (replace("mapa_u64(", "(uint)0", "(uint)tvm_builtin_cluster_ctaid_x()", 0, 2),),
          ERROR, "deadlock", AT_FULL_WAIT, "bytes pending"),
    _pair("the second CTA's barriers may not be initialised yet",
          (instead(CLUSTER_SYNC, "__syncthreads();", 0, 2),), INIT_RACE, "initialised by"),
    _pair("the second CTA does not wait for the stage to be empty",
          (instead(EMPTY_WAIT, FIRST_ONLY, 0, 2),),
          RACE, TMA_LOAD, "writes shared", "nothing orders the two"),
    _pair("only the first CTA allocates tensor memory",
          (instead(ALLOC, FIRST_ONLY),),
          ERROR, "deadlock", "waits for columns of tensor memory in both CTAs"),
    _pair("only the first CTA gives tensor memory back",
          (instead(DEALLOC, FIRST_ONLY),), ERROR, "exits and holds columns 0 to 127"),
)  # fmt: skip

# --- tutorials/17_block_scales_by_hand.py: scales travel through tcgen05.cp to tensor memory ---

COPY = "tvm_builtin_ptx_tcgen05_cp"
SCALE_LOAD = "async_bulk_tensor_3d"
SCALE_COPY, SCALE_TMA = "tcgen05.cp", "cp.async.bulk.tensor.3d"


def _scaled(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("block_scales_by_hand", name, edits, kind, words)


SCALED = (
    _scaled("the bytes of the scales are not announced",
            (replace(EXPECT, "33792", "32768"),), RACE, SCALE_COPY, "reads shared", SCALE_TMA),
    _scaled("the scales are loaded into the stage after the one that is announced",
            (replace(SCALE_LOAD, "ring_stage_ptr[0] * 512", "((ring_stage_ptr[0] + 1) % 3) * 512",
                     0, 2),),
            RACE, SCALE_COPY, "reads shared", SCALE_TMA),
    _scaled("the products do not wait for the stage to be full",
            (drop(FULL_WAIT),), UNINITIALISED, SCALE_COPY, "reads shared"),
    _scaled("the scales of B are not copied to tensor memory",
            (drop(COPY, 1, 2),), UNINITIALISED, "tcgen05.mma", "reads lane", "tcgen05.alloc"),
    _scaled("the scales of A go to the columns of another stage",
            (replace(COPY, "ring_stage_ptr_1[0] * 4", "((ring_stage_ptr_1[0] + 1) % 3) * 4",
                     0, 2),),
            UNINITIALISED, "tcgen05.mma", "reads lane", "tcgen05.alloc"),
    _scaled("a stage is released by an arrival instead of a commit",
            (instead(COMMIT, _arrive("ring_stage_ptr_1[0] + 14723", EXPECT_NOTHING), 0, 2),),
            RACE, SCALE_TMA, "writes shared", SCALE_COPY),
    _scaled("the tile is declared done by an arrival instead of a commit",
            (instead(COMMIT, _arrive("14726", EXPECT_NOTHING), 1, 2),),
            TENSOR, LOAD, "reads lane", "tcgen05.mma"),
    _scaled("the products of a tile are not committed",
            (drop(COMMIT, 1, 2),), ERROR, "deadlock", "done.wait(", "1 of 1 arrivals"),
    _scaled("no fence after the wait for the accumulator",
            (drop(AFTER, 2, 4),), TENSOR, LOAD, "fence::after_thread_sync is missing"),
    _scaled("tensor memory is given back while the epilogue loads from it",
            (drop(CTA_SYNC, 1, 2),), TENSOR, "tcgen05.dealloc"),
    _scaled("no columns are allocated for the scales",
            (replace(ALLOC, "(uint)256", "(uint)128"), replace(DEALLOC, "(uint)256", "(uint)128")),
            ERROR, "not all allocated", SCALE_COPY),
    _scaled("no proxy fence before the TMA store",
            (drop(PROXY_FENCE, 1, 3),), FENCE, TMA_STORE, "st.shared"),
)  # fmt: skip

SM100_MUTANTS = (*PERSISTENT, *PAIR, *SCALED)
