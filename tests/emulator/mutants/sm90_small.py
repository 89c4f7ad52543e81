"""Synchronisation bugs planted in small Hopper kernels: few rows, first tutorial, slice-K."""

from __future__ import annotations

from tests.emulator.mutants.mutation import Edit, asm, drop, instead, repeat, replace
from tests.emulator.mutants.sm90 import (
    EARLY_EXIT,
    ERROR,
    EXPECT,
    FENCE,
    INIT_FENCE,
    INIT_RACE,
    OVERWRITTEN,
    PROXY_FENCE,
    RACE,
    REGISTERS,
    TMA_LOAD,
    UNFINISHED,
    UNINITIALISED,
    WAIT_ALL,
    WAIT_ONE,
    WGMMA,
    Mutant,
)

CTA_SYNC = "tvm_builtin_cuda_cta_sync();"
ARRIVE = "mbarrier_arrive_arrive_shared_b64"
LOAD = "cp_async_bulk_tensor_g2s"
COMMIT = "wgmma_commit_group"

# --- swap_ab: a lowered tile program, the tile is transposed, two consumers, no cluster ---

#: Its lines: where the loading thread and the computing ones wait, and where these release a stage.
STAGE_EMPTY, STAGE_FULL = "A_s_B_s_phase_ptr[0]);", "A_s_B_s_phase_ptr_1[0]);"
FIRST_EMPTY = "shared_memory_ptr)[7427]))), (uint)"
SPEAKER = "if (((warp_id_in_cta % 4) == 0)"
CHUNK_LEFT, CHUNK_MET = "bulk_wait_group_read_0", "warpgroup_sync(("
CHUNK_FENCE = "fence_proxy_proxy_async_shared"
FIRST_ONLY = replace(SPEAKER, "if (", "if ((warp_id_in_cta < 8) && ", 0, 5)


def _swap(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("swap_ab", name, edits, kind, words)


SWAP = (
    _swap("a stage is released before its products are done",
          (drop(WAIT_ONE), instead("last_ptr[0] = A_s_B_s_stage_ptr_1[0];",
                                   "@ " + asm("wgmma.wait_group.sync.aligned 1"))),
          RACE, *OVERWRITTEN),
    _swap("the products are not waited for", (drop(WAIT_ONE),), RACE, *OVERWRITTEN),
    _swap("the accumulators of a tile are stored before its products are done",
          (drop(WAIT_ALL),), REGISTERS, WGMMA),
    _swap("no wgmma.fence between the stores of a tile and the products of the next",
          (drop("wgmma_fence_fence"),), REGISTERS, WGMMA, "no wgmma.fence"),
    _swap("the products are not committed to the group that is waited for",
          (drop(COMMIT),), RACE, *OVERWRITTEN),
    _swap("an empty barrier expects one consumer only",
          (replace(FIRST_EMPTY, "(uint)2", "(uint)1"),), RACE, *OVERWRITTEN),
    _swap("an empty barrier expects the producer, too",
          (replace(FIRST_EMPTY, "(uint)2", "(uint)3"),), ERROR, "deadlock", "1 of 3 arrivals"),
    _swap("all warps of a consumer release a stage",
          (replace(SPEAKER, "(warp_id_in_cta % 4) == 0", "true", 0, 5),), RACE, *OVERWRITTEN),
    _swap("the first consumer releases stages for both",
          (replace(ARRIVE, "(uint)1", "(uint)2", 0, 2), FIRST_ONLY), RACE, *OVERWRITTEN),
    _swap("the second consumer releases the last stage of a tile only",
          (FIRST_ONLY,), ERROR, "deadlock", "1 of 2 arrivals"),
    _swap("the consumers do not wait for the stage to be full",
          (drop(STAGE_FULL),), UNINITIALISED, *UNFINISHED),
    _swap("the producer does not wait for the stage to be empty",
          (drop(STAGE_EMPTY),), ERROR, "mbarrier.arrive", "0 of 1 arrivals are pending"),
    _swap("the bytes of A are not announced",
          (replace(EXPECT, "18432", "16384"),), RACE, *UNFINISHED, TMA_LOAD),
    _swap("bytes of a row more are announced",
          (replace(EXPECT, "18432", "18560"),),
          ERROR, "deadlock", "0 of 1 arrivals and 128 bytes pending"),
    _swap("B is loaded into the stage after the one that is announced",
          (replace(LOAD, "A_s_B_s_stage_ptr[0] * 8192",
                   "((A_s_B_s_stage_ptr[0] + 1) % 3) * 8192", 1, 2),),
          RACE, *UNFINISHED, TMA_LOAD),
    _swap("a chunk is written before the last one has left",
          (drop(CHUNK_LEFT, 0, 2),), RACE, "stmatrix"),
    _swap("threads do not know that the buffer is free",
          (drop(CHUNK_MET, 0, 2),), RACE, "stmatrix"),
    _swap("a chunk is stored before all threads have written it",
          (drop(CHUNK_MET, 1, 2),), RACE, "stmatrix"),
    _swap("no proxy fence before a chunk is stored", (drop(CHUNK_FENCE, 1, 2),), FENCE, "stmatrix"),
    _swap("the last chunks are not waited for",
          (drop(CHUNK_LEFT, 1, 2),), EARLY_EXIT, "cp.async.bulk"),
    _swap("barriers are initialised without a fence",
          (drop(PROXY_FENCE, 0, 2), drop(INIT_FENCE)), INIT_RACE, TMA_LOAD, "initialised by"),
    _swap("no thread waits for the barriers to be initialised",
          (drop(CTA_SYNC),), ERROR, "never initialised"),
)  # fmt: skip

# --- tutorials/14_first_kernel.py: one stage, one warpgroup, a barrier of the CTA in each round ---

AT_WAIT = "full.wait(0, k % 2)"


def _tutorial(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("tutorial", name, edits, kind, words)


TUTORIAL = (
    _tutorial("the products do not wait for the tiles",
              (drop("tvm_builtin_cuda_mbarrier_wait"),), RACE, *UNFINISHED, TMA_LOAD),
    _tutorial("only the first warp waits for the tiles",
              (instead("tvm_builtin_cuda_mbarrier_wait", "if (warp_id_in_cta == 0) @"),),
              RACE, *UNFINISHED, TMA_LOAD),
    _tutorial("the wait is always for the first phase",
              (replace("tvm_builtin_cuda_mbarrier_wait", "((k & 1) ^ 0)", "0"),),
              RACE, *UNFINISHED, TMA_LOAD),
    _tutorial("the wait is for the other phase",
              (replace("tvm_builtin_cuda_mbarrier_wait", "((k & 1) ^ 0)", "((k & 1) ^ 1)"),),
              ERROR, "deadlock", "waits for parity 1", AT_WAIT, "1 of 1 arrivals"),
    _tutorial("the bytes of A are not announced",
              (replace(EXPECT, "24576", "16384"),), RACE, *UNFINISHED, TMA_LOAD),
    _tutorial("the bytes are announced twice",
              (repeat(EXPECT),), ERROR, "mbarrier.arrive", "0 of 1 arrivals are pending"),
    _tutorial("the products of a round are not waited for",
              (drop(WAIT_ALL),), RACE, *OVERWRITTEN),
    _tutorial("the products of a round are not committed to the group that is waited for",
              (drop(COMMIT),), RACE, *OVERWRITTEN),
    _tutorial("no wgmma.fence before the products", (drop("wgmma_fence_fence"),),
              REGISTERS, WGMMA, "no wgmma.fence"),
    _tutorial("the barrier is initialised without a fence",
              (drop(PROXY_FENCE),), INIT_RACE, TMA_LOAD, "initialised by"),
    _tutorial("no thread waits for the barrier to be initialised",
              (drop(CTA_SYNC, 0, 2),), ERROR, "never initialised"),
)  # fmt: skip

# --- slice-K: a lowered tile program, two warpgroups compute every other step each ---

STAGE_FREE = "shared_memory_ptr)[7172]))), (uint)"
MY_STEP, SUMS_BARRIER = "_stage_ptr_1[0] % 2)", "bar_sync_count_sync((uint)15"
SUMS = ("st.shared", "ld.shared", "nothing orders the two")


def _slice_k(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("slice_k", name, edits, kind, words)


SLICE_K = (
    _slice_k("an empty barrier expects both warpgroups",
           (replace(STAGE_FREE, "(uint)1", "(uint)2"),), ERROR, "deadlock", "1 of 2 arrivals"),
    _slice_k("both warpgroups compute every step",
           (instead(MY_STEP, "if (true) {"),), RACE, *OVERWRITTEN),
    _slice_k("a stage is given back before its products are done",
           (drop(WAIT_ALL),), RACE, *OVERWRITTEN),
    _slice_k("sums are left before those of the last tile are added",
           (drop(SUMS_BARRIER, 0, 2),), RACE, *SUMS),
    _slice_k("sums are added before they are left",
           (drop(SUMS_BARRIER, 1, 2),), UNINITIALISED, "ld.shared", "reads shared"),
)  # fmt: skip

# --- ping-pong: a lowered tile program, two warpgroups compute every other tile each ---

WAIT_FOR_ORDER, PASS_ORDER = "bar_sync_count_sync(((uint)", "bar_arrive_arrive"


def _ping_pong(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("ping_pong", name, edits, kind, words)


PING_PONG = (
    _ping_pong("a warpgroup begins its tile before the other has issued its MMAs",
               (drop(WAIT_FOR_ORDER), drop(PASS_ORDER)), ERROR),
    _ping_pong("the other warpgroup is never let begin",
               (drop(PASS_ORDER),), ERROR, "deadlock"),
    _ping_pong("a warpgroup does not pass over the stages of the other",
               (drop("ptr_1[0] + 3) / 4)", 0, 2), drop("ptr_1[0] + 3) % 4)", 0, 2)), ERROR),
    _ping_pong("an empty barrier expects both warpgroups",
               (replace("shared_memory_ptr)[6148]))), (uint)", "(uint)1", "(uint)2"),),
               ERROR, "deadlock"),
)  # fmt: skip

# --- order_mmas: two warpgroups issue their MMAs in order ---


def _order(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("order_mmas", name, edits, kind, words)


ORDER = (
    _order("no warpgroup is let begin", (drop(PASS_ORDER, 0, 2),), ERROR, "deadlock"),
    _order("the next warpgroup is never let begin", (drop(PASS_ORDER, 1, 2),), ERROR, "deadlock"),
)  # fmt: skip

# --- staged_input: a residual comes through the buffers that results leave through ---

ARRIVED, LEFT = "cp_async_wait_group_async_wait_group_0", "bulk_wait_group_read_0"
MET = "warpgroup_sync(1)"


def _input(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("staged_input", name, edits, kind, words)


EPILOGUE_INPUT = (
    _input("what comes is not waited for", (drop(ARRIVED, 0, 2),), ERROR),
    _input("threads do not meet when it has come", (drop(MET, 1, 6),), RACE, "ldmatrix"),
    _input("it comes before the last tile has left", (drop(LEFT, 0, 3),), RACE),
    _input("it comes before the last chunk has left", (drop(LEFT, 1, 3),), RACE),
    _input("threads do not know that the buffer is free", (drop(MET, 3, 6),), RACE),
)  # fmt: skip

# --- transposed_chunks: two buffers of two warpgroups, three chunks of three tiles ---

READ_LEFT, CHUNK_STORED = "bulk_wait_group_read_", "bulk_commit_gro"


def _chunks(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("transposed_chunks", name, edits, kind, words)


CHUNK = (
    _chunks("a chunk is written before the last tile has left", (drop(READ_LEFT, 0, 4),), RACE),
    _chunks("a chunk is written before the one before the last has left",
            (drop(READ_LEFT, 2, 4),), RACE),
    _chunks("the stores of a chunk are no group of their own", (drop(CHUNK_STORED, 0, 3),), RACE),
    _chunks("threads do not know that the buffer is free", (drop(CHUNK_MET, 4, 6),), RACE),
    _chunks("a chunk is stored before all threads have written it", (drop(CHUNK_MET, 1, 6),), RACE),
    _chunks("no proxy fence before a chunk is stored", (drop(CHUNK_FENCE, 1, 4),), FENCE),
)  # fmt: skip

# --- two_copies: threads meet once a step around an operand that they compute ---

MEET = "bar_sync_count_sync((uint)15"


def _copies(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("two_copies", name, edits, kind, words)


COPIES = (
    _copies("a copy is written before all have read it in the tile before",
            (drop(MEET, 0, 2),), RACE, "stmatrix"),
    _copies("the operand is read before all have written it",
            (drop(MEET, 1, 2),), RACE, "stmatrix"),
    _copies("no proxy fence before the operand is read", (drop(PROXY_FENCE, 1, 3),), FENCE),
    _copies("both steps use one copy",
            tuple(replace("warploom_stmatrix((&", "(s_1 & 1)", "0", at, 8) for at in range(8)),
            ERROR),
)  # fmt: skip

SM90_SMALL_MUTANTS = (
    *SWAP, *TUTORIAL, *SLICE_K, *PING_PONG, *ORDER, *EPILOGUE_INPUT, *CHUNK, *COPIES,
)  # fmt: skip
