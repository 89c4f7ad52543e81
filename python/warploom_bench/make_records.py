"""``python -m warploom_bench records``: measure layers of public models for the shipped records.

GEMMs go in the order of what their records cover for their time. For each, the model's best configs
and the best of other tiles are compiled on all CPUs, ahead of the GPU, checked, and measured side
by side; the fastest gets the record if it certainly beats the model's choice, which gets it
otherwise. Each GEMM is a line of ``--out`` at once: the same command goes on where it was cut off,
and leaves out the GEMMs whose records for this GPU the package ships already. ``warploom tune db
ship`` takes the file. PyTorch and a GPU are needed.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warploom.command_line import Parser, duration, natural, output_file, positive, require_gpu
from warploom.decide.problem import GemmProblem
from warploom.errors import WarploomError
from warploom.meta_schedule.judged import Journal, Judged
from warploom.meta_schedule.lookup import Lookup
from warploom.meta_schedule.package_records import shipped
from warploom.meta_schedule.processes import Pool
from warploom.meta_schedule.records import Record
from warploom.target.gpus import GPUS
from warploom.target.tvm_target import default_target, gpu_of
from warploom_bench.hit_rate import rates
from warploom_bench.model_gemms import ModelGemm, by_importance
from warploom_bench.model_kernels import Built, Timed, begin, build, time_kernels
from warploom_bench.run import import_torch
from warploom_bench.winner import judge

#: Seconds for the configs of a GEMM to be compiled, and to be measured.
_BUILD_TIMEOUT, _MEASURE_TIMEOUT = 120.0, 60.0
#: Seconds for PyTorch to be imported, on a machine that has not read its files before.
_BEGIN_TIMEOUT = 300.0
#: Seconds between two words about the progress.
_SAY_SECONDS = 15.0

Build = Callable[[ModelGemm], Future[list[Built]]]
Measure = Callable[[ModelGemm, Sequence[str]], Future[list[Timed]]]


@dataclass
class Progress:
    """What a run has done so far.

    Attributes
    ----------
    done, won, failed, configs : int
        GEMMs; those whose default was beaten; those without a record; configs that were timed.
    """

    begin: float = field(default_factory=time.monotonic)
    done: int = 0
    won: int = 0
    failed: int = 0
    configs: int = 0
    _said: float = field(default_factory=time.monotonic)

    def add(self, entry: Judged) -> None:
        """Count a GEMM, and say something now and then."""
        self.done += 1
        self.configs += entry.measured
        self.failed += entry.record is None
        if entry.record is None:
            print(f"{entry.problem}: {entry.error}", flush=True)
        else:
            self.won += entry.record.seconds * 1e6 < entry.default_us
        if time.monotonic() - self._said > _SAY_SECONDS:
            self._said = time.monotonic()
            print(self, flush=True)

    def __str__(self) -> str:
        seconds = max(time.monotonic() - self.begin, 1e-9)
        return (
            f"{self.done} GEMMs in {seconds:.0f} s ({self.done / seconds:.1f} a second, "
            f"{self.configs} configs), {self.won} with a config that beats the default, "
            f"{self.failed} failed"
        )


def run(
    gemms: Iterable[ModelGemm], build_one: Build, measure_one: Measure, ahead: int, until: float,
    arch: str, gpu: str,
) -> Iterator[Judged]:  # fmt: skip
    """Judge GEMMs, in order, until a moment of ``time.monotonic``.

    Parameters
    ----------
    gemms : iterable of ModelGemm
    build_one, measure_one : callable
        Begin to compile the configs of a GEMM, and to measure their libraries.
    ahead : int
        GEMMs that are being compiled while others are measured.
    until : float
        No GEMM is begun or measured afterwards.
    arch, gpu : str
        Of the records.
    """
    source = iter(gemms)
    building: deque[tuple[ModelGemm, Future[list[Built]]]] = deque()
    measuring: deque[tuple[ModelGemm, list[Built], Future[list[Timed]] | None]] = deque()
    while True:
        in_time = time.monotonic() < until
        for gemm in itertools.islice(source, ahead - len(building)) if in_time else ():
            building.append((gemm, build_one(gemm)))
        # One is measured, and one more waits for it.
        while building and in_time and len(measuring) < 2:
            gemm, future = building.popleft()
            built, error = _result(future)
            paths = [one.path for one in built or () if one.path]
            running = measure_one(gemm, paths) if paths and built[0].path else None
            measuring.append((gemm, built or [Built(None, error=error)], running))
        if not measuring:
            break
        gemm, built, running = measuring.popleft()
        timed, error = _result(running) if running is not None else (None, built[0].error)
        yield _judged(gemm, built, timed, error, arch, gpu)
        for one in built:
            if one.path:
                Path(one.path).unlink(missing_ok=True)
    for _, future in building:
        future.cancel()


def _result(future: Future[list[Any]]) -> tuple[list[Any] | None, str]:
    try:
        return future.result(), ""
    except WarploomError as error:  # a worker that was lost, or that an exception ended
        return None, str(error)


def _judged(
    gemm: ModelGemm, built: Sequence[Built], timed: Sequence[Timed] | None, error: str, arch: str,
    gpu: str,
) -> Judged:  # fmt: skip
    """The verdict on a GEMM; no record if its default was not built, or is wrong."""
    if timed is None:
        return Judged(gemm.problem, None, error=error)
    made = [one for one in built if one.path]
    samples = {
        one.config: times.us for one, times in zip(made, timed, strict=True) if not times.wrong
    }
    default = built[0].config
    if default not in samples:
        return Judged(gemm.problem, None, error=f"the model's choice is wrong: {timed[0].wrong}")
    verdict = judge(samples, default)
    record = Record(gemm.problem, verdict.config, verdict.us * 1e-6, arch, False, None, gpu)
    return Judged(gemm.problem, record, verdict.default_us, len(samples))


def wanted(known: Iterable[GemmProblem], kinds: Sequence[str] = ()) -> list[ModelGemm]:
    """The GEMMs of public models without those that are known, the most important first."""
    done = set(known)
    return [
        gemm for gemm in by_importance()
        if (not kinds or gemm.kind in kinds) and gemm.problem not in done
    ]  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit status is 1 if no GEMM got a record."""
    parser = Parser(prog="warploom bench records", description=__doc__)
    parser.add_argument("--minutes", type=duration, default=8.0, help="wall time (default: 8)")
    parser.add_argument("--count", type=positive, default=6, help="configs of a GEMM (default: 6)")
    parser.add_argument(
        "--rounds", type=positive, default=8, help="samples of each; 4 at least (default: 8)"
    )
    parser.add_argument(
        "--kind", action="append", default=[], choices=("float16", "float8_e4m3fn", "int4"),
        help="only these operands; bfloat16 has the records of float16 (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--again", action="store_true", help="measure also what the package ships for this GPU"
    )
    parser.add_argument("--device", type=natural, default=0, help="GPU (default: 0)")
    parser.add_argument("--workers", type=positive, help="compiling processes (default: all CPUs)")
    parser.add_argument("--out", type=output_file, default=Path("records-judged.jsonl"),
                        help="file to go on with (default: %(default)s)")  # fmt: skip
    options = parser.parse_args(arguments)
    if options.rounds < 4:
        raise WarploomError("--rounds: two rounds choose a config and two judge it; use 4 or more.")
    require_gpu("`warploom bench hit-rate` needs none")
    import_torch()
    target, _ = default_target()
    gpu = gpu_of(target).name
    if gpu not in GPUS:
        raise WarploomError(f"{gpu} is no GPU of warploom/target/gpus.py, and has no records.")
    journal = Journal(options.out, gpu)
    mine = () if options.again else (r.problem for r in shipped().records if r.gpu == gpu)
    gemms = wanted([*journal.known, *mine], options.kind)
    print(f"{gpu}: {len(gemms)} GEMMs are to be measured, {len(journal.known)} are in "
          f"{options.out}", flush=True)  # fmt: skip
    workers = options.workers or len(os.sched_getaffinity(0))
    folder = tempfile.mkdtemp(prefix="warploom-records-")
    # Each process compiles one kernel at a time: threads of LLVM and OpenMP would compete.
    builders = Pool([{"OMP_NUM_THREADS": "1", "TVM_NUM_THREADS": "1"}] * workers)
    runner = Pool([{"CUDA_VISIBLE_DEVICES": _visible(options.device)}], lose_failed=True)
    progress = Progress()
    runner.submit(begin, timeout=_BEGIN_TIMEOUT)  # while the first kernels are compiled
    try:
        for entry in run(
            gemms,
            lambda gemm: builders.submit(
                build, gemm, target, options.count, folder, timeout=_BUILD_TIMEOUT
            ),
            lambda gemm, paths: runner.submit(
                time_kernels, gemm, paths, options.rounds, timeout=_MEASURE_TIMEOUT
            ),
            2 * workers, progress.begin + 60 * options.minutes, str(target.attrs["arch"]), gpu,
        ):  # fmt: skip
            journal.add(entry)
            progress.add(entry)
    finally:
        builders.close()
        runner.close()
        shutil.rmtree(folder, ignore_errors=True)
    print(progress)
    records = [entry.record for entry in journal.known.values() if entry.record is not None]
    print(f"with {options.out} and the shipped records: "
          + rates(Lookup(records, after=Lookup.shipped()), gpu))  # fmt: skip
    return 0 if records else 1


def _visible(device: int) -> str:
    """The value of CUDA_VISIBLE_DEVICES for a GPU by the number that this process knows."""
    names = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if names and device >= len(names):
        raise WarploomError(f"There is no GPU {device}: CUDA_VISIBLE_DEVICES has {len(names)}.")
    return names[device] if names else str(device)
