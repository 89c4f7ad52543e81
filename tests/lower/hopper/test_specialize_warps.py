"""Roles: what the loading thread and the computing warpgroups execute, and what is declined."""

from __future__ import annotations

from typing import Any

import pytest
import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared import tile_programs
from tests.shared.lowered_programs import hinted
from warploom import language as wl
from warploom.errors import Decline
from warploom.lower.lowerings import lower


def roles(func: Any) -> tuple[str, str]:
    """The scripts of the producer and of the consumers."""
    found = []

    def branch(one: tirx.IfThenElse) -> None:
        if str(one.condition).endswith("wg == 0") and one.else_case is not None:
            found.append((one.then_case.script(), one.else_case.script()))

    tvm_ffi.structural_walk(func.body, (tirx.IfThenElse, branch))
    (both,) = found
    return both


def test_one_role_loads_and_the_others_compute():
    producer, consumer = roles(lower(tile_programs.gemm(out_dtype="float16").func))
    assert producer.count("copy_async(A_s") == producer.count("copy_async(B_s") == 1
    assert "gemm_async" not in producer and "copy_async(C" not in producer
    assert "copy_async(A_s" not in consumer and "copy_async(B_s" not in consumer
    assert consumer.count("gemm_async") == 1 and "copy_async(C" in consumer
    assert "elect_sync" in producer and "elect_sync" not in consumer


def test_both_roles_walk_the_same_tiles():
    producer, consumer = roles(lower(tile_programs.gemm(256, 256, 64).func))
    for line in ("for iteration in", "for step in"):
        assert producer.count(line) == consumer.count(line) == 1


def test_the_hint_sets_registers():
    script = lower(hinted(tile_programs.gemm().func, registers=(24, 160))).script()
    assert "setmaxnreg(24" in script and "setmaxnreg(160" in script


def test_too_many_registers_are_declined():
    case = tile_programs.gemm(256, 64, 64, (128, 64, 64))
    with pytest.raises(Decline, match=r"Registers \(64, 240\) of a loading and 2 .* 69632 in all"):
        lower(hinted(case.func, registers=(64, 240), specialise=True))


def needing(what: str) -> Any:
    """A program whose producer would need a tile."""

    @T.prim_func
    def program(
        A: T.Buffer((4, 64, 64), "float16"), Index: T.Buffer((1, 16), "int32"),
        C: T.Buffer((64, 64), "float16"),
    ):  # fmt: skip
        T.device_entry()
        wl.hints(specialise=True)
        T.cta_id([1])
        I_s = T.alloc_buffer((1, 16), "int32", scope="shared")
        A_s = T.alloc_buffer((64, 64), "float16", scope="shared")
        Tx.cta.copy_async(I_s, Index[0:1, 0:16])
        for k in wl.pipelined(I_s[0, 1] if what == "extent" else 4):
            at: T.int32 = 0
            if what == "scalar":
                at = I_s[0, k]
            if what == "condition":
                for _ in T.serial(1):
                    if I_s[0, k] > 2:
                        at = 1
            Tx.cta.copy_async(A_s, A[I_s[0, k] if what == "place" else at, 0:64, 0:64])
            for i, j in T.grid(64, 64):
                C[i, j] = A_s[i, j]

    return program


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("scalar", "A scalar is computed"),
        ("condition", "A condition is computed"),
        ("extent", "The extent of a loop is computed"),
        ("place", "The place that A_s is loaded from is computed"),
    ],
)
def test_the_loading_thread_has_no_tiles(what, message):
    reason = f"{message} from the tile I_s, which the thread that loads does not have; read it"
    with pytest.raises(Decline, match=reason):
        lower(needing(what))


def alone(func: Any) -> Any:
    """A program that only warps of their own may load."""
    return hinted(func, specialise=True)


def test_rows_that_are_no_multiple_of_16_bytes():
    with pytest.raises(Decline, match="Rows of A, which A_s is loaded from, have 88 bytes; TMA"):
        lower(alone(tile_programs.gemm(64, 64, 44).func))


def test_a_matrix_of_one_row():
    with pytest.raises(Decline, match="A, which A_s is loaded from, has an extent of 1 where the"):
        lower(alone(tile_programs.gemm(1, 64, 64).func))
    lower(tile_programs.gemm(1, 64, 64, symbolic=True).func)
