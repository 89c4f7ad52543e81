"""Synchronisation bugs planted in lowered tile programs for Blackwell: what only passes write."""

from __future__ import annotations

from tests.emulator.mutants.mutation import Edit, drop, instead, replace
from tests.emulator.mutants.sm90 import (
    CLUSTER_SYNC,
    EARLY_EXIT,
    ERROR,
    EXPECT,
    FENCE,
    INIT_RACE,
    PROXY_FENCE,
    RACE,
    RELEASE,
    TMA_LOAD,
    TMA_STORE,
    UNINITIALISED,
    Mutant,
)
from tests.emulator.mutants.sm100 import (
    BEFORE,
    BOTH_COMMIT,
    COMMIT,
    COPY,
    FIRST_ONLY,
    LOAD,
    SCALE_COPY,
    TENSOR,
)

#: Lines of the generated source.
RANK = "(uint)tvm_builtin_cluster_ctaid_x()"
STAGE_FREE = "mbarrier_wait((&(((uint64_t*)shared_memory_ptr)[(A_s_B_s_stage_ptr[0] +"
CTA_SYNC = "__syncthreads();"

# --- tile_program_pair: the first of two CTAs multiplies for both, tiles go to and fro ---


def _pair(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("tile_program_pair", name, edits, kind, words)


PAIR = (
    _pair("stages are released in the first CTA only",
          (replace(BOTH_COMMIT, "(ushort)3", "(ushort)1", 0, 2),),
          ERROR, "deadlock", "0 of 1 arrivals and 18432 bytes pending"),
    _pair("the threads of the second CTA are never given the accumulator",
          (replace(BOTH_COMMIT, "(ushort)3", "(ushort)1", 1, 2),),
          ERROR, "deadlock", "4 of 8 arrivals", "tcgen05.commit"),
    _pair("only the loads of one CTA are announced",
          (replace(EXPECT, "36864", "18432"),), RACE, "tcgen05.mma", "reads shared", TMA_LOAD),
    _pair("each CTA's loads count at its own barrier",
          (replace("mapa_u64(A_s_B_s_full", "(uint)0", RANK),),
          ERROR, "deadlock", "18432 bytes pending"),
    _pair("each CTA's threads give the accumulator back in their own CTA",
          (replace("mapa_u64(acc_free", "(uint)0", RANK),),
          ERROR, "deadlock", "4 of 8 arrivals"),
    _pair("the accumulator is free when the threads of the first CTA have read it",
          (replace("[7944]))), (uint)8", "(uint)8", "(uint)4"),
           replace("[7945]))), (uint)8", "(uint)8", "(uint)4"),
           instead(RELEASE, FIRST_ONLY)),
          TENSOR, "tcgen05.mma", "writes lane", LOAD, "reads"),
    _pair("the second CTA does not wait for a free stage",
          (instead(STAGE_FREE, FIRST_ONLY, 0, 2),),
          RACE, TMA_LOAD, "writes shared", "nothing orders the two"),
    _pair("the second CTA's barriers may not be initialised yet",
          (instead(CLUSTER_SYNC, CTA_SYNC, 0, 2),), INIT_RACE, "initialised by"),
    _pair("a CTA leaves while threads of the other still arrive in it",
          (instead(CLUSTER_SYNC, CTA_SYNC, 1, 2),), EARLY_EXIT, "mbarrier.arrive.shared::cluster"),
)  # fmt: skip

# --- tile_program_pairs: two pairs, each multiplies; rows of A come to both ---


def _pairs(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("tile_program_pairs", name, edits, kind, words)


OWN_PAIR = "((uint)3 << ((uint)tvm_builtin_cluster_ctaid_x() / 2 * 2))"
PAIRS = (
    _pairs("a stage is released in the pair's own CTAs only",
           (replace(BOTH_COMMIT, "(ushort)15", f"(ushort){OWN_PAIR}", 0, 2),),
           ERROR, "deadlock", "1 of 2 arrivals"),
    _pairs("a stage is free when one pair has read it",
           tuple(replace(f"[{at}]))), (uint)2", "(uint)2", "(uint)1")
                 for at in (7939, 7940, 7941)),
           RACE, TMA_LOAD, "writes shared", "tcgen05.mma"),
    _pairs("the accumulator of every pair is given to the threads of the first",
           (replace(BOTH_COMMIT, "(uint)3 <<", "(uint)3 << 0 *", 1, 2),),
           ERROR, "deadlock"),
    _pairs("the loads of all pairs count at the first CTA of the cluster",
           (replace("mapa_u64(A_s_B_s_full", "/ 2) * 2", "/ 2) * 0"),),
           ERROR, "the mbarrier in that of rank 0; they must be in the same CTA or pair"),
)  # fmt: skip

# --- tile_program_multicast: each CTA multiplies, and loads half of B for both ---


def _multicast(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("tile_program_multicast", name, edits, kind, words)


MULTICAST = (
    _multicast("a stage is released in the first CTA only",
               (replace(BOTH_COMMIT, "(ushort)3", "(ushort)1"),),
               ERROR, "deadlock", "2 of 2 arrivals"),
    _multicast("a stage is free when one CTA has read its copy",
               tuple(replace(f"[{at}]))), (uint)2", "(uint)2", "(uint)1")
                     for at in (9987, 9988, 9989)),
               RACE, TMA_LOAD, "writes shared", "tcgen05.mma"),
    _multicast("a CTA loads into another whose barriers may not be initialised yet",
               (instead(CLUSTER_SYNC, CTA_SYNC, 0, 2),), INIT_RACE, "initialised by"),
)  # fmt: skip

# --- tile_program_clc: clusters take over tiles of those that have not started ---

AWAITED = "(asking_answer_stage_ptr[0] + 7953)]))), (uint)16"
ANSWER_FREE = "(asking_answer_phase_ptr[0] ^ 1));"
ANSWER_THERE = "mbarrier_wait((&(((uint64_t*)shared_memory_ptr)[(loading_answer_stage_ptr"
TRY_CANCEL, READ_ANSWER = "clusterlaunchcontrol.try_cancel", "ld.shared.b128"


def _clc(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("tile_program_clc", name, edits, kind, words)


def _readers(count: int) -> tuple[Edit, ...]:
    """The readers that the barriers of the answers count."""
    places = (f"[{number}]))), (uint)13" for number in (7956, 7957, 7958))
    return tuple(replace(place, "(uint)13", f"(uint){count}") for place in places)


LAUNCH_CONTROL = (
    _clc("the next tile is asked for while the last answer is being read",
         (drop(ANSWER_FREE),), RACE, TRY_CANCEL, "writes shared", READ_ANSWER, "reads"),
    _clc("the warps of the second CTA are not counted among the readers",
         _readers(9),
         RACE, TRY_CANCEL, "writes shared", READ_ANSWER, "reads"),
    _clc("the thread that asks is not counted among the readers",
         _readers(12),
         RACE, TRY_CANCEL, "writes shared", READ_ANSWER, "reads"),
    _clc("a role does not tell that it has read the answer",
         (drop("answers_empty_remote_1[multiplying_answer_stage_ptr[0]]"),),
         ERROR, "deadlock", "1 of 13 arrivals"),
    _clc("the answer is read before it is there",
         (drop(ANSWER_THERE),),
         RACE, READ_ANSWER, "reads shared", TRY_CANCEL, "writes"),
    _clc("only the first CTA awaits the bytes of the answer",
         (instead(AWAITED, FIRST_ONLY),), ERROR, "deadlock", "1 of 1 arrivals"),
    _clc("half of the answer is awaited",
         (replace(AWAITED, "(uint)16", "(uint)8"),), ERROR, "deadlock"),
    _clc("a role stays with the tile of its own cluster",
         (replace("computing_tile_ptr[0] = ((first_cta", "((int)first_cta_ptr_3[0]) / 2",
                  "((int)blockIdx.x) / 2"),),
         RACE, TMA_STORE, "writes global"),
)  # fmt: skip

# --- tile_program_dequantised: threads write operand B, in two places ---

PLACE_FREE = "mbarrier_wait((&(((uint64_t*)shared_memory_ptr)[(W_f_of_threads_stage_ptr[0] + 11786)"
PLACE_FULL = "mbarrier_wait((&(((uint64_t*)shared_memory_ptr)[(W_f_of_tensor_core_stage_ptr[0] + "
STORE = "st.shared"


def _dequantised(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("tile_program_dequantised", name, edits, kind, words)


PLACES = (
    _dequantised("threads do not wait until the product before the last has read its place",
                 (drop(PLACE_FREE),), RACE, STORE, "writes shared", "tcgen05.mma", "reads"),
    _dequantised("the release of one place is taken for that of the other",
                 (replace(PLACE_FREE, "W_f_of_threads_stage_ptr[0] + 11786",
                          "(W_f_of_threads_stage_ptr[0] ^ 1) + 11786"),),
                 ERROR, "deadlock", "1 of 1 arrivals"),
    _dequantised("the product does not wait for its operand",
                 (drop(PLACE_FULL),), RACE, "tcgen05.mma", "reads shared", STORE, "writes"),
    _dequantised("no proxy fence before the operand is given to the tensor core",
                 (drop(PROXY_FENCE, 1, 6),), FENCE, "tcgen05.mma", STORE),
    _dequantised("the operand is given away when three of four warps have written it",
                 (replace("[11788]))), (uint)4", "(uint)4", "(uint)3"),
                  replace("[11789]))), (uint)4", "(uint)4", "(uint)3")),
                 RACE, "tcgen05.mma", "reads shared", STORE, "writes"),
)  # fmt: skip

# --- tile_program_tensor_operand: threads write operand A to tensor memory ---

OPERAND_FREE = "(W_f_of_threads_stage_ptr[0] + 2822)"
OPERAND_FULL = "(W_f_of_tensor_core_stage_ptr[0] + 2824)"
WAIT_STORE = "tcgen05_wait_wait__st"
TENSOR_STORE = "tcgen05.st.sync"


def _operand(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("tile_program_tensor_operand", name, edits, kind, words)


OPERAND = (
    _operand("threads do not wait until the product before the last has read its place",
             (drop(OPERAND_FREE, 0, 2),),
             TENSOR, TENSOR_STORE, "writes lane", "tcgen05.mma", "reads"),
    _operand("the product does not wait for its operand",
             (drop(OPERAND_FULL),), UNINITIALISED, "tcgen05.mma", "reads lane"),
    _operand("the operand is given away before its stores are complete",
             (drop(WAIT_STORE),), TENSOR, "tcgen05.mma", "tcgen05.wait::st is missing"),
    _operand("no fence before the operand is given away",
             (drop(BEFORE, 2, 5),),
             TENSOR, "tcgen05.mma", "fence::before_thread_sync is missing"),
    _operand("the operand has one place where threads take it to have two",
             (replace("W_f_of_tensor_core_stage_ptr[0] == 2", "2", "1"),),
             ERROR, "deadlock"),
)  # fmt: skip

# --- tile_program_scales: scales come by TMA, and go on to tensor memory before the MMAs ---

SCALES_FULL = "(A_s_B_s_SA_s_SB_s_tensor_core_stage_ptr[0] + 13824)"
SCALE_STAGE = "A_s_B_s_SA_s_SB_s_tensor_core_stage_ptr[0] * 512"
SCALE_TMA = "cp.async.bulk.tensor"
SCALES_OF_A = (
    f"{COPY}_cp_cta_group__1_32x128b_warpx4(tensor_memory + 128, 70403106013184ULL + "
    f"(tvm_builtin_cuda_cvta_generic_to_shared(&shared_memory_ptr[{SCALE_STAGE} + 73728]) >> 4));"
)


def _arrive(barrier: str) -> str:
    """A thread's own arrival at a barrier, which waits for no copy and no MMA."""
    address = f"(&(((uint64_t*)shared_memory_ptr)[{barrier}]))"
    shared = f"tvm_builtin_cuda_cvta_generic_to_shared({address})"
    return f"tvm_builtin_ptx_mbarrier_arrive_expect_tx_arrive_expect_tx_shared_b64({shared}, 0);"


def _scales(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("tile_program_scales", name, edits, kind, words)


SCALES = (
    _scales("the scales of B are not copied to tensor memory",
            (drop(COPY, 1, 2),), UNINITIALISED, "tcgen05.mma", "reads lane", "tcgen05.alloc"),
    _scales("the scales of A are copied behind the MMAs that read them",
            (drop(COPY, 0, 2), replace(COMMIT, "tvm", f"{SCALES_OF_A} tvm", 0, 2)),
            UNINITIALISED, "tcgen05.mma", "reads lane", "tcgen05.alloc"),
    _scales("the scales of B go to the columns behind those that MMAs read",
            (replace(COPY, "(uint)4)", "(uint)8)", 1, 2),),
            UNINITIALISED, "tcgen05.mma", "reads lane", "tcgen05.alloc"),
    _scales("the bytes of the scales are not announced",
            (replace(EXPECT, "25600", "24576"),), RACE, SCALE_COPY, "reads shared", SCALE_TMA),
    _scales("the scales of the stage after this one are copied",
            (replace(COPY, SCALE_STAGE, f"({SCALE_STAGE} + 512) % 1536", 0, 2),),
            RACE, SCALE_COPY, "reads shared", SCALE_TMA),
    _scales("the copies do not wait for the stage to be full",
            (drop(SCALES_FULL),), UNINITIALISED, SCALE_COPY, "reads shared"),
    _scales("a stage is released by an arrival instead of a commit",
            (instead(COMMIT, _arrive("A_s_B_s_SA_s_SB_s_tensor_core_stage_ptr[0] + 13827"), 0, 2),),
            RACE, SCALE_TMA, "writes shared", SCALE_COPY),
)  # fmt: skip

# --- tile_program_scales_in_rows: threads bring scales into blocks ---

BLOCKS_READ = "SA_s_blocks_of_threads_phase_ptr[0]);"
BLOCKS_THERE = "SB_s_blocks_of_tensor_core_phase_ptr[0]);"


def _in_rows(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("tile_program_scales_in_rows", name, edits, kind, words)


IN_ROWS = (
    _in_rows("the copies do not wait for the threads that write the blocks",
             (drop(BLOCKS_THERE),), RACE, SCALE_COPY, "reads shared", STORE),
    _in_rows("threads do not wait until the copies have read the blocks",
             (drop(BLOCKS_READ),), RACE, STORE, "writes shared", SCALE_COPY, "reads"),
    _in_rows("no proxy fence before the blocks are given to the tensor core",
             (drop(PROXY_FENCE, 4, 6),), FENCE, SCALE_COPY, STORE),
    _in_rows("the blocks are given back by an arrival instead of a commit",
             (instead(COMMIT, _arrive("13738"), 1, 4),),
             RACE, STORE, "writes shared", SCALE_COPY, "reads"),
)  # fmt: skip

# --- tile_program_sparse, tile_program_sparse_pair: threads bring metadata into words ---

WORDS_READ = "E_s_words_of_threads_phase_ptr[0]);"
WORDS_THERE = "E_s_words_of_tensor_core_phase_ptr[0]);"
METADATA_FULL = "E_s_threads_stage_ptr[0] + 11014)"


def _sparse(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("tile_program_sparse", name, edits, kind, words)


def _sparse_pair(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("tile_program_sparse_pair", name, edits, kind, words)


SPARSE = (
    _sparse("the metadata is not copied to tensor memory",
            (drop(COPY),), UNINITIALISED, "tcgen05.mma", "reads lane", "tcgen05.alloc"),
    _sparse("the metadata goes to the columns behind those that MMAs read",
            (replace(COPY, "(uint)64)", "(uint)68)"),),
            UNINITIALISED, "tcgen05.mma", "reads lane", "tcgen05.alloc"),
    _sparse("the copies do not wait for the threads that write the words",
            (drop(WORDS_THERE),), RACE, SCALE_COPY, "reads shared", STORE),
    _sparse("threads do not wait until the copies have read the words",
            (drop(WORDS_READ),), RACE, STORE, "writes shared", SCALE_COPY, "reads"),
    _sparse("no proxy fence before the words are given to the tensor core",
            (drop(PROXY_FENCE, 1, 3),), FENCE, SCALE_COPY, STORE),
    _sparse("the words are given back by an arrival instead of a commit",
            (instead(COMMIT, _arrive("E_s_words_of_tensor_core_stage_ptr[0] + 12554"), 0, 3),),
            RACE, STORE, "writes shared", SCALE_COPY, "reads"),
    _sparse_pair("threads do not wait for the metadata",
                 (drop(METADATA_FULL),), UNINITIALISED, "ld.shared", "reads shared"),
    _sparse_pair("the copies do not wait for the threads of both CTAs",
                 (drop(WORDS_THERE),), RACE, SCALE_COPY, "reads shared", STORE),
)  # fmt: skip

SM100_PROGRAM_MUTANTS = (
    *PAIR, *PAIRS, *MULTICAST, *LAUNCH_CONTROL, *PLACES, *OPERAND, *SCALES, *IN_ROWS, *SPARSE,
)  # fmt: skip
