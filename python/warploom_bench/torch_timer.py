"""Times kernels with CUDA events, on PyTorch's current stream.

Kernels of TVM that are given PyTorch tensors run on that stream, too, so that competitors of both
kinds are timed alike and can be captured into CUDA graphs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from warploom.runtime import nvml
from warploom.timing import Launch


class TorchTimer:
    """A :class:`warploom.timing.Timer` for the current CUDA device of PyTorch."""

    def __init__(self, torch: Any):
        self._torch = torch
        self._start, self._stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def idle(self, seconds: float) -> None:
        self._torch.cuda.synchronize()
        if seconds > 0:
            time.sleep(seconds)

    def elapsed(self, warm: Callable[[], object], timed: Callable[[], object]) -> float:
        warm()
        self._start.record()
        timed()
        self._stop.record()
        self._stop.synchronize()
        return self._start.elapsed_time(self._stop) / 1e3

    def conditions(self) -> tuple[float | None, float | None]:
        return nvml.sm_clock(), nvml.power()


def capture(torch: Any, launch: Launch, input_sets: int, executions: int) -> Callable[[], None]:
    """A CUDA graph of ``executions`` launches over rotating input sets, as a function to replay.

    For kernels so short that launching them from the host takes longer than running them.
    """
    import tvm_ffi

    launch(0)  # modules are loaded lazily, which a capture would not survive
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with tvm_ffi.use_torch_stream(torch.cuda.graph(graph)):
        for i in range(executions):
            launch(i % input_sets)
    torch.cuda.synchronize()
    return graph.replay


def copy_speed(torch: Any, megabytes: int = 1024, copies: int = 5) -> float:
    """Bytes a second that a device copy moves, read and written ones together."""
    source = torch.empty(megabytes << 20, dtype=torch.uint8, device="cuda")
    target, timer = torch.empty_like(source), TorchTimer(torch)

    def run() -> None:
        target.copy_(source)

    timer.idle(0.0)
    seconds = min(timer.elapsed(run, run) for _ in range(copies))
    return 2 * source.numel() / seconds
