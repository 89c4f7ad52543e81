"""Every element of a benchmark's result is checked, in every input set and after replays."""

from types import SimpleNamespace

import numpy as np
import pytest

from tests.bench.on_host import TORCH, Result, on_host
from warploom.errors import WarploomError
from warploom.gemm_shape import GemmShape
from warploom.timing import Sampling, Statistics
from warploom_bench import compete, few_rows
from warploom_bench.check import ELEMENT_FACTOR, Deviation, deviation, worst_of
from warploom_bench.gemm import choose_and_judge
from warploom_bench.operands import RELATIVE_ERROR
from warploom_bench.report import Entry

SHAPE = GemmShape("g", 96, 112, 64, "float16")
SETS = 3


def rounded(exact, allowed, rng):
    """What a right kernel gives: normal errors of the size that is allowed on average."""
    return exact * (1 + rng.standard_normal(exact.shape) * allowed / 2)


@pytest.mark.parametrize("dtype", [name for name in RELATIVE_ERROR if name != "int8"])
@pytest.mark.parametrize("size", [256, 1024])
def test_rounding_is_within_the_bounds(dtype, size, rng):
    exact = rng.standard_normal((size, size)) * rng.uniform(0.01, 100, (size, 1))
    assert deviation(rounded(exact, RELATIVE_ERROR[dtype], rng), exact).is_within(
        RELATIVE_ERROR[dtype]
    )


@pytest.mark.parametrize("dtype", RELATIVE_ERROR)
@pytest.mark.parametrize("garbage", ["block", "row", "nan", "zeros", "shifted"])
@pytest.mark.some(6)
def test_a_few_wrong_elements_are_found(dtype, garbage, rng):
    """Of so many elements that the norm hardly changes."""
    allowed, size = RELATIVE_ERROR[dtype], 2048
    exact = rng.standard_normal((size, size))
    found = rounded(exact, allowed, rng)
    y, x = (int(one) for one in rng.integers(0, size - 16, 2))
    block = slice(y, y + 16), slice(x, x + 16)
    if garbage == "block":
        found[block] = rng.standard_normal((16, 16))
    elif garbage == "row":
        found[y, x : x + 8] = 0
    elif garbage == "nan":
        found[y, x] = np.nan
    elif garbage == "zeros":
        found[block] = 0
    else:
        found[block] = found[y : y + 16, x + 1 : x + 17].copy()
    wrong = deviation(found, exact)
    assert not wrong.is_within(allowed)
    assert y <= wrong.place[0] < y + 16 and x <= wrong.place[1] < x + 16
    assert str(wrong.place) in str(wrong)


def test_exact_results_of_integers_are_right_and_others_are_not(rng):
    exact = rng.integers(-1000, 1000, (64, 64)).astype(float)
    assert deviation(exact, exact).is_within(0.0)
    assert not deviation(exact + np.eye(64), exact).is_within(0.0)


def test_rows_of_zeros_are_right_if_they_are_zeros():
    zeros = np.zeros((4, 8))
    assert deviation(zeros, zeros).is_within(0.0)
    assert not deviation(zeros + 1e-9, zeros).is_within(1e-3)


def test_the_worst_of_several_is_the_one_that_was_not_written():
    right, wrong, missing = (Deviation(1e-4, e) for e in (1e-3, 5.0, float("nan")))
    assert worst_of(right, wrong) is wrong and worst_of(wrong, missing, right) is missing
    assert ELEMENT_FACTOR >= 1 and not missing.is_within(1.0)


@pytest.fixture
def operands(rng):
    def one():
        a, b = (rng.standard_normal((rows, SHAPE.k)) for rows in (SHAPE.m, SHAPE.n))
        c = np.full((SHAPE.m, SHAPE.n), np.nan).view(Result)
        return SimpleNamespace(a=a, b=b, c=c, calls=0)

    return [one() for _ in range(SETS)]


def right(o):
    o.calls += 1
    np.matmul(o.a, o.b.T, out=o.c)


def compare(products, sets):
    def check(o):
        return deviation(np.asarray(o.c), o.a @ o.b.T)

    found = compete.compare_competitors(TORCH, SHAPE, products, sets, check, 1e-6, 2, True)
    return {entry.name: entry.is_right for entry in found.entries}


@pytest.mark.parametrize("number", range(SETS))
def test_every_input_set_is_checked(monkeypatch, operands, number):
    on_host(monkeypatch)
    bad = operands[number]

    def wrong(o):
        right(o)
        if o is bad:
            o.c[3:5, 7] += 1

    assert compare({"ours": wrong, "library": right}, operands) == {"ours": False, "library": True}


def test_what_a_replay_computes_is_checked(monkeypatch, operands):
    """A result of before the capture must not pass for that of the replay."""
    on_host(monkeypatch)
    monkeypatch.setattr(
        compete, "capture", lambda torch, launch, sets, executions: lambda: launch(0)
    )
    assert compare({"ours": right, "library": right}, operands) == {
        "ours": False, "library": False
    }  # fmt: skip


class Clock:
    """Counts seconds that fakes say they take."""

    now = 0.0

    def __init__(self, torch):
        pass

    def idle(self, seconds):
        pass

    def elapsed(self, warm, timed):
        before = Clock.now
        timed()
        return Clock.now - before

    def conditions(self):
        return None, None


def test_kernels_behind_a_filler_are_charged_what_they_add(monkeypatch):
    """A kernel that hides 3 us under its like hides nothing behind a kernel without a trigger."""

    def spend(seconds):
        Clock.now += seconds

    def capture(torch, launch, sets, executions):
        return lambda: [launch(i % sets) for i in range(executions)]

    monkeypatch.setattr(few_rows, "TorchTimer", Clock)
    monkeypatch.setattr(few_rows, "capture", capture)
    monkeypatch.setattr(few_rows, "burst", lambda rounds: Sampling("burst", rounds, 0.0, 1, 0))
    monkeypatch.setattr(few_rows, "FILLERS", {"alone": lambda torch: lambda: spend(10e-6)})
    launches = {"ours": lambda i: spend(5e-6), "library": lambda i: spend(7e-6)}
    found = few_rows.behind(TORCH, "alone", launches, SETS, 5)
    assert {name: one.median for name, one in found.items()} == {
        "ours": pytest.approx(5e-6), "library": pytest.approx(7e-6)
    }  # fmt: skip
    with pytest.raises(WarploomError, match="nothing adds no time"):
        few_rows.behind(TORCH, "alone", {"nothing": lambda i: None}, SETS, 5)


def test_gemms_of_few_rows_have_times_behind_other_kernels(monkeypatch, operands):
    on_host(monkeypatch)
    monkeypatch.setattr(compete, "FEW_ROWS", 128)
    behind = lambda torch, filler, launches, sets, rounds: {  # noqa: E731
        name: Statistics((1e-6 * (1 + i),)) for i, name in enumerate(launches)
    }
    monkeypatch.setattr(compete, "behind", behind)
    found = compete.compare_competitors(
        TORCH, SHAPE, {"ours": right, "library": right}, operands,
        lambda o: deviation(np.asarray(o.c), o.a @ o.b.T), 1e-6, 2, True,
    )  # fmt: skip
    assert found.protocols == ("burst", *few_rows.FILLERS)
    assert found.ratio(found.entries[0], "alone") == 2


def test_an_algorithm_is_chosen_by_other_samples_than_those_that_judge_it():
    def entry(name, samples):
        return Entry(name, {"burst": Statistics(samples)}, Deviation(1e-4, 1e-3), 1e-3, 1e-6)

    entries = (
        entry("ours", (1.0,) * 4), entry("cublaslt", (2.0,) * 4),
        entry("best #0", (3.0, 3.0, 3.0, 3.0)), entry("best #1", (1.0, 9.0, 1.0, 9.0)),
    )  # fmt: skip
    kept = choose_and_judge(entries)
    assert [one.name for one in kept] == ["ours", "cublaslt", "best"]
    assert kept[2].times["burst"].samples == (9.0, 9.0)
