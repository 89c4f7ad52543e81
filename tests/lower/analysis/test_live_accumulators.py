"""Registers of accumulators: of those that are alive at the same time."""

from __future__ import annotations

from typing import Any

import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.lowered_programs import program_before
from warploom import language as wl
from warploom.errors import Decline
from warploom.lower.analysis.live_accumulators import live_accumulators
from warploom.lower.lowerings import lower


def chained(n: int, inside: bool) -> Any:
    """Four MMAs of a step, each of which has the result of the one before for operand A."""

    @T.prim_func
    def program(A: T.Buffer((64, n), "float16"), B: T.Buffer((4 * n, n), "float16"),
                C: T.Buffer((64, n), "float32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = wl.load(A[0:64, 0:n])
        total = wl.alloc_accumulator((64, n))
        if not inside:
            first = wl.alloc_accumulator((64, n))
            second = wl.alloc_accumulator((64, n))
        for s in wl.pipelined(4, stages=2):
            B_s = wl.load(B, (s, 0), (n, n))
            if inside:
                first = wl.alloc_accumulator((64, n))
                second = wl.alloc_accumulator((64, n))
            Tx.cta.gemm_async(first, A_s, B_s)
            p = wl.cast(first, "float16")
            Tx.cta.gemm_async(second, p, B_s)
            q = wl.cast(second, "float16")
            Tx.cta.gemm_async(total, q, B_s, accum=s > 0)
        wl.store(C[0:64, 0:n], total)

    return program


@pytest.mark.parametrize("n", [64, 128])
def test_accumulators_of_a_step_have_registers_in_turn(n):
    found = live_accumulators(program_before("SpecializeWarps", chained(n, True), "sm_90a"), 128)
    assert found.registers == 2 * n // 2
    assert len(found.names) == 2 and "total" in found.names


def test_accumulators_from_before_a_loop_keep_theirs():
    found = live_accumulators(program_before("SpecializeWarps", chained(64, False), "sm_90a"), 128)
    assert found.registers == 3 * 64 // 2


def test_what_is_alive_in_turn_needs_no_more_than_a_thread_has():
    lower(chained(192, True), "sm_90a")
    with pytest.raises(Decline, match="first, second, total need 288 registers of a thread"):
        lower(chained(192, False), "sm_90a")
