"""Synchronisation bugs planted where CTAs share a tile: the sums that one leaves for another."""

from __future__ import annotations

from tests.emulator.mutants.mutation import Edit, drop, instead, replace
from tests.emulator.mutants.sm90 import ERROR, NAMED_BARRIER, RACE, Mutant

#: Lines of the generated source.
PUBLISH, POLL = "st_release_gpu_global_u64((&", "ld_acquire_gpu_global_u64(seen_ptr"
STILL_WAITING = "if (!((seen_ptr[0] != "
CLEARED = "st_relaxed_gpu_global_u64((&"
SUMS = ("ld.global.v4.f32", "st.global.v4.f32", "nothing orders the two")
#: The same accesses, as functions that order nothing.
RELAXED_STORE = (
    '[](uint64_t* p, uint64_t v) { asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" '
    ':: "l"(p), "l"(v) : "memory"); }((&'
)
RELAXED_LOAD = (
    '[](uint64_t& v, uint64_t* p) { asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" '
    ': "=l"(v) : "l"(p) : "memory"); }(seen_ptr'
)


def _shared(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("stream_k", name, edits, kind, words)


STREAM_K = (
    _shared("the flag is set without release",
            (replace(PUBLISH, "tvm_builtin_ptx_" + PUBLISH, RELAXED_STORE),), RACE, *SUMS),
    _shared("the flag is read without acquire",
            (replace(POLL, "tvm_builtin_ptx_" + POLL, RELAXED_LOAD),), RACE, *SUMS),
    _shared("the owner does not wait",
            (instead(STILL_WAITING, "break;"),), RACE, *SUMS),
    _shared("the flag is set before all warps have left their sums",
            (drop(NAMED_BARRIER, 3, 4),), RACE, *SUMS),
    _shared("only the thread that waits knows when the sums are there",
            (drop(NAMED_BARRIER, 0, 4),), RACE, *SUMS),
    _shared("flags are not cleared, so that the next launch finds them set",
            (drop(CLEARED),), RACE, *SUMS),
    _shared("any word but 0 is a flag that is set",
            (instead(STILL_WAITING, "if (seen_ptr[0] != 0) { break; }"),), RACE, *SUMS),
    _shared("the flag is never set",
            (drop(PUBLISH),), ERROR, "livelock"),
    _shared("the sum of another slot is waited for",
            (replace(POLL, "+ 1) * stride", "+ 0) * stride"),), ERROR, "livelock"),
)  # fmt: skip

# --- reduce_in_clusters: two CTAs of a cluster share three tiles ---

GIVEN_WAIT, TAKEN_WAIT = "if (!((complete_ptr[0] ==", "if (!((complete_ptr_1[0] =="
TO_TAKEN, TO_GIVEN = "mapa_u64(taken_at_ptr[0]", "mapa_u64(given_at_ptr[0]"
IN_SHARED = ("ld.shared::cluster.v4.f32", "st.shared.v4.f32", "nothing orders the two")


def _cluster(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("reduce_in_clusters", name, edits, kind, words)


IN_CLUSTERS = (
    _cluster("the owner does not wait for sums",
             (instead(GIVEN_WAIT, "break;"),), RACE, *IN_SHARED),
    _cluster("sums are left before those of the last tile are taken",
             (instead(TAKEN_WAIT, "break;"),), RACE, *IN_SHARED),
    _cluster("sums are given before all warps have left them",
             (drop(NAMED_BARRIER, 3, 4),), RACE, *IN_SHARED),
    _cluster("sums count as taken before all warps have read them",
             (drop(NAMED_BARRIER, 0, 4),), RACE, *IN_SHARED),
    _cluster("the owner tells itself that sums are taken",
             (replace(TO_TAKEN, "(uint)(0 - other)", "(uint)1"),), ERROR, "deadlock"),
    _cluster("sums are given to the CTA that has them",
             (replace(TO_GIVEN, "(uint)1", "(uint)0"),), ERROR, "deadlock"),
)  # fmt: skip

SHARED_TILE_MUTANTS = (*STREAM_K, *IN_CLUSTERS)
