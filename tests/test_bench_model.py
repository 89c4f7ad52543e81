"""The analytic model against the measured times that the package brings."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from warploom.bench import __main__ as bench
from warploom.bench.model_error import agreements, geometric_mean, read_candidates

#: What the model reaches today, less a little: changes that lose more are noticed.
LEAST_RATIO, LARGEST_ERROR = 0.97, 0.12


def test_the_model_chooses_well() -> None:
    found = agreements(read_candidates())
    assert len(found) == 39 and sum(one.count for one in found) > 3000
    ratio = geometric_mean([one.ratio for one in found])
    error = math.sqrt(sum(one.error**2 for one in found) / len(found))
    print(f"ratio {ratio:.3f}, error {error:.3f}")
    assert ratio >= LEAST_RATIO and error <= LARGEST_ERROR
    assert all(one.ratio > 0.85 for one in found)


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
