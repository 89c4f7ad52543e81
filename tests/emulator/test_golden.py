"""Replays on the emulator what kernels gave on an NVIDIA H200 (tests/emulator/golden).

Everything is equal to the last bit, MMAs included, but for the functions that
PTX calls approximate: they come from tables that are not published. ``APPROXIMATE`` bounds them.
"""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest

from tests.emulator import run_ptx
from tests.emulator.golden import corpus, recording
from tests.emulator.golden.case import Case
from tests.emulator.options import restore_checks
from tests.emulator.ptx_driver import Driver
from warploom.runtime.emulator_libraries import find_libraries

#: Cases of which the default run takes one in so many; --slow takes all.
SAMPLE = {"wgmma": 8, "wgmma_sparse": 4, "convert": 2, "compare": 2}

#: What the emulator does not execute yet: patterns of cases' names, and why.
UNSUPPORTED = {
    r"interleave16:im2col": "im2col of interleaved tensors",
}


#: Families with cases that read what may not have arrived: they ask for more bytes than there are.
UNORDERED = {"tensor_interleave"}


def run_unchecked(driver: Driver, cases: list[Case]) -> list[tuple[Case, bytes | str]]:
    run_ptx.library().warploom_emulator_set_checks(0)
    try:
        return list(recording.run(driver, cases))
    finally:
        restore_checks()


@functools.cache
def emulator() -> Driver:
    return Driver(str(find_libraries()[0]))


@functools.cache
def recorded(family: str) -> recording.Recording:
    return recording.read(recording.DATA / f"{family}.npz")


def unsupported(name: str) -> str | None:
    return next((why for text, why in UNSUPPORTED.items() if re.search(text, name)), None)


def sample(cases: list[Case], family: str, everything: bool) -> list[Case]:
    return cases if everything else cases[:: SAMPLE.get(family, 1)]


def float_values(results: bytes, kind: str) -> np.ndarray:
    """The numbers in some bytes, in float64; of a packed type, all elements."""
    kind = kind.removesuffix("x2")
    if kind == "bf16":
        bits = np.frombuffer(results, np.uint16).astype(np.uint32) << np.uint32(16)
        return bits.view(np.float32).astype(np.float64)
    dtype = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[kind]
    return np.frombuffer(results, dtype).astype(np.float64)


#: Bounds of approximate functions: relative to the result, and absolute for results near zero.
APPROXIMATE = {
    r"(div|rcp|sqrt|rsqrt|ex2)\..*f32": (2**-22, 2**-148),
    r"lg2\..*f32": (2**-22, 2**-21.5),
    r"(sin|cos)\..*f32": (0, 2**-21),
    r"tanh\..*f32": (2**-16, 0),
    r"(rcp|rsqrt)\..*f64": (2**-20, 0),
    r"(tanh|ex2)\..*\.f16": (2**-10, 2**-24),
    r"(tanh|ex2)\..*\.bf16": (2**-7, 0),
}


def check_approximate(case: Case, actual: bytes, expected: bytes) -> None:
    bounds = next(b for text, b in APPROXIMATE.items() if re.match(text, case.name))
    kind = case.name.split(".")[-1]
    a, e = float_values(actual, kind), float_values(expected, kind)
    np.testing.assert_array_equal(np.isnan(a), np.isnan(e), err_msg=case.name)
    np.testing.assert_array_equal(np.isinf(a), np.isinf(e), err_msg=case.name)
    finite = np.isfinite(e)
    a, e = a[finite], e[finite]
    np.testing.assert_array_less(
        np.abs(a - e), np.nextafter(bounds[0] * np.abs(e) + bounds[1], np.inf), err_msg=case.name
    )


def check_bits(case: Case, actual: bytes, expected: bytes) -> None:
    start = 0
    for number, array in enumerate(case.results):
        part = slice(start, start + array.nbytes)
        got, want = (np.frombuffer(x[part], array.dtype) for x in (actual, expected))
        different = np.flatnonzero(got != want)
        start += array.nbytes
        assert different.size == 0, (
            f"{case.name}: result {number} differs from the H200's in {different.size} elements; "
            f"element {different[0]} is {int(got[different[0]]):#x}, there "
            f"{int(want[different[0]]):#x}"
        )


CHECKS = {"bits": check_bits, "approx": check_approximate}


@pytest.mark.parametrize("family", list(corpus.FAMILIES))
def test_results_are_those_of_the_h200(family, request):
    if not (recording.DATA / f"{family}.npz").exists():
        pytest.skip(f"{family} is not recorded yet")
    record = recorded(family)
    everything = request.config.getoption("--slow")
    cases = sample(corpus.family(family), family, everything)
    ran = 0
    executed = run_unchecked if family in UNORDERED else recording.run
    for case, result in executed(emulator(), [c for c in cases if not unsupported(c.name)]):
        ran += 1
        if case.name in record.failures:
            assert isinstance(result, str), f"{case.name}: the H200 refuses it"
            continue
        assert record.digests[case.name] == case.digest, f"{case.name}: recorded from other inputs"
        assert isinstance(result, bytes), f"{case.name}: {result}"
        CHECKS[case.bound](case, result, record.results[case.name])
    assert ran > 0


def test_what_is_not_supported_is_refused():
    """A case of the list above that works leaves the list."""
    refused = dict.fromkeys(UNSUPPORTED.values(), False)
    for family in corpus.FAMILIES:
        cases = [case for case in corpus.family(family) if unsupported(case.name)]
        for case, result in recording.run(emulator(), cases[:: 1 + len(cases) // 8]):
            refused[unsupported(case.name)] |= isinstance(result, str)
    assert all(refused.values()), [why for why, was in refused.items() if not was]


def test_recordings_are_complete():
    for family in corpus.FAMILIES:
        record = recorded(family)
        assert record.device == "NVIDIA H200"
        names = {case.name for case in corpus.family(family)}
        assert set(record.results) | set(record.failures) == names
        assert family == "tensor_probe" or not record.failures
