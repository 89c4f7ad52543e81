"""Synchronisation bugs planted where CTAs draw their tiles from a counter in global memory.

That flags are set with release and read with acquire is tried where CTAs share tiles: here the
counter's own atomics hide the store before them from a checker that remembers the last write.
"""

from __future__ import annotations

from tests.emulator.mutants.mutation import Edit, drop, instead, replace
from tests.emulator.mutants.shared_tiles import CLEARED, PUBLISH, STILL_WAITING
from tests.emulator.mutants.sm90 import ERROR, RACE, Mutant

#: Lines of the generated source.
FREE = "(asking_answer_phase_ptr[0] ^ 1));"
THERE = ", {}_answer_phase_ptr[0]);"
ARRIVE = (
    "arrive_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)shared_memory_ptr)"
)
PASSED_ON = ARRIVE + "[5125]"
#: Where readers tell that they have read: the threads that load and draw, and computing warps.
READ = ARRIVE + "[5126]"
COUNTER = ("st.global.u64", "atom.relaxed.gpu.global.add.u64", "nothing orders the two")
ANSWER = ("st.shared.u32", "ld.shared.u32")


def _drawn(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("tile_counter", name, edits, kind, words)


DRAWN_TILE_MUTANTS = (
    _drawn("the next tile is passed on while the last one is being read",
           (drop(FREE),), ERROR, "phase lapped"),
    _drawn("a warp that computes is not counted among the readers",
           (replace("[5126]))), (uint)6", "(uint)6", "(uint)5"),), RACE, *ANSWER),
    _drawn("the thread that loads does not wait for its next tile",
           (drop(THERE.format("loading")),), ERROR, "uninitialised read", "ld.shared.u32"),
    _drawn("the warps that compute do not wait for their next tile",
           (drop(THERE.format("computing")),), ERROR, "uninitialised read", "ld.shared.u32"),
    _drawn("the thread that loads does not tell that it has read",
           (drop(READ, 0, 3),), ERROR, "deadlock", "1 of 6 arrivals"),
    _drawn("the tile is never passed on",
           (drop(PASSED_ON),), ERROR, "deadlock", "1 of 1 arrivals"),
    _drawn("CTAs draw before the counter is set to 0",
           (instead(STILL_WAITING, "break;"),), RACE, *COUNTER),
    _drawn("the flag stays set, so that the next launch finds it",
           (drop(CLEARED),), RACE, *COUNTER),
    _drawn("the flag is never set",
           (drop(PUBLISH),), ERROR, "livelock"),
)  # fmt: skip
