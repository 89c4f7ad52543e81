"""The analytic model against the measured times that the package brings."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from warploom.bench import __main__ as bench
from warploom.bench.fit import fit, loss, products
from warploom.bench.model_error import agreements, read_candidates
from warploom.bench.report import geometric_mean
from warploom.gemm.choose import is_priced
from warploom.gemm.model import H200, predict

#: What the model reaches today, less a little: changes that lose more are noticed.
LEAST_RATIO, LARGEST_ERROR = 0.96, 0.08


def test_the_model_chooses_well() -> None:
    found = agreements(read_candidates())
    assert len(found) == 40 and sum(one.count for one in found) == 1280
    ratio = geometric_mean([one.ratio for one in found])
    error = math.sqrt(sum(one.error**2 for one in found) / len(found))
    print(f"ratio {ratio:.3f}, error {error:.3f}")
    assert ratio >= LEAST_RATIO and error <= LARGEST_ERROR
    assert all(one.ratio > 0.78 for one in found)


def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = {"m": 64, "n": 64, "k": 64, "dtype": "float16", "group": "g"}
    lines = [
        {"shape": shape, "knobs": {"tile_m": 64, "tile_n": n, "consumers": 1}, "us": us, "error": e}
        for n, us, e in ((64, 5.0, ""), (128, 8.0, ""), (32, None, "it hung"))
    ]
    file = tmp_path / "lines.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    monkeypatch.setattr(bench.emulator, "is_enabled", lambda: False)
    assert bench.main(["model", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "64 x 64 x 64" in printed and "geometric mean of the ratios" in printed


def test_a_fit_finds_constants_again() -> None:
    # Times that a known machine predicts: the fit starts elsewhere and must come close to it.
    known = replace(H200, launch=5.0, l2_bytes=30e6, step_cycles=60.0)
    candidates = [
        replace(one, us=predict(one.problem, one.knobs, known).total)
        for one in read_candidates()[::8] if is_priced(one.knobs)
    ]
    measured = products(candidates)
    before, after = loss(measured, H200), loss(measured, fit(measured, H200, rounds=8))
    assert loss(measured, known) == pytest.approx(0, abs=1e-9)
    assert after < before / 3
