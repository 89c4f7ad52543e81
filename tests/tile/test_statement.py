"""Views of statements: each has one kind, its parts, and goes back to the statement that it was."""

from __future__ import annotations

import numpy as np
import pytest
import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared import tile_programs
from warploom import language as wl
from warploom.lower.trace import lower_trace
from warploom.tile import ir
from warploom.tile import statement as tile
from warploom.tile.effects import effects
from warploom.tile.nest import Binding, ElementStore, Guard, loops_of, parts_of, stores_of
from warploom.tile.read import read
from warploom.tile.statement import block, raws, view, walk


@T.prim_func
def program(A: T.Buffer((256, 64), "float16"), C: T.Buffer((256, 64), "float32")):
    T.device_entry()
    i = T.cta_id([4])
    full = wl.mbarrier.alloc(1)
    wl.mbarrier.init(full, 1)
    A_s = T.alloc_buffer((64, 64), "float16", scope="shared")
    B_s = T.alloc_buffer((64, 64), "float16", scope="shared")
    acc = T.alloc_buffer((64, 64), "float32", scope="accumulator")
    row = T.alloc_buffer((64,), "float32", scope="fragment")
    count: T.int32 = 0
    with wl.loading():
        wl.mbarrier.expect(full, 0, 64 * 64 * 2)
        Tx.cta.copy_async(B_s, A[0:64, :], mbar=wl.mbarrier.address(full))
    wl.mbarrier.wait(full, 0, 0)
    for k in wl.pipelined(4, stages=2):
        Tx.cta.copy_async(A_s, A[i * 64 : i * 64 + 64, :])
        Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
        count = count + 1
    Tx.cta.sum(row, acc, axes=(1,))
    if count > 2:
        for y, x in T.grid(64, 64):
            acc[y, x] = acc[y, x] * row[y]
        Tx.cta.copy(C[i * 64 : i * 64 + 64, :], acc)


def kinds(statements: tile.Block) -> list[str]:
    return [type(one).__name__ for one in walk(statements)]


def test_each_statement_has_its_kind():
    found = read(program).block
    assert kinds(found) == [
        "Allocation", "BarrierOperation", "Allocation", "Allocation", "Allocation", "Allocation",
        "Scalar", "Scalar", "ForLoader", "ForLoader", "ForLoader", "BarrierOperation", "Loop",
        "Load", "Mma", "Scalar", "Reduction", "Branch", "Nest", "Store",
    ]  # fmt: skip


def test_parts():
    loop = next(one for one in walk(read(program).block) if isinstance(one, tile.Loop))
    assert loop.pipelined and loop.stages == 2 and loop.has_iterations
    assert not (loop.over_tiles or loop.dynamic or loop.ping_pong)
    load, mma, scalar = loop.body
    assert load.tile.name == "A_s" and load.source.source.name == "A"
    assert mma.d.name == "acc" and mma.transposed == (False, False) and mma.ctas == 1
    assert [one.source.name for one in mma.operands] == ["A_s", "B_s"]
    assert isinstance(mma.accumulates, tirx.Expr) and not scalar.defines
    branch = read(program).block[-1]
    (nest, store) = branch.blocks[0]
    assert [int(one.extent) for one in nest.loops] == [64, 64] and len(nest.stores) == 1
    assert store.of_registers and store.to.source.name == "C"


PROGRAMS = {
    "gemm": lambda: tile_programs.gemm(70, 72, 96, (64, 64, 32)),
    "attention": lambda: tile_programs.attention(128, 64, 1),
    "swiglu": lambda: tile_programs.swiglu(100, 72, 64),
    "packed": lambda: tile_programs.packed(k=256),
    **{f"random {n}": lambda n=n: tile_programs.random_program(np.random.default_rng(n))
       for n in range(6)},
}  # fmt: skip


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_views_go_back_to_their_statements_after_every_pass(name, arch):
    for step in lower_trace(PROGRAMS[name]().func, arch):
        if step.name not in _WITHOUT_THREADS:
            continue
        for one in walk(read(step.func, arch).block):
            again = one.with_blocks(*map(raws, one.blocks))
            assert tvm_ffi.structural_equal(again, one.raw)
            assert type(view(one.raw)) is type(one)
            assert one.effects == effects(one.raw)


#: Passes whose programs tell no threads apart, from the first on that leaves no other primitives.
_WITHOUT_THREADS = ("Canonicalize", "CheckBarriers", "SqueezeVectors", "ChooseGrid")


@T.prim_func
def with_nest(A: T.Buffer((8, 16), "float32"), B: T.Buffer((8, 16), "float32")):
    T.device_entry()
    T.cta_id([1])
    for i, j in T.grid(8, 16):
        value: T.let[T.float32] = A[i, j] + T.float32(1)
        if value > T.float32(0):
            B[i, j] = value
        B[i, j] = B[i, j] * value


def test_what_a_nest_consists_of():
    (nest,) = (one for one in read(with_nest).block if isinstance(one, tile.Nest))
    assert [one.loop_var.name for one in nest.loops] == ["i", "j"]
    binding, guard, store = nest.parts
    assert [type(one) for one in nest.parts] == [Binding, Guard, ElementStore]
    assert binding.variable in ir.uses(guard.condition) and binding.value.same_as(binding.raw.value)
    (inner,) = guard.parts
    assert nest.stores == [inner, store] and not guard.otherwise
    assert inner.value.same_as(binding.variable) and inner.buffer.same_as(store.buffer)
    assert [str(index) for index in store.indices] == ["i", "j"]


def _stored(statements: list[tirx.Stmt], other: tirx.Stmt | None = None) -> tirx.Stmt:
    """Statements in a loop, or under a condition with another case in one."""
    i = tirx.Var("i", "int32")
    body = tirx.SeqStmt(statements) if len(statements) > 1 else statements[0]
    if other is not None:
        body = tirx.IfThenElse(i < 2, body, other)
    return ir.loop(i, 4, [body])


def test_what_is_no_nest():
    scalar = tirx.decl_buffer((1,), "int32", "scalar", scope="local")
    out = tirx.decl_buffer((4,), "int32", "out", scope="global")
    store = tirx.BufferStore(out, tirx.const(1, "int32"), [0])
    assign = tirx.BufferStore(scalar, tirx.const(1, "int32"), [0])
    assert isinstance(view(_stored([store])), tile.Nest)
    for other in (
        _stored([store, tirx.Evaluate(tirx.call_extern("int32", "f"))]),  # does more
        _stored([assign]),  # stores to no tile and not to global memory
        _stored([store], store),  # no plain form
    ):
        assert isinstance(view(other), tile.Loop)
    assert isinstance(view(store), tile.Instruction)  # in no loop
    parts = parts_of(_stored([store], store).body)
    assert [len(stores) for stores in (list(stores_of(parts)), parts[0].otherwise)] == [2, 1]


@pytest.mark.parametrize("name", ["gemm", "attention"])
def test_a_statement_of_which_nothing_is_changed_stays(name):
    def same(one: tile.Statement) -> tirx.Stmt:
        return one.with_each(same)

    def dropped(one: tile.Statement) -> tirx.Stmt:
        return tirx.Evaluate(0) if isinstance(one, tile.Load) else one.with_each(dropped)

    for one in read(PROGRAMS[name]().func).block:
        assert same(one).same_as(one.raw)
        loads = sum(isinstance(part, tile.Load) for part in walk((one,)))
        assert dropped(one).same_as(one.raw) == (loads == 0)
        assert not any(isinstance(part, tile.Load) for part in walk(block(dropped(one))))


def test_loops_around_statements():
    i, j = (tirx.Var(name, "int32") for name in "ij")
    nest = ir.nest([i, j], [2, 3], [tirx.Evaluate(1), tirx.Evaluate(2)], {"note": 1})
    loops, body = loops_of(nest)
    assert [(one.loop_var, int(one.extent)) for one in loops] == [(i, 2), (j, 3)]
    assert [dict(one.annotations) for one in loops] == [{"note": 1}, {}]
    assert [int(one.value) for one in ir.flatten(body)] == [1, 2]


def test_a_block_is_flat():
    statements = [tirx.Evaluate(1), tirx.SeqStmt([tirx.Evaluate(2), tirx.Evaluate(3)])]
    values = [int(one.raw.value) for one in block(tirx.SeqStmt(statements))]
    assert values == [1, 2, 3] == [int(one.raw.value) for one in block(statements)]
