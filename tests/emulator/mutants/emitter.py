"""Synchronisation bugs planted in attention by hand and in the generated matmuls."""

from __future__ import annotations

from tests.emulator.mutants.mutation import Edit, drop, instead, replace
from tests.emulator.mutants.sm90 import (
    ERROR,
    EXPECT,
    INIT_RACE,
    OVERWRITTEN,
    PROXY_FENCE,
    RACE,
    REGISTERS,
    TMA_LOAD,
    UNFINISHED,
    WAIT_ALL,
    WAIT_ONE,
    WGMMA,
    Mutant,
)

FENCE, COMMIT = "wgmma_fence_fence", "wgmma_commit_group_commit_group"
MBARRIER_WAIT = "tvm_builtin_cuda_mbarrier_wait("
NO_FENCE = ("has used since the last wgmma.fence",)
CTA_SYNC = "tvm_builtin_cuda_cta_sync();"

# --- tutorials/19_attention_by_hand.py: scores of two atoms, then two of the weights, fenced ---


def _attention(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("attention_by_hand", name, edits, kind, words)


ATTENTION = (
    _attention("no fence before the scores are overwritten",
               (drop(FENCE, 0, 3),), REGISTERS, WGMMA, "no wgmma.fence"),
    _attention("no fence between the first weights and the atom that reads them",
               (drop(FENCE, 1, 3),), REGISTERS, WGMMA, "cvt.rn", *NO_FENCE),
    _attention("no fence between the next weights and the atom that reads them",
               (drop(FENCE, 2, 3),), REGISTERS, WGMMA, "cvt.rn", *NO_FENCE),
    _attention("the softmax does not wait for the scores",
               (drop(WAIT_ALL, 0, 2),), REGISTERS, WGMMA),
    _attention("the scores are not committed to the group that is waited for",
               (drop(COMMIT, 0, 2),), REGISTERS, WGMMA),
    _attention("the output is rescaled, and its stage loaded, under the product",
               (drop(WAIT_ALL, 1, 2),), REGISTERS, WGMMA),
    _attention("the weights' product is in no group",
               (drop(COMMIT, 1, 2),), REGISTERS, WGMMA),
    _attention("the products do not wait for K and V",
               (drop(MBARRIER_WAIT, 1, 2),), RACE, *UNFINISHED, TMA_LOAD),
    _attention("the products do not wait for Q",
               (drop(MBARRIER_WAIT, 0, 2),), RACE, *UNFINISHED, TMA_LOAD),
    _attention("nobody waits for the barriers to be initialised",
               (drop(CTA_SYNC),), ERROR, "never initialised"),
    _attention("the bytes of V are not announced",
               (replace(EXPECT, "4096", "2048", 1, 4),), RACE, *UNFINISHED, TMA_LOAD),
    _attention("the barriers are initialised without a fence",
               (drop(PROXY_FENCE),), INIT_RACE, TMA_LOAD, "initialised by"),
    _attention("the phase never changes",
               (instead("ring_phase_ptr[0] = (ring_phase_ptr[0] ^ 1);", ";"),),
               ERROR, "deadlock", "waits for parity 0", "1 of 1 arrivals"),
)  # fmt: skip


# --- matmul_warp_specialised: two consumers, two stages; matmul_one_stage: one ---

FULL_WAIT, EMPTY_WAIT = "_1[0] + 2688)])), (ring_phase_ptr_1", "[0] + 2690)])), (ring_phase_ptr[0]"
RELEASE, RELEASED = "arrive_arrive_shared_b64", "if (leader_ptr[0] && (0 < kt_1)) {"
EMPTY_INIT = "[2690]))), (uint)2"


def _roles(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("matmul_warp_specialised", name, edits, kind, words)


ROLES = (
    _roles("the consumers do not wait for the copies",
           (drop(FULL_WAIT),), RACE, *UNFINISHED, TMA_LOAD),
    _roles("the producer does not wait for the consumers",
           (drop(EMPTY_WAIT),), ERROR, "0 of 1 arrivals are pending"),
    _roles("a stage is released before its products are done",
           (drop(WAIT_ONE),), RACE, *OVERWRITTEN),
    _roles("the stage that is being multiplied is released, and not the one before",
           (replace(RELEASE, "last_ptr", "ring_stage_ptr_1"),
            replace(RELEASED, "(0 < kt_1)", "true")), RACE, *OVERWRITTEN),
    _roles("a stage is free when one of two consumers has multiplied it",
           (replace(EMPTY_INIT, "(uint)2", "(uint)1"),
            replace("[2691]))), (uint)2", "(uint)2", "(uint)1")), RACE, *OVERWRITTEN),
    _roles("only one consumer releases",
           (replace(RELEASED, "leader_ptr[0] &&", "leader_ptr[0] && (warp_id_in_cta == 4) &&"),),
           ERROR, "deadlock", "1 of 2 arrivals"),
    _roles("every warp releases",
           (replace(RELEASED, "leader_ptr[0]", "((int)threadIdx.x % 32 == 0)"),),
           ERROR, "mbarrier"),
    _roles("the products are in no group",
           (drop(COMMIT),), RACE, *OVERWRITTEN),
    _roles("the sums are stored before the last products are done",
           (drop(WAIT_ALL),), REGISTERS, WGMMA),
    _roles("no fence before the products",
           (drop(FENCE),), REGISTERS, WGMMA, "no wgmma.fence"),
    _roles("the bytes of B are not announced",
           (replace(EXPECT, "10752", "8192"),), ERROR, "deadlock", "-2560 bytes pending"),
    _roles("the producer starts with the wrong parity",
           (replace("ring_phase_ptr[0] = 1;", "= 1", "= 0"),),
           ERROR, "deadlock", "waits for parity 0"),
    _roles("the parity of the consumers never changes",
           (drop("ring_phase_ptr_1[0] = (ring_phase_ptr_1[0] ^ 1);"),),
           RACE, *UNFINISHED, TMA_LOAD),
    _roles("the barriers are initialised without a fence",
           (drop(PROXY_FENCE),), INIT_RACE, TMA_LOAD, "initialised by"),
    _roles("nobody waits for the barriers to be initialised",
           (drop(CTA_SYNC),), ERROR, "never initialised"),
    Mutant("matmul_one_stage", "the only stage is released before its products are done",
           (drop(WAIT_ALL, 0, 2),), RACE, OVERWRITTEN),
)  # fmt: skip

# --- matmul_multistage: two warpgroups multiply, one thread of them loads, two stages ---


def _simple(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("matmul_multistage", name, edits, kind, words)


SIMPLE = (
    _simple("the products do not wait for the copies",
            (drop(MBARRIER_WAIT),), RACE, *UNFINISHED, TMA_LOAD),
    _simple("a stage is loaded before the products of this warpgroup are done",
            (drop(WAIT_ONE),), RACE, *OVERWRITTEN),
    _simple("a stage is loaded before the other warpgroup has met this one",
            (drop(CTA_SYNC, 1, 2),), RACE, *OVERWRITTEN),
    _simple("the stage that is being multiplied is loaded",
            (replace("mbarrier__complete_tx__bytes(", "last_ptr", "ring_stage_ptr", 2, 4),),
            RACE, *OVERWRITTEN),
    _simple("the products are in no group",
            (drop(COMMIT),), RACE, *OVERWRITTEN),
    _simple("the sums are stored before the last products are done",
            (drop(WAIT_ALL),), REGISTERS, WGMMA),
    _simple("no fence before the products",
            (drop(FENCE),), REGISTERS, WGMMA, "no wgmma.fence"),
    _simple("the bytes are announced twice of a stage that is loaded again",
            (replace(EXPECT, "10752", "21504", 1, 2),), ERROR, "deadlock", "bytes pending"),
    _simple("the barriers are initialised without a fence",
            (drop(PROXY_FENCE),), INIT_RACE, TMA_LOAD, "initialised by"),
)  # fmt: skip

EMITTER_MUTANTS = (*ATTENTION, *ROLES, *SIMPLE)
