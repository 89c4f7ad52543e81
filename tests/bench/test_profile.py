"""``warploom bench profile``: the same kernel, recording and not, side by side."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tvm

from tests.bench.on_host import TORCH, replace_run
from warploom.decide import Config
from warploom.programs import gemm
from warploom.timing import Statistics
from warploom_bench import timeline
from warploom_bench.check import Deviation, deviation
from warploom_bench.operands import RELATIVE_ERROR
from warploom_bench.report import EXIT_RIGHT, EXIT_SLOW, EXIT_WRONG, Comparison, Entry

SIZE = 128


def comparison(torch, shape, products, sets, error, allowed, rounds, burst_only):
    """As :func:`compare_competitors`, with a millisecond for everybody."""
    entries = []
    for name, product in products.items():
        sets[0].c.copyfrom(np.full(sets[0].c.shape, np.nan, np.float16))
        product(sets[0])
        times = {"burst": Statistics((1e-3,))}
        entries.append(Entry(name, times, error(sets[0]), allowed, 1e-6))
    return Comparison(shape, tuple(entries))


@pytest.mark.gpu
def test_competitors_are_one_program(rng, monkeypatch):
    monkeypatch.setattr(timeline, "compare_competitors", comparison)
    a, b = (rng.standard_normal((SIZE, SIZE)).astype(np.float16) for _ in range(2))
    expected = a.astype(np.float64) @ b.astype(np.float64).T
    arrays = (a, b, np.empty((SIZE, SIZE), np.float16))
    operands = SimpleNamespace(
        **{n: tvm.runtime.tensor(x, tvm.cuda(0)) for n, x in zip("abc", arrays, strict=True)}
    )

    def error(one):
        return deviation(one.c.numpy().astype(float), expected)

    config = Config(tile_m=128, tile_n=128, stages=2)
    kernels = timeline._Kernels(gemm(config, SIZE, SIZE, SIZE), lambda o: (o.a, o.b, o.c))
    measured = kernels.compare(TORCH, "128", [operands], error, RELATIVE_ERROR["float16"], 1, True)
    names = [entry.name for entry in measured.comparison.entries]
    assert names == [timeline.RECORDS, timeline.PLAIN, timeline.RECORDS_ALL]
    assert all(entry.is_right for entry in measured.comparison.entries)
    assert measured.comparison.ratio(measured.comparison.entries[0], "burst") == 1
    assert {span.category for one in measured.timeline.streams for span in one.spans} >= {
        "wait", "load", "mma", "epilogue",
    }  # fmt: skip


@pytest.mark.parametrize(
    "seconds, error, status", [(1.02, 0, EXIT_RIGHT), (1.04, 0, EXIT_SLOW), (1, 1, EXIT_WRONG)]
)
def test_more_than_three_percent_is_too_slow(monkeypatch, capsys, tmp_path, seconds, error, status):
    def measured(torch, shape, rounds, burst_only):
        entries = [
            Entry(name, {"burst": Statistics((time,))}, Deviation(error, error), 0.5, 1e-6)
            for name, time in ((timeline.RECORDS, seconds), (timeline.PLAIN, 1.0))
        ]
        return timeline.Measured(
            Comparison(shape, tuple(entries)), SimpleNamespace(summary=lambda: "a table")
        )

    monkeypatch.setattr(timeline, "compare_gemm", measured)
    monkeypatch.setattr(timeline, "compare_attention", measured)
    replace_run(monkeypatch, TORCH)
    assert timeline.main(["--size", "64", "--out", str(tmp_path)]) == status
    assert f"64x64x64 float16: {1 / seconds:.3f} of records nothing" in capsys.readouterr().out
    assert (tmp_path / "profile.json").exists() and (tmp_path / "profile.md").exists()
