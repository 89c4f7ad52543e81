"""Runs cases of ``generators`` on the GPU: many kernels a compilation, many processes at a time.

A process of its own for each batch keeps a kernel that faults or hangs from taking the others
with it: its batch is reported as failed, with the reason.
"""

from __future__ import annotations

import concurrent.futures
import json
import multiprocessing
import os
import time
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from tests.shared import reference
from tests.shared.generators import Case
from warploom.target.swizzle import Major

#: Kernels of one compilation: enough that parsing the CUDA headers does not count.
BATCH = 32
#: Seconds that one batch may take, compilation included.
BATCH_SECONDS = 200
_D_POISON = {"float32": 0xFFFFFFFF, "float16": 0xFFFF, "int32": 0x7BADBEEF}


@dataclass(frozen=True)
class Outcome:
    """Result of one case.

    Attributes
    ----------
    case, group : str
        Identifier, and the name it is reported under.
    error : str
        Empty if the result is right, else one line that says what is wrong.
    worst : float
        Largest error as a fraction of what is allowed.
    """

    case: str
    group: str
    error: str
    worst: float


@dataclass(frozen=True)
class Problem:
    """Host arrays of one case: ``a, b [stages, ...]``, ``c`` before, and what must come out."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    expected: reference.Expected


def seed_of(case: Case) -> int:
    """Seed of a case's random data: a hash of its identifier, the same in every process."""
    return zlib.crc32(str(case).encode())


def make_problem(case: Case, rounds: int = 2) -> Problem:
    """Random operands within poison, and the float64 result of ``rounds`` iterations."""
    rng = np.random.default_rng(seed_of(case))
    a, a_stages = _operand(rng, case, case.a_tile, case.kind.a, case.a_form)
    b, b_stages = _operand(rng, case, case.b_tile, case.kind.b, case.b_form)
    c = reference.random_array(rng, case.d_tile.shape, case.kind.d)
    region = case.d_tile.slices
    used = [case.stages - 1 - it if case.stages > 1 else 0 for it in range(rounds)]
    if case.accum == "overwrite":
        used = used[-1:]
    fraction = reference.error_fraction(case.kind.a, case.kind.d)
    inner = reference.accumulate(
        [a_stages[s] for s in used],
        [b_stages[s] for s in used],
        c[region] if case.accum == "keep" else None,
        fraction,
    )
    value, bound = c.astype("float64"), np.zeros(c.shape)
    value[region], bound[region] = inner.value, inner.bound
    if case.accum != "keep":
        c[region] = reference.poison(rng, inner.value.shape, case.kind.d)
    return Problem(a, b, c, reference.Expected(value, bound))


def _operand(rng, case, tile, dtype, form):
    """All stages of a stored operand, and each stage's ``[mn, k]`` matrix."""
    stored = reference.poison(rng, (case.stages, *tile.shape), dtype)
    values = reference.random_array(rng, (case.stages, *tile.extent), dtype)
    stored[(slice(None), *tile.slices)] = values
    transposed = form is not None and form.major is Major.MN
    return stored, values.swapaxes(1, 2) if transposed else values


def check(case: Case, problem: Problem, actual: np.ndarray) -> Outcome:
    """Compare the kernel's D with the expected one, element by element."""
    wrong = problem.expected.mismatches(actual)
    worst = problem.expected.worst(actual)
    error = ""
    if wrong.any():
        row, column = (int(i[0]) for i in np.nonzero(wrong))
        error = (
            f"{wrong.sum()} of {wrong.size} elements are wrong, first D[{row}, {column}] = "
            f"{actual[row, column]}, expected {problem.expected.value[row, column]} "
            f"+- {problem.expected.bound[row, column]:.2g} (seed {seed_of(case)})"
        )
    return Outcome(str(case), case.group, error, worst)


def run_batch(cases: list[Case]) -> list[Outcome]:
    """Compile and run ``cases`` on the first device in this process."""
    import tvm

    from tests.shared.gemm_async_kernel import lower

    device = tvm.cuda(0)
    module = lower(cases)
    outcomes = []
    for i, case in enumerate(cases):
        problem = make_problem(case)
        poisoned = np.full(problem.c.shape, _D_POISON[case.kind.d], f"uint{problem.c.itemsize * 8}")
        d = tvm.runtime.tensor(poisoned.view(problem.c.dtype), device)
        inputs = [tvm.runtime.tensor(x, device) for x in (problem.a, problem.b, problem.c)]
        module[f"case_{i}"](*inputs, d)
        device.sync()
        outcomes.append(check(case, problem, d.numpy()))
    return outcomes


def _failed(batch: list[Case], error: BaseException) -> list[Outcome]:
    reason = f"its batch of {len(batch)} did not finish: {type(error).__name__}: {error}"
    return [Outcome(str(c), c.group, " ".join(reason.split())[:400], float("inf")) for c in batch]


def _batch_process(batch: list[Case], pipe) -> None:
    try:
        pipe.send(run_batch(batch))
    except Exception as error:
        pipe.send(_failed(batch, error))


def _isolated(batch: list[Case]) -> list[Outcome]:
    """Run one batch in a fresh process; a crash or a hang becomes failed outcomes."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_batch_process, args=(batch, sender))
    process.start()
    sender.close()
    try:
        if not receiver.poll(BATCH_SECONDS):
            raise TimeoutError(f"no result after {BATCH_SECONDS} s")
        return receiver.recv()
    except (EOFError, TimeoutError) as error:
        return _failed(batch, error)
    finally:
        process.kill()
        process.join()


def run_cases(cases: Iterable[Case], workers: int | None = None) -> list[Outcome]:
    """Run every case; batches of similar width, so that their processes end together."""
    ordered = list(cases)
    count = -(-len(ordered) // BATCH)
    batches = [ordered[i::count] for i in range(count)]
    workers = min(workers or os.cpu_count() or 1, count)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        return [outcome for batch in pool.map(_isolated, batches) for outcome in batch]


def summarise(outcomes: list[Outcome], seconds: float, device: str) -> dict:
    """Counts by group, the failures, and where and how long it ran; ready for JSON."""
    groups: dict[str, dict] = {}
    for outcome in sorted(outcomes, key=lambda o: o.group):
        entry = groups.setdefault(outcome.group, {"cases": 0, "wrong": 0, "worst": 0.0})
        entry["cases"] += 1
        entry["wrong"] += bool(outcome.error)
        entry["worst"] = max(entry["worst"], outcome.worst)
    return {
        "date": time.strftime("%Y-%m-%d"),
        "device": device,
        "cases": len(outcomes),
        "wrong": sum(bool(o.error) for o in outcomes),
        "seconds": round(seconds, 1),
        "groups": groups,
        "failures": [asdict(o) for o in outcomes if o.error],
    }


def summary_lines(summary: dict) -> list[str]:
    """One line a group, and a total."""
    lines = [
        f"{name:48s} {entry['cases']:5d} cases {entry['wrong']:4d} wrong, "
        f"worst error {entry['worst']:.3f} of the bound"
        for name, entry in summary["groups"].items()
    ]
    total = f"{summary['cases']} cases, {summary['wrong']} wrong, {summary['seconds']} s"
    return [*lines, total]


def write_summary(summary: dict, path: str | Path) -> None:
    Path(path).write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
