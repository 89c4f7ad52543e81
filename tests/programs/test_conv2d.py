"""Convolutions as GEMMs: interpreted, and lowered for both architectures, against numpy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import tvm
import tvm_ffi

from tests.shared.lowered_programs import check, hinted
from tests.shared.sampling import sampled
from tests.shared.tile_programs.case import Case, poisoned, precision, random_values, wide
from warploom import language as wl
from warploom.errors import Decline, IllegalCombination
from warploom.lower.analysis.rows import part_of_rows, row_dimensions
from warploom.lower.lowerings import lower
from warploom.lower.trace import lower_trace
from warploom.programs import conv2d
from warploom.tile import ir


def exact(x, f, bias, stride: int, padding: int, relu: bool, dilation: int = 1) -> np.ndarray:
    """The convolution in double precision; x is ``[n, h, w, c]``."""
    pad = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    taps = f.shape[1:3]
    reach = tuple(dilation * (t - 1) + 1 for t in taps)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(wide(x), pad), reach, (1, 2))
    windows = windows[..., ::dilation, ::dilation]
    y = np.einsum("nhwcrs,krsc->nhwk", windows[:, ::stride, ::stride], wide(f)) + bias
    return np.maximum(y, 0) if relu else y


def convolution(
    n: int, h: int, w: int, c: int, k: int, taps=(3, 3), stride=1, padding=1, dtype="float16",
    tile=(8, 8, 64, 64), stages=2, relu=True, dilation=1,
) -> Case:  # fmt: skip
    func = conv2d(n, h, w, c, k, taps, stride, padding, dtype, tile, stages, relu, dilation)
    size = [
        (x + 2 * padding - dilation * (t - 1) - 1) // stride + 1
        for x, t in zip((h, w), taps, strict=True)
    ]

    def arguments(rng):
        x = random_values(rng, (n, h, w, c), dtype)
        f = random_values(rng, (k, *taps, c), dtype)
        return [x, f, random_values(rng, (k,), "float32"), poisoned((n, *size, k), dtype)]

    def expected(args):
        x, f, bias, _ = args
        return {3: exact(x, f, bias, stride, padding, relu, dilation)}

    return Case(func, arguments, expected, precision(dtype))


CASES = {
    "3 x 3": lambda: convolution(2, 9, 10, 64, 72),
    "3 x 3, stride 2": lambda: convolution(2, 10, 12, 64, 72, stride=2, dtype="bfloat16"),
    "3 x 3, no padding": lambda: convolution(1, 12, 19, 128, 24, padding=0, relu=False),
    "1 x 1": lambda: convolution(1, 17, 18, 192, 40, (1, 1), padding=0, tile=(8, 16, 64, 64)),
    "1 x 1, stride 2": lambda: convolution(
        1, 20, 18, 96, 40, (1, 1), 2, 0, tile=(8, 16, 64, 32), dtype="bfloat16"
    ),
    "5 x 3": lambda: convolution(1, 17, 18, 32, 40, (5, 3), 1, 2, tile=(4, 16, 64, 32)),
    "3 x 3, stride 2, odd sizes": lambda: convolution(
        2, 11, 13, 32, 40, stride=2, tile=(4, 16, 48, 32)
    ),
    "3 x 3, dilation 2": lambda: convolution(1, 12, 19, 64, 24, padding=2, dilation=2),
    "3 x 3, stride 3, dilation 2": lambda: convolution(
        2, 17, 16, 32, 40, stride=3, padding=3, dilation=2, tile=(8, 8, 40, 32)
    ),
    "4 x 4, stride 4": lambda: convolution(1, 32, 32, 32, 64, (4, 4), 4, 0, tile=(4, 16, 64, 32)),
    "a row of pixels": lambda: convolution(2, 3, 70, 64, 64, tile=(1, 64, 64, 64)),
    "wide rows": lambda: convolution(1, 4, 140, 64, 64, (1, 3), 1, 1, tile=(1, 128, 64, 64)),
    "rows of 36 channels": lambda: convolution(1, 9, 9, 64, 36),
    "few pixels": lambda: convolution(1, 2, 2, 64, 8, stages=1),
    "many steps": lambda: convolution(1, 8, 8, 256, 64, stages=3),
}
ARCHS = ("sm_90a", "sm_100a")
HINTS = (
    {}, {"cluster": (2, 1)}, {"cluster": (2, 2)}, {"cluster": (1, 2)}, {"persistent": False},
    {"split_k": 3}, {"stream_k": True, "cluster": (2, 1)},
)  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.some(4)
def test_the_meaning(name, rng):
    case = CASES[name]()
    assert tvm_ffi.structural_equal(tvm.script.from_source(case.func.script()), case.func)
    arguments = case.arguments(rng)
    wl.interpret(case.func, arguments)
    ((index, expected),) = case.expected(arguments).items()
    bound = (case.tolerance + 4e-6) * np.abs(expected).max()
    assert np.abs(wide(arguments[index]) - expected).max() <= bound


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(("number", "name"), sampled(enumerate(CASES), 2))
@pytest.mark.some(4)
def test_kernels_are_right_and_free_of_races(number, name, arch, rng):
    hints = HINTS[number % len(HINTS)]
    if arch == "sm_90a" and number % 4 == 3:
        hints = {"specialise": False}
    check(CASES[name](), rng, arch, **hints)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_kernels_under_all_hints(name, rng):
    for arch, hints in itertools.product(ARCHS, (*HINTS, {"specialise": False})):
        if hints.get("specialise") is None or arch == "sm_90a":
            check(CASES[name](), rng, arch, **hints)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.some(3)
def test_random_convolutions(seed):
    rng = np.random.default_rng(seed)
    stride = int(rng.integers(1, 3))
    taps = tuple(int(t) for t in rng.integers(1, 5, 2))
    padding = int(rng.integers(0, 3))
    h, w = (int(x) for x in stride * rng.integers(5, 12, 2) + rng.integers(0, 2, 2))
    case = convolution(
        int(rng.integers(1, 3)), h, w, int(rng.choice([32, 64, 96])), 8 * int(rng.integers(1, 12)),
        taps, stride, padding, str(rng.choice(["float16", "bfloat16"])),
        (*map(int, rng.choice([(8, 8), (4, 16), (2, 32), (16, 4), (8, 16), (2, 64)])), 48, 32),
        int(rng.integers(1, 4)), bool(rng.integers(2)), int(rng.integers(1, 3)),
    )  # fmt: skip
    check(case, rng, ARCHS[seed % 2])


def test_output_leaves_by_tma():
    steps = lower_trace(CASES["3 x 3"]().func)
    decided = [one for step in steps for one in step.decisions]
    assert "store into Y: by TMA, in chunks of 64 x 64 elements" in decided


def test_what_does_not_fit():
    with pytest.raises(IllegalCombination, match="96 channels must be a multiple of 64"):
        convolution(1, 8, 8, 96, 64)
    with pytest.raises(IllegalCombination, match="a stride of 9 be within 1 to 8"):
        convolution(1, 9, 8, 64, 64, stride=9)
    # Three rows of pixels for two warpgroups.
    case = convolution(1, 8, 128, 64, 64, tile=(3, 128, 64, 64))
    with pytest.raises(Decline, match="3 rows of the rectangle of Y do not divide among 2"):
        lower(hinted(case.func, consumers=2))


@pytest.mark.parametrize("shape", [(8, 16), (1, 128), (2, 4, 16), (4, 1, 32), (3, 64), (64,)])
def test_parts_of_rows(shape, rng):
    total = math.prod(shape)
    starts = [int(s) for s in rng.integers(0, 9, len(shape) + 1)]
    ranges = [(s, ir.as_expr(e)) for s, e in zip(starts, (*shape, 24), strict=True)]
    dimensions = row_dimensions(ranges, total)
    pixels = np.stack(np.meshgrid(
        *(np.arange(s, s + e) for s, e in zip(starts, shape, strict=False)), indexing="ij"
    ), -1).reshape(total, -1)  # fmt: skip
    assert row_dimensions(ranges, 2 * total) is None or shape == (64,)
    for rows in (8, 16, 32, 64):
        for part in range(total // rows):
            found = part_of_rows(ranges, dimensions, part, rows)
            own = pixels[part * rows : part * rows + rows]
            box = math.prod(int(np.ptp(own[:, d])) + 1 for d in range(own.shape[1])) == rows
            assert (found is not None) == box
            if found is not None:
                axes = [np.arange(int(s), int(s) + int(e)) for s, e in found[:-1]]
                grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(rows, -1)
                assert np.array_equal(grid, own) and found[-1] is ranges[-1]
