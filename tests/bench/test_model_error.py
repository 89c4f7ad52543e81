"""The analytic model against the measured times that the package brings."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from warploom.decide.machine import H200
from warploom.decide.model import predict
from warploom_bench import __main__ as bench
from warploom_bench.fit import by_gemm, fit, loss
from warploom_bench.measured import PUBLIC, RANDOM, packaged_candidates
from warploom_bench.model_error import Agreement, agreements
from warploom_bench.report import geometric_mean


def _means(found: list[Agreement]) -> tuple[float, float]:
    """The geometric mean of the ratios, and the root mean square of the errors."""
    error = math.sqrt(sum(one.error**2 for one in found) / len(found))
    return geometric_mean([one.ratio for one in found]), error


@pytest.mark.parametrize(
    ("name", "gemms", "least", "largest"), [(PUBLIC, 40, 0.96, 0.1), (RANDOM, 210, 0.94, 0.13)]
)
def test_the_constants_of_the_package_describe_measured_times(name, gemms, least, largest) -> None:
    """The constants were fitted to them; a model that changed has to be fitted again."""
    judged = agreements(packaged_candidates(name))
    ratio, error = _means(judged)
    print(f"ratio {ratio:.3f}, error {error:.3f}, worst {min(one.ratio for one in judged):.3f}")
    assert len(judged) == gemms and ratio >= least and error <= largest
    assert all(one.ratio > 0.6 for one in judged)


def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = {"m": 64, "n": 64, "k": 64, "dtype": "float16", "group": "g"}
    lines = [
        {"shape": shape, "config": {"tile_m": 64, "tile_n": n, "consumers": 1}, "us": us,
         "error": e}
        for n, us, e in ((64, 5.0, ""), (128, 8.0, ""), (32, None, "it hung"))
    ]
    file = tmp_path / "lines.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    monkeypatch.setattr(bench.emulator, "is_enabled", lambda: False)
    assert bench.main(["model-error", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "64 x 64 x 64" in printed and "geometric mean of the ratios" in printed


def test_a_fit_finds_constants_again() -> None:
    # Times that a known machine predicts: the fit starts elsewhere and must come close to it.
    known = replace(H200, launch=5.0, l2_bytes=3000.0, wait_cycles=300.0)
    candidates = [
        replace(one, us=predict(one.problem, one.config, known).total)
        for one in packaged_candidates(PUBLIC)[::8]
    ]
    measured = by_gemm(candidates)
    before, after = loss(measured, H200), loss(measured, fit(measured, H200, rounds=8))
    assert loss(measured, known) == pytest.approx(0, abs=1e-9)
    assert after < before / 3
