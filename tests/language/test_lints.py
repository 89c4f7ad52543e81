"""Lints: a mistake is one warning with the author's line and the fix; right programs have none."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared import tile_programs
from warploom import language as wl
from warploom.decide import Config
from warploom.errors import TileProgramWarning, WarploomWarning
from warploom.language.lints import findings, warn_of_mistakes
from warploom.language.statements import statements_of
from warploom.programs import (
    attention,
    conv2d,
    gemm,
    gemm_block_scaled,
    gemm_grouped,
    gemm_grouped_block_scaled,
)
from warploom.target import cuda_target

M, N, K = 128, 64, 256
BM, BN, BK = 64, 64, 64


def product(
    accum="k > 0", steps=None, rows=None, stages=2, m=M, n=N, k=K, start="k", extra=False,
    store="after", dead=None, tail=False, loop="pipelined",
):  # fmt: skip
    """A GEMM of which one thing is changed."""
    steps = -(-k // BK) if steps is None else steps
    rows = -(-m // BM) if rows is None else rows
    first = {"k": lambda s: s > 0, "False": lambda s: False}
    adds = {"k > 0": first["k"], "False": first["False"], "k > 1": lambda s: s > 1,
            "k != 0": lambda s: s != 0, "True": lambda s: True}[accum]  # fmt: skip
    kinds = {"pipelined": lambda: wl.pipelined(steps, stages), "serial": lambda: T.serial(steps)}

    @T.prim_func
    def main(
        A: T.Buffer((m, k), "float16"), B: T.Buffer((n, k), "float16"),
        C: T.Buffer((m, n), "float32"),
    ):  # fmt: skip
        T.device_entry()
        i, j = T.cta_id([rows, -(-n // BN)])
        A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
        B_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
        if extra:
            X_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
        acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
        if dead is not None:
            out = T.alloc_buffer((BM, BN), "float32", scope="fragment")
        if accum == "True":
            Tx.cta.zero(acc)
        for step in kinds[loop]():
            at = T.meta_var(step * BK if start == "k" else 0)
            Tx.cta.copy_async(A_s, A[i * BM : i * BM + BM, at : at + BK])
            Tx.cta.copy_async(B_s, B[j * BN : j * BN + BN, step * BK : step * BK + BK])
            if extra:
                Tx.cta.copy_async(X_s, B[j * BN : j * BN + BN, step * BK : step * BK + BK])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=adds(step))
            if store == "within":
                Tx.cta.copy(C[i * BM : i * BM + BM, j * BN : j * BN + BN], acc)
        if tail:
            Tx.cta.copy_async(A_s, A[i * BM : i * BM + BM, steps * BK : steps * BK + BK])
            Tx.cta.copy_async(B_s, B[j * BN : j * BN + BN, steps * BK : steps * BK + BK])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=True)
        if dead == "computed":
            for y, x in T.grid(BM, BN):
                out[y, x] = acc[y, x] * T.float32(2)
        if store == "after":
            Tx.cta.copy(C[i * BM : i * BM + BM, j * BN : j * BN + BN], acc)

    return main


#: What is wrong -> (changes, parts of each sentence).
WRONG = {
    "accum omitted": ({"accum": "False"}, ["The MMA into acc starts anew .* accum=step > 0"]),
    "accum from the second step on": ({"accum": "k > 1"}, ["only the last|starts anew"]),
    "a rest of K": (
        {"k": 200, "steps": 3},
        [rf"{name} is loaded in 3 steps of the loop over step, 64 .* of 200: the last 8 are not; "
         r"write T.ceildiv\(200, 64\)" for name in "AB"],
    ),
    "a rest of the rows": (
        {"m": 100, "rows": 1},
        ["A is loaded in 1 CTAs, 64 .* of 100: the last 36", "C is stored in 1 CTAs"],
    ),
    "loaded and never used": ({"extra": True}, ["The tile X_s is loaded and never used"]),
    "computed and never used": ({"dead": "computed"}, ["The tile out is computed and never used"]),
    "allocated and never used": ({"dead": ""}, ["The tile out is allocated and never used"]),
    "the result is not stored": ({"store": "no"}, ["The tile acc is computed and never used"]),
    "more stages than steps": (
        {"stages": 7}, ["has 4 steps and stages=7, of which 3 stay empty .* write stages=4"],
    ),
    "one step": ({"k": 64, "stages": None}, ["has 1 step, so nothing is loaded ahead"]),
    "the same part in each step": (
        {"start": "0"}, ["loop over step loads the same part of A; let the part depend on step"],
    ),
    "the same place in each step": (
        {"store": "within"}, ["stores to the same place of C, so only the last step counts"],
    ),
}  # fmt: skip
RIGHT = {
    "as it should be": {},
    "zero before": {"accum": "True"},
    "not equal": {"accum": "k != 0"},
    "a plain loop": {"loop": "serial"},
    "padding": {"k": 200, "m": 100},
    "the rest behind the loop": {"k": 200, "steps": 3, "tail": True},
    "half of K on purpose": {"k": 512, "steps": 4},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_found_with_its_line(name):
    changes, sentences = WRONG[name]
    with pytest.warns(TileProgramWarning) as caught:
        warn_of_mistakes(product(**changes))
    assert len(caught) == len(sentences)
    lines = Path(__file__).read_text().splitlines()
    for one, sentence in zip(caught, sentences, strict=True):
        with pytest.warns(TileProgramWarning, match=sentence):
            warnings.warn(one.message, stacklevel=1)
        assert one.filename == __file__
        line = lines[one.lineno - 1]
        assert any(word in line for word in ("Tx.cta", "alloc_", "for step", "out[y, x]")), line


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_program_has_no_warning(name):
    assert findings(product(**RIGHT[name])) == []


def test_mmas_that_are_read_in_each_step_start_anew():
    case = tile_programs.block_scaled()
    assert findings(case.func) == []


@pytest.mark.parametrize("integer", [T.int32, T.int64])
def test_an_unknown_k_may_leave_a_rest(integer):
    @T.prim_func
    def main(a: T.handle, b: T.handle, c: T.handle):
        k = integer()
        A = T.match_buffer(a, (BM, k), "float16")
        B = T.match_buffer(b, (BN, k), "float16")
        C = T.match_buffer(c, (BM, BN), "float32")
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
        B_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
        acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
        for s in wl.pipelined(k // BK):
            Tx.cta.copy_async(A_s, A[:, s * BK : s * BK + BK])
            Tx.cta.copy_async(B_s, B[:, s * BK : s * BK + BK])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=s > 0)
        Tx.cta.copy(C[:, :], acc)

    (a, _), (b, _) = findings(main)
    assert "the last k % 64 are not; write T.ceildiv(k, 64)" in a and b.startswith("B is loaded")


PROGRAMS = {
    "gemm": lambda: gemm(Config(cluster_m=2), 200, 328),
    "block-scaled": lambda: gemm_block_scaled(136, 400),
    "block-scaled, two bands": lambda: gemm_block_scaled(7168, 16384, 4096),
    "grouped": lambda: gemm_grouped(8, 200, 512),
    "grouped, block-scaled": lambda: gemm_grouped_block_scaled(8, 200, 528),
    "attention": lambda: attention(1000, 64),
    "causal attention": lambda: attention(None, 64, causal=True, tokens_first=True),
    "convolution": lambda: conv2d(1, 28, 28, 64, 64),
    "swiglu": lambda: tile_programs.swiglu().func,
    "side by side": lambda: tile_programs.side_by_side().func,
    "dequantised": lambda: tile_programs.dequantised(4).func,
    "row sums": lambda: tile_programs.row_sums().func,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_that_are_right_have_no_finding(name):
    found = [text for text, _ in findings(PROGRAMS[name]()) if "stages=" not in text]
    assert found == []


def test_the_packages_own_programs_are_not_looked_at(recwarn):
    warn_of_mistakes(gemm(Config(cluster_m=2), 64, 64, 64))
    assert not recwarn.list


def _compiled_with(category):
    """What ``tvm.compile`` warns of, the first time and from its caches."""
    found = []
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            tvm.compile(
                tvm.IRModule({"main": product(k=200, steps=3, stages=5)}), cuda_target("h200"),
                tir_pipeline="warploom",
            )
        found.append([(str(w.message), w.filename, w.lineno) for w in caught
                      if issubclass(w.category, category)])  # fmt: skip
    return found


def test_compile_and_interpret_warn_alike(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPLOOM_CACHE_DIR", str(tmp_path))
    new, cached = _compiled_with(TileProgramWarning)
    assert new == cached and len(new) == 3
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        a, b, c = (np.zeros(s, d) for s, d in
                   (((M, 200), "float16"), ((N, 200), "float16"), ((M, N), "float32")))  # fmt: skip
        wl.interpret(product(k=200, steps=3, stages=5), [a, b, c])
    assert [(str(w.message), w.filename, w.lineno) for w in caught
            if issubclass(w.category, TileProgramWarning)] == new  # fmt: skip


def test_a_filter_ends_the_build_with_the_warning(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPLOOM_CACHE_DIR", str(tmp_path))
    module = tvm.IRModule({"main": product(accum="False")})
    with warnings.catch_warnings():
        warnings.simplefilter("error", WarploomWarning)
        for _ in range(2):
            with pytest.raises(TileProgramWarning, match="starts anew"):
                tvm.compile(module, cuda_target("h200"), tir_pipeline="warploom")
        with pytest.raises(TileProgramWarning, match="starts anew"):
            wl.interpret(module["main"], [])


def test_a_program_that_cannot_be_read_is_left_to_the_definition(monkeypatch, recwarn):
    monkeypatch.setattr("warploom.language.lints.statements_of", lambda _: None)
    warn_of_mistakes(product(accum="False"))
    assert not recwarn.list


def test_kernels_by_hand_are_not_looked_at():
    @T.prim_func
    def main(A: T.Buffer((128,), "float32")):
        T.device_entry()
        T.cta_id([1])
        t = T.thread_id([128])
        tile = T.alloc_buffer((128,), "float32", scope="shared")
        tile[t] = A[t]

    assert statements_of(main).by_hand and findings(main) == []
