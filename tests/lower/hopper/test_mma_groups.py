"""Waits for groups of MMAs: the latest place, the fewest groups, and what they give back."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import settings as limit
from hypothesis import strategies as st
from tvm import tirx
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import Buffer, ForKind

from tests.shared.lowered_programs import check
from tests.shared.machine_code import listing_of, needs_disassembler
from tests.shared.tile_programs.case import Case, poisoned, random_values, wide
from warploom import language as wl
from warploom.layout.fragment import wgmma_accumulator
from warploom.lower.hopper.mma_groups import Event, Group, Guard, InFlight, Meet, Release, Wait
from warploom.programs import attention
from warploom.tile.effects import Effects
from warploom.tile.statement import view

TILES = {
    name: tirx.decl_buffer(
        (64, 8), "float32", name, scope="local", layout=wgmma_accumulator(64, 8)
    )
    for name in "abcdef"
}


def tiles(names: Iterable[str]) -> frozenset[Buffer]:
    return frozenset(TILES[name] for name in names)


def group(reads: str, writes: str) -> Group:
    return Group(tiles(reads), tiles(writes))


def waits(events: list[Event]) -> list[int]:
    """How many groups each wait leaves in flight."""
    return [one.pending for one in events if isinstance(one, Wait)]


def released(events: list[Event]) -> list[Release]:
    """The stages that waits give back."""
    return [release for one in events if isinstance(one, Wait) for release in one.releases]


def test_a_statement_waits_for_what_it_touches_and_no_more():
    state = InFlight()
    for one in (group("ab", "c"), group("ab", "d"), group("ab", "e")):
        state.issue(one)
    assert state.before(Effects(tiles("a"), tiles("f"))) == []
    assert waits(state.before(Effects(tiles("c"), tiles("")))) == [2]
    assert waits(state.before(Effects(tiles(""), tiles("d")))) == [1]
    assert waits(state.before(Effects(tiles(""), tiles("a")))) == [0]
    assert state.groups == [] and state.wait_all_but(0) == []


def test_a_warpgroup_meets_after_what_an_mma_hides():
    state, computed = InFlight(), tiles("cdef")
    state.issue(group("a", "c"))
    assert state.before_computing(Effects(tiles("d"), tiles("d")), computed) == []
    found = state.before_computing(Effects(tiles("c"), tiles("c")), computed)
    assert found[0] == Meet(TILES["d"]) and waits(found) == [0]
    # Nothing is computed under the MMA, or not after the latest of them.
    state.issue(group("a", "c"))
    found = state.before_computing(Effects(tiles("c"), tiles("c")), computed)
    assert len(found) == 1 and waits(found) == [0]
    state.issue(group("a", "c"))
    state.before_computing(Effects(tiles("d"), tiles("d")), computed)
    state.issue(group("a", "e"))
    found = state.before_computing(Effects(tiles("c"), tiles("c")), computed)
    assert len(found) == 1 and waits(found) == [1]


@needs_disassembler
def test_the_softmax_of_attention_is_computed_under_an_mma():
    listing = listing_of(attention(256, 64, heads=1, tile=(64, 64)))
    inside = listing.partition("DEPBAR.LE gsb0, 0x1")[2].partition("DEPBAR.LE gsb0, 0x0")[0]
    # A thread has 32 of the weights, and a factor of each of its two rows.
    assert inside.count("MUFU.EX2") == 34, listing


def test_stages_are_released_when_their_group_is_complete():
    state = InFlight()
    for number, one in enumerate([group("a", "d"), group("b", "e")]):
        state.issue(one)
        state.hold(one, f"ring{number}")
    assert released(state.wait_all_but(1)) == [Release("ring0")]
    assert state.finish("ring0") == []
    found = state.finish("ring1")
    assert waits(found) == [0] and released(found) == [Release("ring1")] and state.held == []


@given(st.lists(st.tuples(st.sampled_from(("issue", "wait", "finish")), st.integers(0, 5))))
def test_a_stage_is_released_at_the_first_wait_that_completes_its_group(steps):
    """Once, neither before its group is complete nor after; ``finish`` waits for one of them."""
    state = InFlight()
    issued = complete = 0
    done: list[str] = []
    for number, (step, count) in enumerate(steps):
        before = complete
        found: list[Event] = []
        if step == "issue":
            # Equal groups are different MMAs.
            one = group("a", "bcdef"[number % 5])
            state.issue(one)
            state.hold(one, str(issued))
            issued += 1
        elif step == "wait":
            found = state.wait_all_but(count)
            complete = max(complete, issued - count)
        else:
            found = state.finish(str(count))
            complete = max(complete, count + 1 if count < issued else 0)
        done += [release.ring for release in released(found)]
        assert waits(found) == ([issued - complete] if complete > before else [])
        assert done == [str(one) for one in range(complete)]


def test_guarded_releases_have_a_condition():
    state = InFlight()
    one = group("a", "d")
    state.issue(one)
    state.hold(one, "ring")
    loop = view(tirx.For(tirx.Var("k", "int32"), 2, 5, ForKind.SERIAL, tirx.Evaluate(0)))
    inner, outer = Guard(loop, later=True), Guard(loop, later=False)
    found = state.guarded(inner).guarded(outer).wait_all_but(0)
    assert released(found) == [Release("ring", (outer, inner))]
    assert len(state.groups) == 1
    assert inner.condition.script() == "k > 2" and outer.condition.script() == "T.bool(True)"


def test_results_are_those_that_no_group_in_flight_writes():
    state = InFlight()
    for _ in range(2):
        state.issue(group("a", "d"))
    (first,) = state.wait_all_but(1)
    (last,) = state.wait_all_but(0)
    assert first.results == frozenset() and last.results == tiles("d")


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("cd")), max_size=5), st.data())
def test_groups_that_newer_groups_repeat_change_no_wait(issued, data):
    """However many iterations have passed, no more groups are left than one of them issues."""
    state = InFlight()
    for reads, writes in issued * 3:
        state.issue(group(reads, writes))
    assert len(state.without_repeated().groups) <= len(issued)
    if issued and data.draw(st.booleans()):
        state.hold(data.draw(st.sampled_from(state.groups)), "ring")
    short = state.without_repeated()
    assert all(one.group in short.groups for one in state.held)
    for name in "abcd":
        for found in (Effects(tiles(name), tiles("")), Effects(tiles(""), tiles(name))):
            assert state.copy().before(found) == short.copy().before(found)


names = st.frozensets(st.sampled_from(sorted(TILES)), max_size=3)


@limit(max_examples=60)
@given(st.lists(st.tuples(st.booleans(), names, names), max_size=12))
def test_no_statement_runs_while_a_conflicting_mma_may(steps):
    state = InFlight()
    in_flight: list[Group] = []
    for is_product, reads, writes in steps:
        found = Effects(tiles(reads), tiles(writes))
        left = waits(state.before(found))
        assert len(left) <= 1
        if left:
            in_flight = in_flight[len(in_flight) - left[0] :]
        assert in_flight == state.groups
        assert not any(one.conflicts(found) for one in in_flight)
        if is_product:
            in_flight.append(Group(found.reads, found.writes))
            state.issue(in_flight[-1])


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("specialise", [True, False])
def test_a_stage_is_released_after_the_last_of_equal_mmas(stages, specialise, rng):
    """Two MMAs of the same tiles are two groups, and both read the stage."""

    @T.prim_func
    def func(A: T.Buffer((64, 256), "float16"), B: T.Buffer((64, 256), "float16"),
             C: T.Buffer((64, 64), "float32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((64, 64), "float16", scope="shared")
        B_s = T.alloc_buffer((64, 64), "float16", scope="shared")
        acc = T.alloc_buffer((64, 64), "float32", scope="accumulator")
        for k in wl.pipelined(4, stages):
            Tx.cta.copy_async(A_s, A[0:64, k * 64 : k * 64 + 64])
            Tx.cta.copy_async(B_s, B[0:64, k * 64 : k * 64 + 64])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
            Tx.cta.gemm_async(acc, A_s, B_s, accum=True)
        Tx.cta.copy(C, acc)

    def arguments(rng):
        return [*(random_values(rng, (64, 256), "float16") for _ in range(2)),
                poisoned((64, 64), "float32")]  # fmt: skip

    def expected(args):
        return {2: 2 * wide(args[0]) @ wide(args[1]).T}

    check(Case(func, arguments, expected, 1e-6), rng, specialise=specialise)
