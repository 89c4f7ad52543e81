"""Attention that rotates queries and keys itself, against TVM's kernels and numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.relax.frontend.nn.llm._decode_kernels import _attention_decode
from tvm.relax.frontend.nn.llm._prefill_kernels import _attention_prefill

from tests.programs import test_paged_decode as decode
from tests.programs import test_paged_prefill as prefill
from tests.programs import test_ragged_prefill as ragged
from tests.programs.prefill_reference import attend, begins_of, causal
from tests.shared.tile_programs.case import precision
from warploom import emulator
from warploom.errors import IllegalCombination
from warploom.programs import paged_decode, paged_prefill, ragged_prefill
from warploom.programs.rotary import BEFORE, EITHER, INLINE
from warploom.target import cuda_target

pytestmark = pytest.mark.gpu

ARCHS = ("sm_90a", "sm_100a")
#: Where the theta of the embedding and its scale are among the last arguments.
_SCALE, _THETA = -3, -2


def _positions(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.integers(0, 400, count).astype("int32")


def _rotated(x: np.ndarray, positions: np.ndarray, scale: float, theta: float) -> np.ndarray:
    """Rows ``(tokens, heads, elements)``, rounded to their dtype."""
    half = x.shape[-1] // 2
    angles = (positions * scale)[:, None] * theta ** (-np.arange(half) / half)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    low, high = x[..., :half].astype(float), x[..., half:].astype(float)
    turned = np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)
    return turned.astype(x.dtype)


def _close(found: Any, exact: Any, dtype: str) -> None:
    """Elements that are rotated are rounded once more, and then either way."""
    (out, lse), (exact_out, exact_lse) = (
        [np.asarray(one).astype(float) for one in pair] for pair in (found, exact)
    )
    assert np.abs(out - exact_out).max(initial=0) <= 4 * precision(dtype) * max(
        np.abs(exact_out).max(initial=0), 1
    )
    assert np.abs(lse - exact_lse).max(initial=0) <= 2 * precision(dtype)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("rotary", [INLINE, EITHER])
@pytest.mark.parametrize(
    ("head_dim", "dtype"), [(64, "float16"), (72, "float16"), (128, "bfloat16")]
)
@pytest.mark.some(2)
def test_ragged_prefill(rng, arch, rotary, head_dim, dtype):
    case = ragged.Case((5, 0, 40, 1), (5, 0, 50, 9), 4, 2, head_dim, dtype=dtype)
    arguments, _ = case.draw(rng)
    q, begins, k, v, k_begins = arguments[:5]
    places, offsets = _positions(rng, len(q)), _positions(rng, len(case.keys))
    arguments[5:7], arguments[10] = [places, offsets], 1
    arguments[_SCALE], arguments[_THETA] = 0.5, 5e3
    result = emulator.run(
        ragged_prefill(4, 2, head_dim, dtype=dtype, rotary=rotary, arch=arch), arguments, arch=arch
    )
    k_places = np.concatenate([b + np.arange(n) for b, n in zip(offsets, case.keys, strict=True)])
    k = _rotated(k, k_places, 0.5, 5e3)
    parts = [[x[k_begins[b] : k_begins[b + 1]] for b in range(len(case.keys))] for x in (k, v)]
    exact = attend(_rotated(q, places, 0.5, 5e3), *parts, begins, arguments[-1], causal)
    assert np.array_equal(begins, begins_of(case.queries))
    _close(result.outputs[ragged.RESULTS], exact, dtype)


PREFILL = {
    "plain": prefill.Case((3, 0, 20), (3, 0, 33), 4),
    "window": prefill.Case(
        (3, 20, 4), (3, 70, 30), 4, windows=((0, 0), (20, 4), (8, 8)), window_size=30
    ),
    "window, every key": prefill.Case((3, 20), (3, 70), 4, windows=((0, 0), (20, 4)), causal=0),
}


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("rotary", [INLINE, EITHER])
@pytest.mark.parametrize("name", PREFILL)
@pytest.mark.some(2)
def test_paged_prefill_is_that_of_tvm(rng, arch, rotary, name):
    """Where each query sees a key: for others TVM computes a mean of all values."""
    case = PREFILL[name]
    arguments, _ = case.draw(rng)
    sliding = case.windows is not None
    arguments[2] = np.nan_to_num(arguments[2])
    arguments[6:8] = [_positions(rng, len(case.queries)), _positions(rng, len(arguments[0]))]
    arguments[11] = 1
    theirs = _attention_prefill(
        2, 4, 64, "float16", sliding, {}, cuda_target("h200"), sliding_window_size=case.window_size
    )
    program = paged_prefill(
        4, 2, 64, sliding_window=sliding, sliding_window_size=case.window_size, rotary=rotary,
        arch=arch,
    )  # fmt: skip
    found = emulator.run(program, arguments, arch=arch).outputs[prefill.RESULTS]
    _close(found, emulator.run(theirs, arguments).outputs[prefill.RESULTS], case.dtype)


# With these heads, no two threads of TVM's kernel store one element.
DECODE = {
    "plain": decode.Cache((30, 5, 0, 100), 16, 1, 128),
    "window": decode.Cache((200, 40, 1, 0), 16, 1, 128, windows=((150, 4), (0, 0), (0, 0), (0, 0))),
}


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("rotary", [INLINE, EITHER])
@pytest.mark.parametrize("name", DECODE)
@pytest.mark.some(2)
def test_paged_decode_is_that_of_tvm(rng, arch, rotary, name):
    cache = DECODE[name]
    arguments, *_ = cache.draw(rng)
    sliding, batch = cache.windows is not None, len(cache.lengths)
    arguments[1] = np.nan_to_num(arguments[1])
    arguments[5:7], arguments[9] = [_positions(rng, batch), _positions(rng, batch)], 1
    theirs = _attention_decode(1, 16, 128, "float16", sliding, {}, cuda_target("h200"), 16)
    program = cache.program(rotary=rotary, chunk=1, arch=arch)
    found = emulator.run(program, arguments, arch=arch).outputs[7:9]
    _close(found, emulator.run(theirs, arguments).outputs[7:9], cache.dtype)


@pytest.mark.parametrize("name", ["ragged", "prefill", "decode"])
def test_either_takes_what_is_rotated(rng, name):
    if name == "decode":
        cache = decode.Cache((30, 0, 70), 4, 2, 64)
        arguments, *exact = cache.draw(rng)
        program, results = cache.program(rotary=EITHER), slice(7, 9)
    else:
        room = ragged if name == "ragged" else prefill
        case = room.Case((3, 0, 20), (3, 0, 33), 4)
        arguments, exact = case.draw(rng)
        program, results = case.program(rotary=EITHER), room.RESULTS
    _close(emulator.run(program, arguments).outputs[results], exact, "float16")


@pytest.mark.parametrize("name", ["prefill", "decode"])
def test_inline_without_keys(rng, name):
    if name == "decode":
        cache = decode.Cache((0, 0), 4, 2, 64)
        arguments, *exact = cache.draw(rng)
        program, results, mode = cache.program(rotary=INLINE), slice(7, 9), 9
    else:
        case = prefill.Case((4, 3), (0, 0), 4)
        arguments, exact = case.draw(rng)
        program, results, mode = case.program(rotary=INLINE), prefill.RESULTS, 11
    arguments[mode] = 1
    _close(emulator.run(program, arguments).outputs[results], exact, "float16")


def test_a_mode_that_is_not_that_of_the_program(rng):
    case = ragged.Case((3,), (3,), 4)
    arguments, _ = case.draw(rng)
    with pytest.raises(Exception, match="made to rotate queries and keys"):
        emulator.run(case.program(rotary=INLINE), arguments)
    arguments[10] = 1
    with pytest.raises(Exception, match="takes queries and keys that are rotated"):
        emulator.run(case.program(rotary=BEFORE), arguments)


@pytest.mark.parametrize("make", [paged_decode, paged_prefill, ragged_prefill])
def test_other_words_are_refused(make):
    with pytest.raises(IllegalCombination, match="rotary is 'never'; it can be 'before'"):
        make(8, 2, 64, rotary="never")
