"""``python -m warploom_bench goals``: the performance goals of this package, measured row by row.

``goals.json`` lists runs of other benchmarks in the order of their importance, and the claims
of their results. Every run has files of its own under ``--out``, written shape by shape, and a row
that has ended is not measured again: a second call goes on where the first was cut off. Exit
status: 0 if all goals are reached, 1 if a run failed or a result is wrong, 2 if a goal is missed or
was not measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from warploom.command_line import Parser, duration, input_file, output_folder
from warploom.errors import WarploomError
from warploom_bench.benchmarks import BENCHMARKS
from warploom_bench.claims import ENDED, Row, load, table
from warploom_bench.report import EXIT_RIGHT, EXIT_WRONG

_BEGUN, _TABLE = "begun", "goals.md"
#: Benchmarks that measure no shapes, and so have neither kernels of their own nor a time limit.
_WITHOUT_LIMIT = ("launch", "cold", "compile")
#: Seconds without which no run is begun, and between two looks at a run.
_LEAST_LEFT, _LOOK = 15.0, 0.5


def run_row(row: Row, out: Path, more: Sequence[str], minutes: float) -> None:
    """Run a row in this process, and write how it ended.

    Raises
    ------
    RuntimeError
        Or another exception that says nothing about the machine: CUDA may be of no use then.
    """
    folder = out / row.name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _BEGUN).touch()
    benchmark, *arguments = row.command
    limit = ("--minutes", f"{minutes:.2f}") if benchmark not in _WITHOUT_LIMIT else ()
    start, status, reason = time.monotonic(), EXIT_WRONG, ""
    print(f"\n=== {row.name}: {' '.join(row.command)}", flush=True)
    try:
        main = import_module(BENCHMARKS[benchmark].module).main
        own = () if benchmark in _WITHOUT_LIMIT else more
        status = main([*arguments, *own, *limit, "--out", str(folder)])
    except (WarploomError, ImportError) as error:
        reason = str(error)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise
    finally:
        seconds = time.monotonic() - start
        _end(folder, status, reason, seconds)
        print(f"=== {row.name}: {seconds / 60:.2f} minutes", flush=True)


def _end(folder: Path, status: int, reason: str, seconds: float) -> None:
    content = {"status": status, "reason": reason, "seconds": seconds}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ENDED).write_text(json.dumps(content) + "\n")


def run_all(
    rows: Sequence[Row], out: Path, minutes: float, start: Callable[[Sequence[Row], float], Any]
) -> None:
    """Run rows that have not ended, in processes that may be lost: by a crash, or a hang.

    Parameters
    ----------
    start : callable
        Begins a process that runs rows one after another, for so many minutes at most: a
        :class:`subprocess.Popen`.
    """
    until = time.monotonic() + 60 * minutes
    left = [row for row in rows if row.ended(out) is None]
    for row in left:
        (out / row.name / _BEGUN).unlink(missing_ok=True)
    while left and until - time.monotonic() > _LEAST_LEFT:
        process = start(left, (until - time.monotonic()) / 60)
        reason = _watch(process, left, out, until)
        for row in left:
            begun, folder = (out / row.name / _BEGUN).exists(), out / row.name
            if begun and row.ended(out) is None and reason:
                _end(folder, EXIT_WRONG, reason, 0.0)
        rest = [row for row in left if not (out / row.name / _BEGUN).exists()]
        if len(rest) == len(left):
            break  # a process that begins nothing will not do so again
        left = rest


def _watch(process: Any, rows: Sequence[Row], out: Path, until: float) -> str:
    """Wait for a process, or kill it; the reason why the row it was at has not ended."""
    begun: dict[str, float] = {}
    while process.poll() is None:
        time.sleep(_LOOK)
        now = time.monotonic()
        at = [r for r in rows if (out / r.name / _BEGUN).exists() and r.ended(out) is None]
        hangs = [r for r in at if now - begun.setdefault(r.name, now) > r.seconds_at_most]
        if hangs or now > until + _LEAST_LEFT:
            process.kill()
            process.wait()
            return f"it hung for {hangs[0].seconds_at_most:.0f} s" if hangs else ""
    return f"its process ended with status {process.returncode}" if process.returncode else ""


def _chosen(rows: Sequence[Row], names: Sequence[str]) -> Iterator[Row]:
    known = [row.name for row in rows]
    for name in names:
        if name not in known:
            raise WarploomError(f"There is no row {name!r}; allowed are {', '.join(known)}.")
    yield from (row for row in rows if not names or row.name in names)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--goals", type=input_file, help="JSON with rows (default: the package's)")
    parser.add_argument("--row", action="append", default=[], help="only this; repeatable")
    parser.add_argument("--minutes", type=duration, default=9.0, help="(default: %(default)s)")
    parser.add_argument(
        "--out", type=output_folder, default=Path("goals"), help="(default: %(default)s)"
    )
    parser.add_argument("--kernels", type=Path, help="folder of compiled kernels")
    parser.add_argument("--compile-only", action="store_true", help="fill it, measure nothing")
    parser.add_argument("--table", action="store_true", help="only print measured results")
    parser.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit status is explained above."""
    parser = Parser(prog="warploom bench goals", description=__doc__)
    add_arguments(parser)
    options = parser.parse_args(arguments)
    rows, out = list(_chosen(load(options.goals), options.row)), options.out
    more = ("--kernels", str(options.kernels)) if options.kernels else ()
    if options.compile_only:
        return _compile(rows, more)
    if options.in_process:
        until = time.monotonic() + 60 * options.minutes
        for row in rows:
            left = until - time.monotonic()
            if left > _LEAST_LEFT:
                run_row(row, out, more, left / 60)
        return EXIT_RIGHT

    def start(left: Sequence[Row], minutes: float) -> subprocess.Popen[bytes]:
        same = ["--goals", str(options.goals)] if options.goals else []
        named = [text for row in left for text in ("--row", row.name)]
        command = [sys.executable, "-m", "warploom_bench", "goals", "--in-process", *same, *named]
        command += ["--minutes", f"{minutes:.2f}", "--out", str(out), *more]
        return subprocess.Popen(command)

    if not options.table:
        from warploom_bench.run import import_torch

        import_torch()  # rows ask for it too, each after a start of its own
        out.mkdir(parents=True, exist_ok=True)
        run_all(rows, out, options.minutes, start)
    text, status = table(rows, out)
    print(f"\n{text}")
    if out.is_dir():
        (out / _TABLE).write_text(text + "\n", encoding="utf-8")
    return status


def _compile(rows: Sequence[Row], more: Sequence[str]) -> int:
    if not more:
        raise WarploomError("--compile-only needs --kernels DIR, the folder to fill.")
    failed = []
    for row in rows:
        benchmark, *arguments = row.command
        if benchmark in _WITHOUT_LIMIT:
            continue
        try:
            main = import_module(BENCHMARKS[benchmark].module).main
            status = main([*arguments, *more, "--compile-only"])
        except WarploomError as error:
            status = EXIT_WRONG
            print(f"{row.name}: {error}", flush=True)
        if status != EXIT_RIGHT:
            failed.append(row.name)
    if failed:
        print(f"Not all kernels of {', '.join(failed)} were compiled.", flush=True)
    return EXIT_WRONG if failed else EXIT_RIGHT
