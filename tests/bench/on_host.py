"""Benchmarks with numpy in the place of the GPU."""

from __future__ import annotations

import contextlib
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from warploom.timing import sustained
from warploom_bench import compete, run

TORCH = SimpleNamespace(
    cuda=SimpleNamespace(synchronize=lambda: None, empty_cache=lambda: None),
    no_grad=contextlib.nullcontext,
)
#: What numpy is said to copy in a second.
COPY_SPEED = 1e9


class HostKernels:
    """In the place of :class:`warploom_bench.kernels.Kernels`: makers return what is called."""

    def __init__(self, folder=None, workers=None):
        self.compiled = []

    def compile(self, wanted):
        self.compiled += wanted
        return 0

    def module(self, wanted):
        return wanted.maker(*wanted.arguments)

    function = module


class HostTimer:
    """Times numpy by what this thread takes, whatever else the machine does."""

    def __init__(self, torch):
        assert torch.cuda.synchronize is TORCH.cuda.synchronize

    def idle(self, seconds):
        assert seconds <= 0.05

    def elapsed(self, warm, timed):
        warm()
        start = time.thread_time()
        timed()
        return time.thread_time() - start

    def conditions(self):
        return 1980, 650.5


class Result(np.ndarray):
    def fill_(self, value):
        self.fill(value)


def fill(array, value):
    """Poison an array of numpy, or of a class of a test."""
    (array.fill_ if hasattr(array, "fill_") else array.fill)(value)


def replace_run(monkeypatch: pytest.MonkeyPatch, torch: Any) -> None:
    """Runs of benchmarks do without a GPU."""
    monkeypatch.setattr(run, "import_torch", lambda: torch)
    monkeypatch.setattr(run, "copy_speed", lambda torch: COPY_SPEED)
    monkeypatch.setattr(run, "Kernels", HostKernels)


def on_host(monkeypatch: pytest.MonkeyPatch, torch: Any = TORCH) -> list[int]:
    """Times of the host; the list receives the number of executions of every captured graph."""
    captured = []

    def capture(torch, launch, input_sets, executions):
        captured.append(executions)
        assert executions % input_sets == 0, "a graph uses all inputs equally often"
        return lambda: [launch(i % input_sets) for i in range(executions)]

    monkeypatch.setattr(compete, "_fill", fill)
    monkeypatch.setattr(compete, "TorchTimer", HostTimer)
    monkeypatch.setattr(compete, "capture", capture)
    replace_run(monkeypatch, torch)
    monkeypatch.setattr(compete, "_GRAPH_EXECUTIONS", 2)
    # What is left of two times of the host is noise; test_bench_few_rows.py has a clock of its own.
    monkeypatch.setattr(compete, "FEW_ROWS", 0)
    monkeypatch.setattr(compete, "sustained", lambda s: sustained(s, rounds=2, seconds=0.01))
    return captured
