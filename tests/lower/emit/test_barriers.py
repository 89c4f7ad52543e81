"""What rings are made of: positions, mbarriers of this CTA and of others, executed in kernels."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import tirx
from tvm.script import tirx as T

from tests.shared.lowered_programs import run
from warploom.emulator import EmulatorError
from warploom.lower.analysis.clusters import Pairs, Peers
from warploom.lower.analysis.rings import Ring, mbarriers
from warploom.lower.emit import barriers
from warploom.lower.emit.barriers import Position
from warploom.lower.passes.allocate_shared import allocate_shared
from warploom.tile import ir
from warploom.tile.primitives import primitive
from warploom.tile.program import TileProgram
from warploom.tile.read import read
from warploom.tile.scalar import ThreadScalar

THREADS = 64
SYNC = [ir.evaluate(T.cuda.cta_sync())]
CLUSTER_SYNC = [ir.evaluate(T.cuda.cluster_sync())]


def kernel(count: int, ctas: int = 1) -> TileProgram:
    """A kernel without statements: a cluster of ``ctas`` CTAs, an output of ``count`` words."""

    @T.prim_func
    def func(out: T.Buffer((count,), "int32")):
        T.device_entry()
        T.cta_id_in_cluster([ctas])
        T.cta_id([ctas])
        T.thread_id([THREADS])
        out[0] = 0

    return read(func)


def execute(program: TileProgram, *statements: tirx.Stmt) -> np.ndarray:
    """The output after statements, which stand after the definitions of the ids."""
    (out,) = program.func.params
    ids = [one for one in program.body if isinstance(one, tirx.ScopeIdDefStmt)]
    func = allocate_shared(program.replace(body=(*ids, *statements))).to_func()
    return run(func, [np.full([int(e) for e in out.shape], -1, np.int32)])[0]


def variable(program: TileProgram, number: int) -> tirx.Var:
    """Rank (0), CTA (1) or thread (2)."""
    ids = [one for one in program.body if isinstance(one, tirx.ScopeIdDefStmt)]
    return getattr(ids[number], "def").def_ids[0]


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
@pytest.mark.parametrize("phase", [0, 1])
def test_a_position_goes_round(stages, phase):
    steps = 3 * stages + 1
    program = kernel(2 * steps)
    (out,) = program.func.params
    at = Position.named("ring", stages)
    statements = at.define(phase)
    for step in range(steps):
        for number, value in enumerate((at.index, at.phase.value)):
            store = tirx.BufferStore(out, ir.as_expr(value), [2 * step + number])
            statements.append(ir.when(variable(program, 2) == 0, [store]))
        statements += at.advance()
    found = execute(program, *statements).reshape(steps, 2)
    expected = [(step % stages, phase ^ (step // stages % 2)) for step in range(steps)]
    assert found.tolist() == [list(one) for one in expected]


def handshake(program: TileProgram, arrivals: int, expected: int) -> list[tirx.Stmt]:
    """Threads store, some arrive, all wait; then thread 0 adds up what the others stored."""
    (out,) = program.func.params
    thread = variable(program, 2)
    b = mbarriers("b", 2)
    values = tirx.decl_buffer((arrivals,), "int32", "values", scope="shared")
    total = ThreadScalar("total")
    i = tirx.Var("i", "int32")
    return [
        tirx.AllocBuffer(b),
        tirx.AllocBuffer(values),
        ir.when(thread == 0, [barriers.initialise(b, expected)]),
        *barriers.publish(),
        *SYNC,
        ir.when(thread < arrivals, [
            tirx.BufferStore(values, thread, [thread]), barriers.arrive(b, 1),
        ]),
        barriers.wait(b, 1, 0),
        *total.define(0),
        ir.loop(i, arrivals, [total.set(total.value + values[i])]),
        ir.when(thread == 0, [tirx.BufferStore(out, total.value, [0])]),
    ]  # fmt: skip


@pytest.mark.parametrize("arrivals", [1, 32, 64])
def test_all_arrivals_are_waited_for(arrivals):
    program = kernel(1)
    (total,) = execute(program, *handshake(program, arrivals, arrivals))
    assert total == arrivals * (arrivals - 1) // 2


@pytest.mark.parametrize(("expected", "words"), [(32, "uninitialised read"), (65, "deadlock")])
def test_wrong_counts_are_seen(expected, words):
    program = kernel(1)
    with pytest.raises(EmulatorError, match=words):
        execute(program, *handshake(program, 64, expected))


@pytest.mark.parametrize("ctas", [2, 4])
def test_other_ctas_arrive_here(ctas):
    """Lane i of every CTA arrives in CTA i; each CTA waits for all."""
    program = kernel(ctas, ctas)
    (out,) = program.func.params
    rank, thread = variable(program, 0), variable(program, 2)
    b = mbarriers("b", 1)
    view, declaration = barriers.remote_view(b, T.truncmod(thread, ctas))
    store = tirx.BufferStore(out, rank + 7, [rank])
    found = execute(
        program,
        tirx.AllocBuffer(b),
        ir.when(thread == 0, [barriers.initialise(b, ctas)]),
        *barriers.publish(),
        *CLUSTER_SYNC,
        *declaration,
        ir.when(thread < ctas, [barriers.arrive_remote(view, 0)]),
        barriers.wait(b, 0, 0),
        ir.when(thread == 0, [store]),
        *CLUSTER_SYNC,
    )
    assert found.tolist() == list(range(7, 7 + ctas))


def ring(*peers: Peers | None, pairs: Pairs | None = None) -> Ring:
    tiles = [tirx.decl_buffer((64, 64), "float16", f"t{i}", scope="shared") for i in range(2)]
    source = tirx.decl_buffer((64, 64), "float16", "A")
    loads = [primitive("copy_async", ir.whole(tile), ir.whole(source)) for tile in tiles]
    return Ring("r", loads, dict.fromkeys(tiles), 3, list(peers), pairs)


def test_a_ring_has_barriers_for_its_stages():
    one = ring(None, None)
    assert [int(b.shape[0]) for b in (one.full, one.empty)] == [3, 3]
    assert {b.scope() for b in (one.full, one.empty)} == {"mbarrier"}


def test_who_is_told_of_a_free_stage():
    first, second = (Peers((2, 2), frozenset([d])) for d in range(2))
    assert (ring(None, None).shared_by, ring(None, None).released_in(0)) == (1, None)
    assert ring(first, second).shared_by == 3
    assert ring(Peers((4,), frozenset([0])), None).released_in(2) == 0b1111
    assert ring(None, None, pairs=Pairs(1, 0)).released_in(1) == 0b11
    shared = Peers((2, 2), frozenset([1]))
    assert ring(shared, None, pairs=Pairs(2, 0)).released_in(0) == 0b1111
    one = ring(first, None)
    assert [one.peers_of(load) for load in one.loads] == [first, None]
