"""The progress bar of builds: where it appears, and what it counts."""

from __future__ import annotations

import io

import pytest
import tvm
from rich.console import Console

from warploom.compiler import progress


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "total, environ, stream, wanted",
    [
        (9, {}, _Terminal(), True),
        (9, {"WARPLOOM_PROGRESS": "1"}, _Terminal(), True),
        (9, {"WARPLOOM_PROGRESS": "0"}, _Terminal(), False),
        (9, {}, io.StringIO(), False),
        (9, {}, object(), False),
        (2, {}, _Terminal(), False),
    ],
)
def test_it_is_on_terminals_for_several_kernels(total, environ, stream, wanted):
    assert progress.is_wanted(total, environ, stream) == wanted


def test_it_is_not_in_the_workers_of_a_search(monkeypatch):
    monkeypatch.setattr("multiprocessing.parent_process", lambda: object())
    assert not progress.is_wanted(9, {}, _Terminal())


def _bar(times, total=5):
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, color_system=None)
    return progress.Bar("Compiling", total, console, iter(times).__next__), out


def test_it_counts_kernels_and_names_the_current_one():
    bar, out = _bar([0.0, 2.0])
    bar.next("first")
    bar.finish("first")
    bar.finish("second,third")
    bar.next("fourth")
    bar._shown.refresh()
    bar.close()
    last = [line for line in out.getvalue().splitlines() if "Compiling" in line][-1]
    assert "3/5" in last and "fourth" in last
    assert bar.done == 3


def test_a_quick_stage_shows_nothing():
    bar, out = _bar([0.0, 0.1, 0.2, 0.3])
    for name in "abc":
        bar.finish(name)
    bar.close()
    assert out.getvalue() == "" and bar.done == 3


def test_it_does_not_disturb_another_display_of_rich():
    outer, _ = _bar([0.0, 2.0])
    outer.next("a")
    inner = progress.Bar("Lowering", 4, outer._shown.console, iter([0.0, 2.0]).__next__)
    inner.next("b")
    inner.finish("b")
    inner.close()
    outer.close()
    assert inner.done == 1


@pytest.mark.parametrize("shown", [False, True])
def test_functions_are_counted_one_by_one(monkeypatch, shown):
    monkeypatch.setattr(progress, "is_wanted", lambda total: shown)
    functions = {tvm.ir.GlobalVar(name): name for name in "abcde"}
    assert [value for _, value in progress.counted("Lowering", functions)] == list("abcde")
