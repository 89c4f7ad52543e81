"""The author's own mbarriers beside the passes' pipelines: interpreted, lowered, executed."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.lowered_programs import check, hinted
from tests.shared.sampling import sampled
from tests.shared.tile_programs.orchestrated import (
    prefetched_residual,
    resident_operand,
    ring_by_hand,
)
from warploom import language as wl
from warploom.errors import Decline, TileProgramError
from warploom.lower.lowerings import lower

PROGRAMS = {
    "residual": prefetched_residual,
    "residual ragged": partial(prefetched_residual, 200, 72, 136),
    "residual, no products": partial(prefetched_residual, k=8, tile=(64, 64, 64)),
    **{f"ring of 2 for {n}": partial(ring_by_hand, n) for n in (0, 1, 2, 5)},
    "ring of 1": partial(ring_by_hand, 3, 1),
    "resident operand": resident_operand,
}
#: Architecture, whether warps are specialised.
STRUCTURES = [("sm_90a", True), ("sm_90a", False), ("sm_100a", None)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_print_and_have_a_meaning(name, rng):
    case = PROGRAMS[name]()
    assert tvm_ffi.structural_equal(tvm.script.from_source(case.func.script()), case.func)
    arguments = case.arguments(rng)
    wl.interpret(case.func, arguments)
    for index, expected in case.expected(arguments).items():
        error = np.abs(arguments[index].astype(float) - expected).max()
        assert error <= case.tolerance * np.abs(expected).max()


@pytest.mark.parametrize(("arch", "specialise"), STRUCTURES)
@pytest.mark.parametrize(("name", "stages"), sampled(((n, s) for s in (1, 3) for n in PROGRAMS), 2))
@pytest.mark.some(7)
def test_programs_are_right_and_free_of_races(name, arch, specialise, stages, rng):
    check(PROGRAMS[name](stages=stages), rng, arch, specialise=specialise)


def declined(body, arch="sm_90a", before=True, **hints):
    """What the passes say of a program with two mbarriers and ``body`` after their start."""
    start = (lambda b: wl.mbarrier.init(b, 1)) if before else (lambda b: None)

    @T.prim_func
    def program(A: T.Buffer((64, 64), "float16"), C: T.Buffer((64, 64), "float32")):
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((64, 64), "float16", scope="shared")
        acc = T.alloc_buffer((64, 64), "float32", scope="accumulator")
        b = wl.mbarrier.alloc(2)
        start(b)
        body(b, A_s, A)
        Tx.cta.gemm_async(acc, A_s, A_s)
        Tx.cta.copy(C, acc)

    with pytest.raises(Decline) as caught:
        lower(hinted(program, **hints), arch)
    return str(caught.value)


def load(b, A_s, A):
    wl.mbarrier.expect(b, 0, 64 * 64 * 2)
    Tx.cta.copy_async(A_s, A, mbar=wl.mbarrier.address(b))
    wl.mbarrier.wait(b, 0, 0)


def twice(b, A_s, A):
    Tx.cta.zero(A_s)
    wl.mbarrier.init(b, 1)


def in_a_loop(b, A_s, A):
    Tx.cta.zero(A_s)
    for _ in T.serial(2):
        wl.mbarrier.init(b, 1)


def remote(b, A_s, A):
    Tx.cta.zero(A_s)
    T.evaluate(T.ptx.mbarrier.arrive.shared__cluster.b64(wl.mbarrier.address(b)))


def product_by_one_thread(b, A_s, A):
    load(b, A_s, A)
    with wl.loading():
        Tx.cta.fill(A_s, T.float16(0))


def released(b, A_s, A):
    load(b, A_s, A)
    wl.mbarrier.arrive(b, 1)


def signals_a_number(b, A_s, A):
    Tx.cta.copy_async(A_s, A, mbar=T.uint64(0))


@pytest.mark.parametrize(
    ("body", "words", "options"),
    [
        (twice, "initialised in a loop or branch, or twice", {}),
        (load, "used before wl.mbarrier.init", {"before": False}),
        (remote, "no pass knows which thread is to execute it", {}),
        (product_by_one_thread, "one thread that executes it", {}),
        (released, "may come before the MMA that reads A_s", {"arch": "sm_100a"}),
        (signals_a_number, "something that is no mbarrier", {}),
        (load, "initialise the mbarrier b anew for each tile", {"persistent": True}),
    ],
)
def test_what_is_declined(body, words, options):
    assert words in declined(body, **options)


def interpreted(body):
    @T.prim_func
    def program(A: T.Buffer((64, 64), "float16")):
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((64, 64), "float16", scope="shared")
        b = wl.mbarrier.alloc(2)
        body(b, A_s, A)

    with pytest.raises(TileProgramError) as caught:
        wl.interpret(program, [np.zeros((64, 64), np.float16)])
    return str(caught.value)


def started(then):
    """What follows the initialisation of two mbarriers of two arrivals each."""

    def body(b, A_s, A):
        wl.mbarrier.init(b, 2)
        then(b, A_s, A)

    return body


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (load, "used before it is initialised"),
        (started(load), "never over: 1 of 2 arrivals have happened, and 0 bytes"),
        (started(lambda b, *_: wl.mbarrier.expect(b, 1, 8) or wl.mbarrier.wait(b, 1, 0)),
         "1 of 2 arrivals have happened, and 8 bytes are still to come"),
        (started(lambda b, *_: [wl.mbarrier.expect(b, 1, 8) for _ in range(3)] and None),
         "1 arrivals at the mbarrier b[1], which waits for 0 more"),
        (started(lambda b, *_: wl.mbarrier.init(b, 2)), "initialised twice"),
        (started(lambda b, *_: wl.mbarrier.arrive(b, 2)), "lies outside of b"),
        (started(remote), "has no meaning in a tile program"),
        (started(lambda b, A_s, A: Tx.cta.copy_async(A_s, A, mbar=b.data)),
         "mbar= of a copy must be wl.mbarrier.address"),
    ],
)  # fmt: skip
def test_what_the_interpreter_rejects(body, words):
    assert words in interpreted(body)
