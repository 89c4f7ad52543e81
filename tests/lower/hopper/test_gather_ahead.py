"""Rows that have an index each, which the warpgroup that loads gathers ahead (cp.async)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.lowered_programs import check, hinted, local_memory, run
from tests.shared.tile_programs import rows_by_index
from warploom import language as wl
from warploom.lower.emit import produce
from warploom.lower.emit.gather_rows import RowCopy
from warploom.lower.lowerings import lower
from warploom.lower.trace import lower_trace
from warploom.target import cuda_target

AHEAD, BY_THREADS = "gathered ahead", "copied by threads that compute, as "


def decisions(func: Any, arch: str = "sm_90a") -> list[str]:
    return [one for step in lower_trace(func, arch) for one in step.decisions]


def is_ahead(func: Any) -> bool:
    told = decisions(func)
    return any(AHEAD in one for one in told) and not any(BY_THREADS in one for one in told)


def cuda(func: Any) -> str:
    module = tvm.IRModule({"main": lower(func, "sm_90a", quiet=True)})
    built = tvm.compile(module, cuda_target("sm_90a"), tir_pipeline="tirx")
    return built.mod.imports[0].inspect_source()


@pytest.mark.parametrize("gathers", ["a", "b", "ab", "k", "ak"])
@pytest.mark.parametrize("primitive", [False, True], ids=["loop", "gather"])
@pytest.mark.some(3)
def test_rows_of_both_operands(gathers, primitive, rng):
    case = rows_by_index(gathers, primitive=primitive, steps=3, tile=(64, 32, 64))
    assert is_ahead(case.func)
    check(case, rng)


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("trips", [0, 1, 2, 3, 4])
@pytest.mark.some(4)
def test_trip_counts_around_the_stages(stages, trips, rng):
    check(rows_by_index("ab", tile=(64, 16, 32), steps=4, dynamic=trips, stages=stages), rng)


@pytest.mark.parametrize(
    ("dtype", "columns"),
    [("float16", 16), ("float16", 128), ("bfloat16", 48), ("int8", 32), ("float8_e5m2", 64)],
)
@pytest.mark.some(2)
def test_dtypes_and_widths(dtype, columns, rng):
    out = "int32" if dtype == "int8" else "float32"
    case = rows_by_index("a", tile=(64, 16, columns), dtype=dtype, out_dtype=out)
    assert is_ahead(case.func)
    check(case, rng)


@pytest.mark.parametrize("rows", [8, 24, 40, 96])
@pytest.mark.parametrize("columns", [16, 64])
@pytest.mark.some(2)
def test_rows_that_threads_do_not_divide_among(rows, columns, rng):
    check(rows_by_index("b", tile=(64, rows, columns)), rng)


@pytest.mark.parametrize("page", [2, 4])
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.some(2)
def test_small_pages_of_tensors_of_several_dimensions(page, ranks, rng):
    case = rows_by_index("a", page=page, ranks=ranks, tile=(64, 16, 64))
    assert is_ahead(case.func)
    check(case, rng)


@pytest.mark.parametrize(
    "hints",
    [
        {"cluster": (2, 1)}, {"slice_k": 2}, {"ping_pong": True}, {"split_k": 2},
        {"stream_k": True, "ctas": 3}, {"persistent": False}, {"split_rings": True},
        {"scheduler": "counter", "ctas": 1}, {"specialise": False}, {"prefetch_l2": True},
        {"set_registers": False},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.some(3)
def test_with_other_choices(hints, rng):
    check(rows_by_index("a", steps=4, tile=(64, 16, 32)), rng, **hints)


@pytest.mark.in_turn(2)
def test_two_warpgroups_compute(rng):
    case = rows_by_index("ab", tile=(128, 64, 64))
    told = decisions(case.func)
    assert any(
        "one loading warpgroup" in one and "2 computing warpgroups" in one for one in told
    )
    check(case, rng)


def test_a_cluster_shares_the_operand_that_tma_loads():
    func = hinted(rows_by_index("a").func, cluster=(2, 1))
    assert any("B_s multicast to 2 CTAs" in one for one in decisions(func))
    assert not any("A_s multicast" in one for one in decisions(func))


def test_indices_are_read_once_a_tile(monkeypatch, rng):
    """Rows that the loop does not change are found before it; others in each step."""
    found: list[Any] = []
    find = RowCopy.find

    def noted(copy: RowCopy, when: Any = True) -> Any:
        found.append((copy.gather.tile.name, when is not True))
        return find(copy, when)

    monkeypatch.setattr(RowCopy, "find", noted)
    lower(rows_by_index("ak").func, "sm_90a")
    # The loop has iterations for certain; a dynamic loop may have none.
    assert found == [("A_s", False), ("B_s", False)]
    found.clear()
    lower(rows_by_index("a", dynamic=1).func, "sm_90a")
    assert found == [("A_s", True)]
    # The loop over k begins behind the first indices, and holds those of B_s.
    source = cuda(rows_by_index("ak").func)
    loop = source.index("for (int s = 0")
    assert source.index("OfA_ptr[") < loop < source.index("OfB_ptr[")


@pytest.mark.in_turn(2)
def test_no_registers_are_spilled():
    case = rows_by_index("ab", tile=(128, 128, 64), steps=8, stages=None)
    assert local_memory(case.func, "sm_90a") == (0, 0, 0)


@pytest.mark.in_turn(3)
def test_rows_that_only_the_launch_knows(rng):
    """Rows of multiples of 16 bytes are gathered ahead, others are copied by threads."""

    @T.prim_func
    def func(a: T.handle, B: T.Buffer((16, 128), "float16"), Of: T.Buffer((64,), "int32"),
             C: T.Buffer((64, 16), "float32")):  # fmt: skip
        m, k = T.int32(), T.int32()
        A = T.match_buffer(a, (m, k), "float16")
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_shared((64, 32), "float16")
        B_s = T.alloc_shared((16, 32), "float16")
        acc = T.alloc_buffer((64, 16), "float32", scope="accumulator")
        for s in wl.pipelined(T.ceildiv(k, 32)):
            Tx.cta.gather(A_s, A[0:m, s * 32 : s * 32 + 32], lambda r: Of[r])
            Tx.cta.copy_async(B_s, B[0:16, s * 32 : s * 32 + 32])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=s > 0)
        Tx.cta.copy(C, acc)

    kernel = lower(func, "sm_90a", quiet=True)
    for k in (72, 70):
        a = rng.standard_normal((50, k)).astype(np.float16)
        b = rng.standard_normal((16, 128)).astype(np.float16)
        rows = rng.integers(-2, 53, 64).astype(np.int32)
        after = run(kernel, [a, b, rows, np.full((64, 16), np.nan, np.float32)])[3]
        inside = ((rows >= 0) & (rows < 50))[:, None]
        taken = np.where(inside, a.astype(np.float64)[np.clip(rows, 0, 49)], 0)
        np.testing.assert_allclose(after, taken @ b[:, :k].astype(np.float64).T, atol=1e-4)


def product(
    step: Any, columns: int = 64, before: Any = lambda A_s, A, Of: None
) -> Any:
    """C = A[Of] B^T, whose body a function writes."""

    @T.prim_func
    def func(A: T.Buffer((90, columns), "float16"), B: T.Buffer((16, 64), "float16"),
             Of: T.Buffer((64,), "int32"), C: T.Buffer((64, 16), "float32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_shared((64, 16), "float16")
        B_s = T.alloc_shared((16, 16), "float16")
        acc = T.alloc_buffer((64, 16), "float32", scope="accumulator")
        Tx.cta.zero(acc)
        before(A_s, A, Of)
        for s in wl.pipelined(4):
            step(A_s, A, Of, s)
            Tx.cta.copy_async(B_s, B[0:16, s * 16 : s * 16 + 16])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=True)
        Tx.cta.copy(C, acc)

    return func


def gather(A_s, A, Of, s):
    Tx.cta.gather(A_s, A[0:90, s * 16 : s * 16 + 16], lambda r: Of[r])


def gather_odd(A_s, A, Of, s):
    Tx.cta.gather(A_s, A[0:90, s * 4 : s * 4 + 16], lambda r: Of[r])


def gather_before(A_s, A, Of):
    Tx.cta.gather(A_s, A[0:90, 0:16], lambda r: Of[r])


def gather_first(A_s, A, Of, s):
    with T.If(s == 0), T.Then():
        Tx.cta.gather(A_s, A[0:90, 0:16], lambda r: Of[r])


@pytest.mark.parametrize(
    ("func", "reason"),
    [
        (product(gather_odd), "are not known to begin and end at multiples of 16 bytes"),
        (product(gather, 65), "are not known to begin and end at multiples of 16 bytes"),
        (product(gather_first), "is used outside the block that loads it"),
        (product(gather, before=gather_before), "another statement writes A_s, too"),
    ],
    ids=["columns", "rows", "another block", "two loads"],
)
def test_what_is_not_gathered_ahead_says_why_and_is_right(func, reason, rng):
    assert any(BY_THREADS in one and reason in one for one in decisions(func))
    columns = int(func.params[0].shape[1])
    a, b = (
        rng.standard_normal(shape).astype(np.float16) for shape in ((90, columns), (16, 64))
    )
    rows = rng.integers(0, 90, 64).astype(np.int32)
    arguments = [a, b, rows, np.full((64, 16), np.nan, np.float32)]
    expected = [np.copy(one) for one in arguments]
    wl.interpret(func, expected)
    after = run(lower(func, "sm_90a"), arguments)
    np.testing.assert_allclose(after[3], expected[3], atol=1e-4)


def test_the_emulator_finds_stages_that_no_copy_has_filled(monkeypatch, rng):
    """Threads that arrive before their copies are complete leave a race."""
    monkeypatch.setattr(
        produce, "arrive_gathered", lambda ring, stage: produce.barriers.arrive(ring.full, stage)
    )
    case = rows_by_index("a", steps=3, tile=(64, 16, 64))
    with pytest.raises(Exception, match=r"uninitialised read|data race"):
        run(lower(case.func, "sm_90a"), case.arguments(rng))
