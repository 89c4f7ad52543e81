"""Attention backward, in one pass and in two: masks, ragged lengths, shared heads, head dims."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tests.tutorials.test_gallery import PAGES
from warploom import emulator
from warploom.compiler.report import compile_report
from warploom.target import cuda_target
from warploom.tutorials import gallery

NAMES = ("attention_backward", "attention_backward_fused")


@pytest.mark.gpu
@pytest.mark.skipif(not emulator.is_enabled(), reason="the gallery's tests run it on a GPU")
@pytest.mark.parametrize("arch", gallery.ARCHITECTURES)
@pytest.mark.parametrize("head_dim", [64, 96, 128])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads", "tokens"), [(1, 1, 77), (2, 1, 136), (2, 2, 128)])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.some(2)
@pytest.mark.in_turn(2)
def test_gradients_are_those_of_numpy(name, heads, kv_heads, tokens, causal, head_dim, arch):
    page = gallery.load(PAGES[name])
    sizes = {"H": heads, "KV": kv_heads, "S": tokens, "D": head_dim, "causal": causal}
    func, inputs = page.make(sizes), page.data(sizes)
    outputs = gallery.poisoned(page.results(func, inputs))
    found = emulator.run(func, [*inputs, *outputs], checks=True, arch=arch).outputs[len(inputs) :]
    for one, right in zip(found, page.expected(inputs, sizes), strict=True):
        error = np.abs(one.astype(np.float64) - right).max() / np.abs(right).max()
        assert error <= page.tolerance


@pytest.mark.parametrize(
    ("name", "head_dim", "causal"), list(itertools.product(NAMES, (64, 128), (False, True)))
)
@pytest.mark.some(2)
@pytest.mark.in_turn(2)
def test_nothing_spills_or_serialises(name, head_dim, causal):
    func = gallery.load(PAGES[name]).program(H=16, S=4096, D=head_dim, causal=causal)
    report = compile_report(func, cuda_target("h200"))
    assert not report.problems, str(report)


@pytest.mark.gpu
@pytest.mark.skipif(not emulator.is_enabled(), reason="runs on the emulator alone")
@pytest.mark.parametrize("name", NAMES)
def test_keys_beyond_the_end_have_no_weight(name):
    # Logits are -400: a key of zeros beyond the end would have a weight of exp(400), infinity.
    page = gallery.load(PAGES[name])
    sizes = {"H": 1, "S": 72, "D": 64, "causal": False}
    q, k, v, _, _, grad = page.data(sizes)
    q[:] = math.sqrt(400 / math.sqrt(64))
    k[:] = -q
    weights, log_of_sum = page.inputs.__globals__["_forward"](q, k, False)
    out = (weights @ v.astype(np.float64)).astype(v.dtype)
    inputs = [q, k, v, out, log_of_sum.astype(np.float32), grad]
    func = page.make(sizes)
    outputs = gallery.poisoned(page.results(func, inputs))
    found = emulator.run(func, [*inputs, *outputs], checks=True).outputs[len(inputs) :]
    for one, right in zip(found, page.expected(inputs, sizes), strict=True):
        assert np.abs(one.astype(np.float64) - right).max() <= 2e-2 * np.abs(right).max() + 2e-2
