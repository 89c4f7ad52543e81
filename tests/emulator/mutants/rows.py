"""Synchronisation bugs planted where rows are gathered and scattered by index."""

from __future__ import annotations

from tests.emulator.mutants.mutation import Edit, drop, replace
from tests.emulator.mutants.sm90 import ERROR, NAMED_BARRIER, PROXY_FENCE, RACE, Mutant

#: A kind of reports.
NO_FENCE = "missing proxy fence"
#: Lines of the kernel for Hopper: where the threads that load wait, and arrive when they have.
EMPTY_WAIT, ARRIVE = "A_s_B_s_phase_ptr[0]);", "async_mbarrier_arrive_noinc"
EXPECTS = "(uint)129"
#: Lines of the kernel for Blackwell: where the lanes that store wait, and their condition.
LEFT = "bulk_wait_group_read_0"
SCATTER = "tile::scatter4"
FIRST_LANE = "if ((((int)threadIdx.x) % 32) == 0) "


def _hopper(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("rows_by_index", name, edits, kind, words)


def _blackwell(name: str, edits: tuple[Edit, ...], kind: str, *words: str) -> Mutant:
    return Mutant("rows_by_index_sm100", name, edits, kind, words)


ROW_MUTANTS = (
    _hopper("a stage is gathered before it is free",
            (drop(EMPTY_WAIT),), RACE, "cp.async.cg", "writes shared", "nothing orders the two"),
    _hopper("a stage is full before all threads have copied their parts",
            (replace(EXPECTS, EXPECTS, "(uint)97", 0, 2), replace(EXPECTS, EXPECTS, "(uint)97")),
            "mbarrier misuse", "0 of 97 arrivals are pending", "noinc"),
    _hopper("threads that have copied do not say so",
            (drop(ARRIVE),), ERROR, "deadlock", "128 of 129 arrivals"),
    _hopper("a chunk is written before threads have stored the one before",
            (drop(NAMED_BARRIER, 0, 2),), RACE, "stmatrix", "writes shared", "ld.shared.v4"),
    _hopper("threads store a chunk before others have written it",
            (drop(NAMED_BARRIER, 1, 2),), RACE, "ld.shared.v4", "stmatrix"),
    _blackwell("a chunk is scattered that the async proxy may not see",
               (drop(PROXY_FENCE, 1, 2),), NO_FENCE, SCATTER),
    _blackwell("a chunk is scattered before all threads have written it",
               (drop(NAMED_BARRIER, 1, 2),), RACE, SCATTER),
    _blackwell("a chunk is written before the one before has left",
               (drop(LEFT, 0, 2),), RACE, "writes shared", SCATTER, "reads"),
    _blackwell("one lane waits, whose groups are not those of the others",
               (replace(LEFT, "tvm_builtin", FIRST_LANE + "tvm_builtin", 0, 2),),
               RACE, "writes shared", SCATTER, "reads"),
    _blackwell("threads write the next chunk without a word from those that wait",
               (drop(NAMED_BARRIER, 0, 2),), RACE, "writes shared", SCATTER, "reads"),
)  # fmt: skip
