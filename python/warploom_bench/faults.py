"""Faults in searches: candidates that misbehave, and processes that are killed.

:class:`FaultyBuilder` builds the candidates, and then puts something else in the place of
some of it. Nothing that a search does knows of that; afterwards :func:`complaints` says what it
should have noticed.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.builder import BuilderInput, BuilderResult, PyBuilder
from tvm.script import tirx as T
from tvm.target import Target

from warploom.meta_schedule import Builder
from warploom.meta_schedule.artifact import new_folder, read_facts, write_facts
from warploom.meta_schedule.builder import promises
from warploom.meta_schedule.journal import Entry
from warploom.meta_schedule.processes import Pool

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
_NOTHING = """
__device__ void warploom_soak_nothing() { }
"""
#: Faults of a candidate: the function that it calls before it stores one element.
BAD_KERNELS = {
    "hang": ("warploom_soak_hang", _SPIN),
    "illegal address": ("warploom_soak_wild", _WILD),
    "wrong result": ("warploom_soak_nothing", _NOTHING),
}
#: Nothing is wrong with the candidate, but processes are killed while it is measured.
KILLED = "killed"


def bad_kernel(name: str, source: str) -> Any:
    """A kernel with the parameters of a float16 GEMM of any size.

    It calls a device function, and stores one element.
    """

    @T.prim_func
    def main(a: T.handle, b: T.handle, c: T.handle):
        m, n, k = T.int32(), T.int32(), T.int32()
        A = T.match_buffer(a, (m, k), "float16")
        B = T.match_buffer(b, (n, k), "float16")
        C = T.match_buffer(c, (m, n), "float16")
        T.device_entry()
        T.cta_id([1])
        T.thread_id([32])
        T.evaluate(T.cuda.func_call(name, source_code=source))
        C[0, 0] = A[0, 0] + B[0, 0]

    return main


def build_bad_kernels(folder: Path, target: Target) -> dict[str, Path]:
    """Libraries with :data:`BAD_KERNELS`, in a folder."""
    libraries = {}
    for kind, (name, source) in BAD_KERNELS.items():
        libraries[kind] = folder / f"{name}.so"
        mod = tvm.IRModule({"main": bad_kernel(name, source)})
        tvm.compile(mod, target, tir_pipeline="tirx").export_library(str(libraries[kind]))
    return libraries


@dataclass(frozen=True)
class Injected:
    """A fault that took the place of a candidate.

    Attributes
    ----------
    kind : str
        One of :data:`BAD_KERNELS`, or :data:`KILLED`.
    workload : str
    config : dict or None
        As the journal has them.
    """

    kind: str
    workload: str
    config: dict[str, int] | None


@derived_object
class FaultyBuilder(PyBuilder):
    """A builder for searches for float16 GEMMs, with faults between its candidates.

    Parameters
    ----------
    builder : Builder
        One that builds ahead.
    victims : Pool
        Processes that are killed.
    target : Target
    one_in : int
        How many candidates there are for one fault, on average.
    seed : int
    """

    def __init__(self, builder: Any, victims: Pool, target: Target, one_in: int, seed: int) -> None:
        super().__init__()
        self.builder, self.victims, self.one_in = builder, victims, one_in
        self.random = random.Random(seed)
        self.bad = build_bad_kernels(new_folder(), target)
        self.injected: list[Injected] = []
        self._before: Counter[str] = Counter()
        self._lock = threading.Lock()

    def build(self, build_inputs: list[BuilderInput]) -> list[BuilderResult]:
        built = list(self.builder.build(build_inputs))
        for result in built:
            if self.random.randrange(self.one_in) == 0:
                path = str(result.artifact_path)
                kind = self.random.choice([*self.bad, KILLED])
                promises[path] = self._spoilt(promises[path], path, kind)
        return built

    def _spoilt(self, promised: Future[str], path: str, kind: str) -> Future[str]:
        """The same promise, kept with something else."""
        spoilt: Future[str] = Future()

        def settle(done: Future[str]) -> None:
            if done.exception() is not None:
                spoilt.set_exception(done.exception())
                return
            facts = read_facts(path)
            write_facts(Path(path).parent, replace(facts, kernel=""))  # of the code, not any more
            with self._lock:
                self.injected.append(Injected(kind, facts.workload, facts.config))
            if kind == KILLED:
                threading.Timer(self.random.random() * 0.5, kill, (self.victims,)).start()
            else:
                shutil.copyfile(self.bad[kind], path)
            spoilt.set_result(path)

        promised.add_done_callback(settle)
        return spoilt

    def close(self) -> None:
        """End the processes, and remove the artifacts."""
        self.builder.close()
        for folder in {path.parent for path in self.bad.values()}:
            shutil.rmtree(folder)

    def forget(self) -> None:
        """Keep of the faults of one search how many there were, before the next begins."""
        self._before = self.counts()
        self.injected.clear()

    def counts(self) -> Counter[str]:
        """How many faults there were, by kind; 0 of a kind that did not occur."""
        kinds = Counter(fault.kind for fault in self.injected)
        return Counter({kind: self._before[kind] + kinds[kind] for kind in (*BAD_KERNELS, KILLED)})


def complaints(injected: Iterable[Injected], entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the mistakes of a search that its journal shows.

    A fault that was measured as if it were none; a candidate that has failed although nothing was
    wrong with it; a trial that is missing.
    """
    injected, entries = list(injected), list(entries)
    bad = _spoilt(injected)
    for entry in failed_but_right(injected, entries):
        yield f"{entry.problem}, nothing wrong: {entry.error}"
    for entry in entries:
        if _key(entry) in bad and entry.us is not None:
            yield f"{entry.problem}, {bad[_key(entry)]}: measured, {entry.us:.2f} us"
    for key in bad.keys() - {_key(entry) for entry in entries}:
        yield f"a trial with the fault '{bad[key]}' is lost"


def failed_but_right(injected: Iterable[Injected], entries: Iterable[Entry]) -> list[Entry]:
    """The trials that have failed although nothing was wrong with their candidates."""
    bad = _spoilt(injected)
    return [entry for entry in entries if entry.us is None and _key(entry) not in bad]


def _spoilt(injected: Iterable[Injected]) -> dict[tuple[str, str], str]:
    """The faults of candidates."""
    return {_key(fault): fault.kind for fault in injected if fault.kind != KILLED}


def _key(trial: Injected | Entry) -> tuple[str, str]:
    return trial.workload, str(sorted((trial.config or {}).items()))


def kill(pool: Pool) -> None:
    """Kill the processes of a pool that are running."""
    for pid in filter(None, [worker.pid for worker in pool.workers]):
        os.kill(pid, signal.SIGKILL)


def faulty(target: Target, runner: Any, workers: int | None, one_in: int, seed: int) -> Any:
    """A :class:`FaultyBuilder` that kills the processes of a runner."""
    return FaultyBuilder(Builder(workers, ahead=True), runner.pool, target, one_in, seed)
