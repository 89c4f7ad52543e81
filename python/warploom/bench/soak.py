"""``python -m warploom.bench soak``: a runner, and candidates that do all that they should not.

Right candidates, and between them ones that hang, that read an address which is not mapped, that
compute something wrong, and processes that are killed. The run is right if every right candidate is
measured, every bad one is told as such, and the run goes on. Exit status 1 if it is not.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import tvm
from tvm.s_tir import Schedule
from tvm.script import tirx as T
from tvm.target import Target

from warploom.gemm.choose import ranked
from warploom.gemm.decisions import annotate
from warploom.gemm.recognition import recognise
from warploom.meta_schedule import Builder, Runner
from warploom.meta_schedule.artifact import LIBRARY, new_folder, read_facts, write_facts
from warploom.meta_schedule.measure import Measurement
from warploom.meta_schedule.runner import outcome
from warploom.meta_schedule.workloads import matmul
from warploom.target.tvm_target import default_target

#: A kernel that hangs gives the GPU back by itself after as many nanoseconds.
_HANG_NANOSECONDS = 120_000_000_000
_SPIN = f"""
__device__ void warploom_soak_hang() {{
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do {{
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  }} while (now - begin < {_HANG_NANOSECONDS}ull);
}}
"""
_WILD = """
__device__ void warploom_soak_wild() { *(volatile int*)0x10000000008ull = 1; }
"""
#: Every so many trials is a fault of some kind, on average.
_ONE_IN = 4


def bad_kernel(size: tuple[int, int, int], name: str, source: str) -> Any:
    """A kernel with the parameters of a product that calls a device function and nothing else."""
    m, n, k = size

    @T.prim_func
    def main(a: T.handle, b: T.handle, c: T.handle):
        A = T.match_buffer(a, (m, k), "float16")
        B = T.match_buffer(b, (n, k), "float16")
        C = T.match_buffer(c, (m, n), "float16")
        T.device_entry()
        T.cta_id([1])
        T.thread_id([32])
        T.evaluate(T.cuda.func_call(name, source_code=source))
        C[0, 0] = A[0, 0] + B[0, 0]

    return main


class _Soak:
    """Libraries of each kind, and what became of their trials."""

    def __init__(self, size: tuple[int, int, int], builder: Builder, runner: Runner) -> None:
        self.runner = runner
        self.seen: Counter[str] = Counter()
        self.unexpected: list[str] = []
        target, _ = default_target()
        func = matmul(*size)
        self.right = _right_candidates(func, builder, target)
        self.arguments = tuple(
            (tuple(int(extent) for extent in one.shape), str(one.dtype)) for one in func.params
        )
        double = matmul(*size, factor=2.0)
        wrong = _right_candidates(double, builder, target, count=1)[0]
        hang = bad_kernel(size, "warploom_soak_hang", _SPIN)
        wild = bad_kernel(size, "warploom_soak_wild", _WILD)
        self.bad = {
            "wrong result": self._disguised(Path(wrong).read_bytes()),
            "hang": self._compiled(hang, target),
            "illegal address": self._compiled(wild, target),
        }

    def _compiled(self, func: Any, target: Target) -> str:
        path = self._disguised(b"")
        library = tvm.compile(tvm.IRModule({"main": func}), target, tir_pipeline="tirx")
        library.export_library(path)
        return path

    def _disguised(self, content: bytes) -> str:
        """A library with the facts of a right candidate."""
        path = new_folder(str(Path(self.right[0]).parent.parent)) / LIBRARY
        path.write_bytes(content)
        write_facts(path.parent, read_facts(self.right[0]))
        return str(path)

    def step(self, rng: random.Random) -> None:
        """One trial."""
        kinds = [*self.bad, "killed"]
        kind = rng.choice(kinds) if rng.randrange(_ONE_IN) == 0 else "right"
        path = self.bad.get(kind) or rng.choice(self.right)
        future: Future[Measurement] = self.runner.submit(path, "cuda", self.arguments)
        if kind == "killed":
            time.sleep(rng.random() * 0.3)
            for pid in filter(None, (worker.pid for worker in self.runner.pool.workers)):
                os.kill(pid, signal.SIGKILL)
        found, error = outcome(future)
        self.seen[kind] += 1
        # A process that is killed at its first call takes the trial with it.
        if kind != "killed" and (found is None) == (kind == "right"):
            self.unexpected.append(f"{kind}: {error or found}")


def _right_candidates(func: Any, builder: Builder, target: Target, count: int = 6) -> list[str]:
    gemm = recognise(func)
    futures = []
    for _, knobs in ranked(gemm.problem)[:count]:
        sch = Schedule(tvm.IRModule({"main": func}))
        annotate(sch, sch.get_sblock(gemm.anchor), knobs.values())
        futures.append(builder.submit(sch.mod, target))
    return [future.result() for future in futures]


def soak(
    size: tuple[int, int, int], seconds: float, timeout_sec: float, seed: int, workers: int | None
) -> _Soak:
    """Run trials for as long; what was seen, and what should not have been."""
    builder, runner = Builder(workers), Runner(timeout_sec=timeout_sec)
    try:
        run = _Soak(size, builder, runner)
        rng, end = random.Random(seed), time.monotonic() + seconds
        while time.monotonic() < end:
            run.step(rng)
        return run
    finally:
        runner.close()
        builder.close()


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="warploom bench soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--size", type=int, default=1024, help="M, N and K (default: 1024)")
    parser.add_argument("--timeout", type=float, default=8.0,
                        help="seconds after which a candidate hangs (default: 8)")  # fmt: skip
    parser.add_argument("--workers", type=int, help="compiling processes (default: all CPUs)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    size = (options.size,) * 3
    run = soak(size, 60 * options.minutes, options.timeout, options.seed, options.workers)
    trials = ", ".join(f"{count} {kind}" for kind, count in sorted(run.seen.items()))
    print(f"{sum(run.seen.values())} trials: {trials}; {len(run.unexpected)} unexpected")
    print("\n".join(run.unexpected[:20]))
    return 1 if run.unexpected else 0
