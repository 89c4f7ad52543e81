"""Where warpgroups wait for wgmma: the states of loops are fixpoints, and found in linear time."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Var

from tests.shared.lowered_programs import hinted, program_before, run
from tests.shared.tile_programs.nested import arguments, nest_of_depth, nested_program, without_mmas
from warploom import language as wl
from warploom.lower.analysis.plan_pipeline import plan_pipeline
from warploom.lower.analysis.rings import PipelinePlan
from warploom.lower.blackwell.split_roles import RoleSplitter
from warploom.lower.hopper import mma_waits
from warploom.lower.hopper.consume import Consumer
from warploom.lower.hopper.mma_groups import Event, Group, Guard, InFlight, Release, Wait
from warploom.lower.hopper.mma_waits import needs_order, plan_waits, steps
from warploom.lower.hopper.wait_plan import WaitPlan
from warploom.lower.lowerings import lower
from warploom.tile import ir
from warploom.tile.program import TileProgram
from warploom.tile.statement import Block, Branch, Load, Loop, Mma, Statement

SEEDS = range(40)


class Elsewhere:
    """Loads are another role's, or are executed in place."""

    refills_after_loops = True

    def __init__(self, in_place: bool) -> None:
        self.in_place = in_place

    def loads_in_place(self, load: Load) -> bool:
        return self.in_place


def before_roles(seed: int) -> TileProgram:
    """A random nest of loops after all passes before the roles part."""
    func = nested_program(np.random.default_rng(seed))
    return program_before("SpecializeWarps", func, "sm_90a")


class Execution:
    """The execution of a program with its waits: what is really in flight, iteration by iteration.

    It asserts that no statement runs beside an MMA that it must not run beside, and that each stage
    is released once, not too early.
    """

    def __init__(self, plan: PipelinePlan, waits: WaitPlan, values: dict[Var, Any]) -> None:
        self.plan, self.waits, self.values = plan, waits, dict(values)
        self.in_flight: list[Group] = []
        #: Ring -> the MMAs that still read a stage which is not released.
        self.unreleased: dict[str, list[Group]] = {}
        self.executed = 0

    def run(self, program: TileProgram) -> None:
        self._block(program.block)
        self._wait(self.waits.end)
        assert not self.in_flight and not self.unreleased

    def _value(self, expression: Any) -> int:
        return int(Analyzer().simplify(ir.substitute(ir.as_expr(expression), self.values)))

    def _block(self, statements: Block) -> None:
        for step in steps(self.plan, statements):
            waits = self.waits.of[step.statement]
            self._wait(waits.before)
            self._statement(step.statement, waits.ends)
            self._wait(waits.after)
            for use in step.closes:
                self._close(use.ring.name, set(use.ring.tiles))

    def _statement(self, one: Statement, ends: list[list[Event]]) -> None:
        match one:
            case Loop():
                for number in range(self._value(one.extent)):
                    self.values[one.var] = ir.as_expr(self._value(one.start) + number)
                    self._inside(one, 0, ends)
            case Branch() if needs_order(one):
                side = 0 if self._value(one.condition) else 1
                if side < len(one.blocks):
                    self._inside(one, side, ends)
            case Mma():
                own = Group(one.effects.reads - one.effects.writes, one.effects.writes)
                found = type(one.effects)(own.reads, own.writes)
                assert not any(group.conflicts_with_mma(found) for group in self.in_flight)
                self.in_flight.append(own)
                self.executed += 1
            case Statement(blocks=()) | Branch() if not isinstance(one, Load) and not one.allocates:
                assert not any(group.conflicts(one.effects) for group in self.in_flight)

    def _inside(self, one: Statement, number: int, ends: list[list[Event]]) -> None:
        self._block(one.blocks[number])
        self._wait(ends[number])

    def _wait(self, events: Iterable[Event]) -> None:
        for event in events:
            if not isinstance(event, Wait):
                continue
            if len(self.in_flight) > event.pending:
                self.in_flight = self.in_flight[len(self.in_flight) - event.pending :]
            for release in event.releases:
                if all(self._holds(guard) for guard in release.guards):
                    readers = self.unreleased.pop(release.ring)
                    assert not any(one in self.in_flight for one in readers)

    def _holds(self, guard: Guard) -> bool:
        return bool(self._value(guard.condition))

    def _close(self, ring: str, tiles: set[Any]) -> None:
        close = self.waits.closes[ring]
        self._wait(close.before)
        readers = [one for one in self.in_flight if one.reads & tiles]
        assert ring not in self.unreleased
        if close.at_once:
            assert not readers
        else:
            self.unreleased[ring] = readers


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.some(6)
def test_what_is_in_flight_at_a_back_edge_is_a_fixpoint(seed, in_place):
    program = before_roles(seed)
    plan = plan_pipeline(program)
    analysis = mma_waits._Analysis(program, plan, Elsewhere(in_place))
    analysis.block(program.block, InFlight())
    for loop, head in analysis.wait_plan.heads.items():
        end = analysis.block(loop.body, head)
        (drain,) = analysis.wait_plan.of[loop].ends
        if drain:
            assert drain == end.wait_all_but(0)
        back = end.without_repeated().guarded(Guard(loop, later=True))
        assert back.same_as(head), loop.raw.script()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.some(6)
def test_no_mma_is_in_the_way_and_each_stage_is_released_once(seed):
    """For any numbers of iterations, none among them."""
    program = before_roles(seed)
    plan = plan_pipeline(program)
    waits = plan_waits(program, plan, Elsewhere(False))
    (steps_,) = (one for one in program.func.params if one.name == "steps")
    for count in range(4):
        Execution(plan, waits, {steps_: ir.as_expr(count)}).run(program)


def without(waits: WaitPlan, what: str) -> None:
    """Leave a part of all waits out."""

    def unguarded(events: list[Event]) -> list[Event]:
        return [
            dataclasses.replace(one, releases=tuple(Release(r.ring) for r in one.releases))
            if isinstance(one, Wait) else one
            for one in events
        ]  # fmt: skip

    for one in waits.of.values():
        if what == "guards":
            one.before, one.after = unguarded(one.before), unguarded(one.after)
            one.ends = list(map(unguarded, one.ends))
        elif what == "ends":
            one.ends = [[] for _ in one.ends]
        else:
            setattr(one, what, [])


@pytest.mark.parametrize("what", ["before", "after", "ends", "guards"])
def test_each_part_of_the_waits_is_needed(what):
    """The execution finds it out if they are left out."""
    found = False
    for seed in SEEDS:
        program = before_roles(seed)
        plan = plan_pipeline(program)
        waits = plan_waits(program, plan, Elsewhere(False))
        without(waits, what)
        (steps_,) = (one for one in program.func.params if one.name == "steps")
        try:
            Execution(plan, waits, {steps_: ir.as_expr(2)}).run(program)
        except (AssertionError, KeyError):
            found = True
            break
    assert found, what


def visits(monkeypatch: pytest.MonkeyPatch, walker: type, depth: int, arch: str) -> int:
    """How often a walk comes to a statement of a nest of loops."""
    count, stock = 0, walker._statement

    def counted(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        return stock(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(walker, "_statement", counted)
        lower(hinted(nest_of_depth(depth), specialise=arch == "sm_90a" or None), arch)
    return count


@pytest.mark.parametrize(
    ("walker", "arch"),
    [(mma_waits._Analysis, "sm_90a"), (Consumer, "sm_90a"), (RoleSplitter, "sm_100a")],
    ids=["analysis", "sm_90a", "sm_100a"],
)
def test_walks_are_linear_in_the_depth_of_loops(monkeypatch, walker, arch):
    counts = [visits(monkeypatch, walker, depth, arch) for depth in range(1, 7)]
    assert len(set(np.diff(counts))) == 1, counts


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.some(3)
def test_nests_compute_what_the_program_says(seed, arch, rng):
    func = nested_program(np.random.default_rng(seed), depth=2)
    specialise = None if arch == "sm_100a" else bool(seed % 2)
    for count in (0, 3):
        given = arguments(rng, count)
        expected = [np.copy(one) for one in given]
        wl.interpret(func, expected)
        got = run(lower(hinted(func, specialise=specialise), arch), given, arch)
        np.testing.assert_array_equal(got[2:4], expected[2:4])


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_accumulators_need_no_mma(arch, rng):
    given = arguments(rng, 0)
    expected = [np.copy(one) for one in given]
    wl.interpret(without_mmas(), expected)
    got = run(lower(without_mmas(), arch), given, arch)
    np.testing.assert_array_equal(got[2:4], expected[2:4])


def test_one_of_several_accumulators_is_started_in_a_branch(rng):
    """Its registers are its own after the branch, whichever way threads go."""

    @T.prim_func
    def func(A: T.Buffer((64, 64), "float16"), C: T.Buffer((64, 64), "float32"),
             D: T.Buffer((64, 64), "float32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((64, 64), "float16", scope="shared")
        one = T.alloc_buffer((64, 64), "float32", scope="accumulator")
        two = T.alloc_buffer((64, 64), "float32", scope="accumulator")
        for k in wl.pipelined(4, 2):
            Tx.cta.copy_async(A_s, A)
            if k == 0:
                for i, j in T.grid(64, 64):
                    one[i, j] = T.float32(0)
            Tx.cta.gemm_async(one, A_s, A_s, accum=True)
            Tx.cta.gemm_async(two, A_s, A_s, accum=k > 0)
        Tx.cta.copy(C, one)
        Tx.cta.copy(D, two)

    a = rng.integers(-1, 2, (64, 64)).astype("float16")
    given = [a, *(np.full((64, 64), np.nan, np.float32) for _ in range(2))]
    got = run(lower(func, "sm_90a"), given)
    expected = 4 * a.astype(np.float64) @ a.astype(np.float64).T
    np.testing.assert_array_equal(got[1:], [expected, expected])
