"""Synchronisation bugs planted in lowered tile programs for Hopper: what only passes write."""

from __future__ import annotations

from tests.emulator.mutants.mutation import Edit, drop, instead, replace
from tests.emulator.mutants.sm90 import (
    ERROR,
    EXPECT,
    INIT_FENCE,
    INIT_RACE,
    LOAD_B,
    NAMED_BARRIER,
    OVERWRITTEN,
    RACE,
    REGISTERS,
    TMA_LOAD,
    UNINITIALISED,
    WAIT_ALL,
    Mutant,
)

# --- tile_program_2x2: rows of A come to two CTAs of a cluster, rows of B to two others ---

RANK = "(int)tvm_builtin_cluster_ctaid_x()"
PEERS = "A_s_B_s_peers_ptr[0] ="
CTA_SYNC = "__syncthreads();"
CLUSTER_ARRIVE = "barrier_cluster_arrive_cluster_arrive_relaxed_aligned();"
CLUSTER_WAIT = "barrier_cluster_wait_cluster_wait_acquire_aligned();"


def _cluster(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("tile_program_2x2", name, edits, kind, words)


CLUSTER = (
    _cluster("a stage is released in this CTA only, and its barriers expect no other",
             (instead(PEERS, f"A_s_B_s_peers_ptr[0] = 1u << {RANK};"),
              *(replace(f"[{at}]))), (uint)6", "(uint)6", "(uint)2")
                for at in (9987, 9988, 9989))),
             RACE, *OVERWRITTEN),
    _cluster("a stage is released in this CTA only",
             (instead(PEERS, f"A_s_B_s_peers_ptr[0] = 1u << {RANK};"),),
             ERROR, "deadlock", "4 of 6 arrivals and 0 bytes pending"),
    _cluster("the CTAs that load rows of A are not told",
             (instead(PEERS, f"A_s_B_s_peers_ptr[0] = 3u << ({RANK} / 2 * 2);"),),
             ERROR, "deadlock", "2 of 6 arrivals and 0 bytes pending"),
    _cluster("a stage is free when the CTAs of a column have read theirs",
             tuple(replace(f"[{at}]))), (uint)6", "(uint)6", "(uint)4")
                   for at in (9987, 9988, 9989)),
             RACE, *OVERWRITTEN),
    _cluster("rows of A go to the CTAs that share B",
             (replace(LOAD_B, "(uint)5 << ((uint)((" + RANK + ") % 2))",
                      f"(uint)3 << ({RANK} / 2 * 2)", 0, 2),),
             RACE, TMA_LOAD, "writes shared"),
    _cluster("rows of B do not go to the other CTA",
             (replace(LOAD_B, "(uint)3 << ((uint)(((" + RANK + ") / 2) * 2))",
                      f"1u << {RANK}", 1, 2),),
             ERROR, "deadlock", "3072 bytes pending"),
    _cluster("a CTA loads into another whose barriers may not be initialised yet",
             (drop(CLUSTER_ARRIVE, 0, 2), instead(CLUSTER_WAIT, CTA_SYNC, 0, 2)),
             INIT_RACE, "initialised by"),
    _cluster("CTAs meet whose barriers no fence has published",
             (drop(INIT_FENCE),), INIT_RACE, "initialised by"),
)  # fmt: skip

# --- tile_program_own_barriers: a ring that the author wrote, beside one of the passes ---

ARRIVE = "mbarrier_arrive_arrive_shared_b64"
FIRST_FULL, FIRST_EMPTY = "((t & 1) + 7172)", "((t & 1) + 7174)"


def _own(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("tile_program_own_barriers", name, edits, kind, words)


OWN = (
    _own("a thread arrives before the others have read the tile",
         (drop("tvm_builtin_cuda_warpgroup_sync(1);", 0, 3),), RACE, TMA_LOAD, "writes shared"),
    _own("the loading thread does not wait for the author's barrier",
         (drop("((t & 1) + 7174)])), (((t >> 1)"),), ERROR, "0 of 1 arrivals are pending"),
    _own("the computing threads do not wait for the author's load",
         (drop("((t_1 & 1) + 7172)])), ((t_1"),), UNINITIALISED, "ld.shared"),
    _own("too few bytes are announced of the author's load",
         (replace(EXPECT, "8192", "4096", 0, 2),),
         ERROR, "deadlock", "0 of 1 arrivals and -4096 bytes pending"),
    _own("every warp arrives for all",
         (replace("if (((warp_id_in_cta % 4) == 0) && ((((int)threadIdx.x) % 32) == 0)) {",
                  "((warp_id_in_cta % 4) == 0)", "true", 0, 6),),
         ERROR, "mbarrier phase lapped", "wl.mbarrier.wait(empty"),
    _own("nobody waits for the author's barriers to be initialised",
         (drop("tvm_builtin_cuda_cta_sync();", 0, 1),), ERROR, "never initialised"),
)  # fmt: skip

# --- sparse: threads load metadata from the stages that MMAs read ---


def _sparse(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("sparse", name, edits, kind, words)


SPARSE = (
    _sparse("a stage is released before all warps have loaded its metadata",
            (drop(NAMED_BARRIER, 0, 3),), RACE, TMA_LOAD, "writes shared", "ld.shared", "reads"),
    _sparse("threads do not wait for the metadata",
            (drop("mbarrier_wait((&", 1, 2),), UNINITIALISED, "ld.shared"),
    _sparse("a stage is released before the MMAs have read it",
            (drop(WAIT_ALL),), RACE, *OVERWRITTEN),
    _sparse("registers of the result are not fenced before the first MMA",
            (drop("wgmma_fence_fence"),), REGISTERS, "wgmma.mma_async.sp", "no wgmma.fence"),
)  # fmt: skip

SM90_PROGRAM_MUTANTS = (*CLUSTER, *OWN, *SPARSE)
