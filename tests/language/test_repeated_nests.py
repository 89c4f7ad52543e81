"""Loops that repeat a nest: their variable is no index of what is stored."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from tests.shared.tile_programs.case import poisoned
from warploom import emulator
from warploom import language as wl
from warploom.errors import TileProgramError
from warploom.tile.leaves import Nest
from warploom.tile.read import read
from warploom.tile.statement import Loop, walk

S, M, N = 3, 64, 32


def sums(scope: str = "fragment", guard: bool = False) -> PrimFunc:
    """Row sums of the first columns, and largest elements: two nests, each repeated by a loop."""

    @T.prim_func
    def program(X: T.Buffer((S, M, N), "float32"), Y: T.Buffer((M, N), "float32"),
                Z: T.Buffer((M,), "float32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        y = T.alloc_buffer((M, N), "float32", scope=scope)
        z = T.alloc_buffer((M,), "float32", scope="fragment")
        Tx.cta.zero(y)
        Tx.cta.zero(z)
        for s, i, j in T.grid(S, M, N):
            x: T.let = X[s, i, j] * T.cast(s + 1, "float32")
            if guard:
                if i > 5:
                    y[i, j] = y[i, j] + x
            else:
                y[i, j] = y[i, j] + x
        for s, i in T.grid(S, M):
            z[i] = T.max(z[i], X[s, i, 0])
        wl.store(Y, (0, 0), y)
        wl.store(Z, (0,), z)

    return program


@pytest.mark.gpu
@pytest.mark.parametrize("guard", [False, True])
@pytest.mark.parametrize("scope", ["fragment", "shared"])
def test_iterations_run_one_after_the_other(scope, guard, rng):
    x = rng.standard_normal((S, M, N)).astype(np.float32)
    y = np.tensordot(np.arange(1, S + 1), x.astype(np.float64), 1)
    y[: 6 if guard else 0] = 0
    z = np.maximum(x[:, :, 0].max(0), 0)
    func = sums(scope, guard)
    meant = [x, poisoned((M, N), "float32"), poisoned((M,), "float32")]
    wl.interpret(func, meant)
    assert np.abs(meant[1] - y).max() < 1e-5 and (meant[2] == z).all()
    for arch in ("sm_90a", "sm_100a"):
        arrays = [x, poisoned((M, N), "float32"), poisoned((M,), "float32")]
        found = emulator.run(func, arrays, arch=arch).outputs
        assert np.abs(found[1] - y).max() < 1e-5 and (found[2] == z).all()


def test_a_loop_that_repeats_is_a_loop_of_the_cta():
    loops = [one for one in walk(read(sums()).block) if isinstance(one, Loop)]
    assert [str(loop.var.name) for loop in loops] == ["s", "s"]
    assert all(isinstance(loop.body[-1], Nest) for loop in loops)


def kinds_of(nest: PrimFunc) -> list[type]:
    statements = [one for one in read(nest).block if isinstance(one, (Loop, Nest))]
    return [type(one) for one in statements]


def test_other_loops_are_part_of_their_nest():
    @T.prim_func
    def nests(X: T.Buffer((S, M), "float32"), G: T.Buffer((S, M), "float32")):
        T.device_entry()
        T.cta_id([1])
        x = T.alloc_buffer((S, M), "float32", scope="fragment")
        y = T.alloc_buffer((M,), "float32", scope="fragment")
        for s, i in T.grid(S, M):  # an index of what is stored
            x[s, i] = X[s, i]
        for s, i in T.grid(S, M):  # in one iteration alone
            x[s, i] = x[s, i] + T.float32(1)
            if s == 2:
                y[i] = X[s, i]
        for s, i in T.grid(1, M):  # one iteration
            y[i] = y[i] + X[s, i]
        for s, i in T.grid(S, M):  # an index through a variable
            at: T.let = s * 2 // 2
            G[at, i] = X[s, i]
        for i in T.serial(M):  # no nest is left without it
            y[0] = y[0] + X[0, i]

    assert kinds_of(nests) == [Nest] * 5


def test_sums_over_columns_of_registers_are_reductions():
    @T.prim_func
    def program(X: T.Buffer((M, N), "float32"), Y: T.Buffer((N,), "float32")):
        T.device_entry()
        T.cta_id([1])
        x = wl.load(X, (0, 0), (M, N), scope="fragment")
        y = T.alloc_buffer((M,), "float32", scope="fragment")
        Tx.cta.zero(y)
        for j, i in T.grid(N, M):
            y[i] = y[i] + x[i, j]
        wl.store(Y, (0,), y)

    with pytest.raises(TileProgramError, match=r"both store y\[i\]; .* reduce with Tx\.cta\.sum"):
        wl.interpret(program, [np.zeros((M, N), "float32"), np.zeros(N, "float32")])


def test_helpers_with_defaults_and_two_loops_in_a_loop(rng):
    @T.inline
    def accumulate(to, X, s, by=2.0):
        for i, j in T.grid(M, N):
            to[i, j] = to[i, j] + X[s, i, j] * T.float32(by)

    @T.prim_func
    def program(X: T.Buffer((S, M, N), "float32"), Y: T.Buffer((M, N), "float32")):
        T.device_entry()
        T.cta_id([1])

        @T.inline
        def shift(to, by=1.0):
            for i, j in T.grid(M, N):
                to[i, j] = to[i, j] + T.float32(by)

        y = T.alloc_buffer((M, N), "float32", scope="fragment")
        Tx.cta.zero(y)
        for s in T.serial(S):
            accumulate(y, X, s)
            accumulate(y, X, s, by=0.5)
            shift(y)
        wl.store(Y, (0, 0), y)

    x = rng.standard_normal((S, M, N)).astype(np.float32)
    for arch in ("sm_90a", "sm_100a"):
        found = emulator.run(program, [x, poisoned((M, N), "float32")], arch=arch).outputs[1]
        assert np.abs(found - (2.5 * x.astype(np.float64).sum(0) + S)).max() < 1e-5
