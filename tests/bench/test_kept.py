"""Runs that were interrupted go on behind what they have measured."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from warploom.errors import WarploomError
from warploom_bench.kept import Kept

RUN = ["gemm", "--shape", "64x64x64", "a GPU"]


def comparison(name: str) -> SimpleNamespace:
    return SimpleNamespace(shape=name, value=len(name))


def test_a_run_goes_on(tmp_path: Path) -> None:
    first = Kept(tmp_path / "out", "gemm", RUN, resume=False)
    for name in ("a", "bb"):
        first.add(comparison(name))
    again = Kept(tmp_path / "out", "gemm", [*RUN, "--resume"], resume=True)
    assert {name: one.value for name, one in again.done.items()} == {"a": 1, "bb": 2}
    again.add(comparison("ccc"))
    assert Kept(tmp_path / "out", "gemm", RUN, resume=True).done.keys() == {"a", "bb", "ccc"}
    again.finished()
    assert Kept(tmp_path / "out", "gemm", RUN, resume=True).done == {}
    assert list((tmp_path / "out").iterdir()) == []


def test_another_run_does_not_go_on(tmp_path: Path) -> None:
    Kept(tmp_path, "gemm", RUN, resume=False).add(comparison("a"))
    with pytest.raises(WarploomError, match="is of another run, gemm --shape 64x64x64 a GPU"):
        Kept(tmp_path, "gemm", [*RUN[:-1], "another GPU"], resume=True)
    assert Kept(tmp_path, "gemm", RUN, resume=False).done == {}
    with pytest.raises(WarploomError, match="needs --out"):
        Kept(None, "gemm", RUN, resume=True)
