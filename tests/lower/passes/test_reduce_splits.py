"""Flags of CTAs that share a tile: whatever memory holds before, none is set when a launch ends."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
import tvm

from tests.shared import tile_programs
from tests.shared.lowered_programs import exact, hinted, last_cta_first, run, worst_error
from warploom.lower.emit.given_word import GIVEN_WORD
from warploom.lower.lowerings import lower

#: Sizes, tile, options of the program, and hints.
CASES = {
    "more parts than a round": ((64, 64, 1024), (64, 64, 64), {}, {"split_k": 7, "ctas": 7}),
    "a step for each part": (
        (130, 72, 200), (64, 64, 64), {"symbolic": True}, {"split_k": 4, "ctas": 5}
    ),
    "two warpgroups": ((200, 128, 448), (128, 64, 64), {}, {"stream_k": True, "ctas": 3}),
    "clusters over the edge": (
        (300, 136, 328), (64, 64, 64), {}, {"split_k": 3, "cluster": (2, 1), "ctas": 8}
    ),
    "clusters, stream-K": (
        (300, 136, 328), (64, 64, 64), {}, {"stream_k": True, "cluster": (2, 1), "ctas": 4}
    ),
    "without roles": (
        (64, 64, 512), (64, 64, 64), {}, {"split_k": 4, "ctas": 4, "specialise": False}
    ),
}  # fmt: skip
_ALLOCATED = re.compile(r'\n *sums_given = T\.alloc_buffer\(\((\d+), (\d+)\), "uint64"\)')


def with_flags_outside(func: tvm.tirx.PrimFunc) -> tuple[tvm.tirx.PrimFunc, tuple[int, int]]:
    """A lowered program whose flags are its last parameter, and their shape."""
    script = func.script()
    (found,) = _ALLOCATED.finditer(script)
    shape = int(found[1]), int(found[2])
    script = script.replace(found[0], "")
    head = re.search(r"\n(def \w+\(.*)\):", script)[1]
    parameter = f'{head}, sums_given: T.Buffer({shape}, "uint64")'
    return tvm.script.from_source(script.replace(head, parameter)), shape


def garbage(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Words that differ from a set flag: any, and those that are the most alike."""
    flags = rng.integers(0, 2**64, shape, np.uint64)
    near = np.uint64(GIVEN_WORD) ^ (np.uint64(1) << rng.integers(0, 64, shape, np.uint64))
    return np.where(rng.random(shape) < 0.5, flags, near)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.some(3)
def test_flags_are_clear_behind_a_launch_and_may_be_anything_before(rng, name):
    size, tile, options, hints = CASES[name]
    case = tile_programs.gemm(*size, tile, out_dtype="float32", stages=2, **options)
    func = hinted(case.func, **hints)
    # Turned round, owners start first, and find flags as memory has them.
    kernel = lower(func) if "cluster" in hints else last_cta_first(func)
    kernel, shape = with_flags_outside(kernel)
    flags = before = garbage(rng, shape)
    for _ in range(2):
        arguments = exact(case.arguments(rng))
        copies = [np.copy(one) if isinstance(one, np.ndarray) else one for one in arguments]
        *after, flags = run(kernel, [*copies, flags])
        assert worst_error(case, arguments, after) <= 1
        assert not (flags == np.uint64(GIVEN_WORD)).any(), "a flag is left set"
    used = flags != before
    assert used.any() and not flags[used].any(), "each that was set is cleared"


def test_no_arithmetic_of_floats_leaves_a_set_flag():
    word = np.array([GIVEN_WORD], np.uint64)
    singles = word.view(np.uint32)
    assert np.isnan(word.view(np.float32)).all()
    assert not (singles >> 22 & 1).any(), "results of arithmetic are quiet NaNs"
    for dtype, quiet in ((ml_dtypes.bfloat16, 0x7FFF), (np.float16, 0x7FFF)):
        halves = word.view(np.uint16)
        strange = np.isnan(halves.view(dtype).astype(np.float32)) & (halves & 0x7FFF != quiet)
        assert strange.any(), "and the GPU has one NaN of 16 bits"
