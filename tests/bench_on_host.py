"""Benchmarks with numpy in the place of the GPU."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from warploom.bench import gemm
from warploom.bench.timing import sustained

TORCH = SimpleNamespace(cuda=SimpleNamespace(synchronize=lambda: None, empty_cache=lambda: None))


class HostTimer:
    """Times numpy with the host's clock."""

    def __init__(self, torch):
        assert torch.cuda is TORCH.cuda

    def idle(self, seconds):
        assert seconds <= 0.05

    def elapsed(self, warm, timed):
        warm()
        start = time.perf_counter()
        timed()
        return time.perf_counter() - start


class Result(np.ndarray):
    def fill_(self, value):
        self.fill(value)


def on_host(monkeypatch: pytest.MonkeyPatch, torch: Any = TORCH) -> list[int]:
    """Times of the host; the list receives the number of executions of every captured graph."""
    captured = []

    def capture(torch, launch, input_sets, executions):
        captured.append(executions)
        assert executions % input_sets == 0, "a graph uses all inputs equally often"
        return lambda: [launch(i % input_sets) for i in range(executions)]

    monkeypatch.setattr(gemm, "TorchTimer", HostTimer)
    monkeypatch.setattr(gemm, "capture", capture)
    monkeypatch.setattr(gemm, "import_torch", lambda: torch)
    monkeypatch.setattr(gemm, "_GRAPH_EXECUTIONS", 2)
    monkeypatch.setattr(gemm, "sustained", lambda s: sustained(s, rounds=2, seconds=0.01))
    return captured
