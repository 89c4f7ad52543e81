"""``warploom bench model NAME``: a whole model from end to end, beside PyTorch and the roofline.

Language models are written with TVM's paged KV cache, as MLC-LLM writes them; the other models are
PyTorch modules that come through ``torch.export``. Weights are random. Every row runs in a process
of its own: a row that crashes or hangs costs only itself, and what it has measured before is kept.
Exit status: 0 if all rows are right, 1 if a result is wrong or a row failed, 3 if nothing could
run.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from warploom import emulator
from warploom.command_line import Parser, duration, output_folder, positive
from warploom.errors import WarploomError
from warploom.target.gpus import GPUS, Gpu
from warploom_bench.environment import environment
from warploom_bench.kernels import Kernel, Kernels
from warploom_bench.models import results
from warploom_bench.models.results import FAILED, Result
from warploom_bench.models.rows import ATTENTION, KINDS, MODELS, Row, rows_of
from warploom_bench.models.sizes import LANGUAGE, WEIGHTS, LanguageSizes
from warploom_bench.options import kernel_options
from warploom_bench.report import EXIT_RIGHT, EXIT_WRONG

#: Seconds after which a row is taken to hang; torch.compile takes most of it.
_LONGEST = 900.0
#: Lines of what a process that crashed has said at last: where its threads were.
_LAST_LINES = 12
#: PyTorch's profiler is used twice in a process. It may crash where it takes CUPTI down in between.
_PROFILER = {"TEARDOWN_CUPTI": "0", "DISABLE_CUPTI_LAZY_REINIT": "1"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("name", choices=MODELS, metavar="NAME", help=", ".join(MODELS))
    parser.add_argument("--layers", type=positive, help="of a language model (default: its own)")
    parser.add_argument(
        "--weights", choices=WEIGHTS, default="float16",
        help="of a language model: int4 is MLC-LLM's q4f16_1 (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--only", choices=KINDS, help="rows of this kind")
    parser.add_argument(
        "--row", action="append", default=[], help="such as decode-8x2048; repeatable"
    )
    parser.add_argument("--profile", action="store_true", help="print the time by kernel")
    parser.add_argument(
        "--no-rival", action="store_true",
        help="measure ours alone: torch.compile's search takes minutes; with --profile, by kernel",
    )  # fmt: skip
    parser.add_argument("--stock", action="store_true", help="measure TVM alone, too; it is slow")
    parser.add_argument(
        "--whole-graph", action="store_true",
        help="torch.compile gets a language model as a whole, not layer by layer: minutes a row",
    )  # fmt: skip
    parser.add_argument(
        "--tiny", action="store_true", help="small sizes, right or wrong, on the emulator as well"
    )
    parser.add_argument(
        "--gpu", choices=sorted(GPUS), help="compile for this (default: the one that is here)"
    )
    parser.add_argument("--minutes", type=duration, help="begin no row after so much time")
    parser.add_argument("--out", type=output_folder, help="folder for NAME.json and NAME.md")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)  # of a row's process


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of the command."""
    parser = Parser(prog="warploom bench model", description=__doc__, parents=[kernel_options()])
    add_arguments(parser)
    options = parser.parse_args(arguments)
    options.gpu = options.gpu or _gpu_here().name
    return options


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit status is explained above."""
    options = parsed(arguments)
    rows = chosen(options)
    if options.compile_only and options.name not in LANGUAGE:
        raise WarploomError(
            f"{options.name} is compiled where it is measured: its weights are constants."
        )
    kernels = Kernels(options.kernels, options.workers)
    options.kernels = kernels.folder
    if options.into:
        return _run_row(rows[-1], options, kernels)  # the last is the process's own
    if emulator.is_enabled() and not (options.tiny or options.compile_only):
        raise WarploomError("Times of the emulator mean nothing; add --tiny, or use a GPU.")
    if not (options.tiny or options.compile_only):
        from warploom_bench.run import import_torch

        import_torch()  # before minutes of compiling; each row asks for it, too
    failed = kernels.compile(_wanted(rows, options))
    if options.compile_only:
        kernels.add_runtime()
        return EXIT_WRONG if failed else EXIT_RIGHT
    found = _tiny(options, kernels) if options.tiny else in_processes(rows, arguments, options)
    return report(found, arguments, options)


def _gpu_here() -> Gpu:
    from warploom.target import default_target
    from warploom.target.tvm_target import gpu_of

    return gpu_of(default_target()[0])


def chosen(options: argparse.Namespace) -> list[Row]:
    """The rows that are asked for, by name or by kind."""
    every = list(rows_of(options.name))
    known = {str(row): row for row in every}
    for name in options.row:
        if name not in known:
            raise WarploomError(f"There is no row {name!r}; allowed are {', '.join(known)}.")
    if options.row:
        return [known[name] for name in options.row]
    # Attention alone is no part of a model's table.
    return [row for row in every if row.kind == options.only or
            (not options.only and row.kind != ATTENTION)]  # fmt: skip


def sizes_of(options: argparse.Namespace) -> LanguageSizes:
    """The sizes of a language model, with the layers and weights that are asked for."""
    sizes = LANGUAGE[options.name]
    return replace(sizes, layers=options.layers or sizes.layers, weights=options.weights)


def _wanted(rows: Iterable[Row], options: argparse.Namespace) -> Iterator[Kernel]:
    """The kernels of all rows, of language models."""
    if options.name not in LANGUAGE:
        return
    from warploom_bench.models.language_kernels import language_kernel
    from warploom_bench.models.measure_attention import alone

    sizes, kinds = sizes_of(options), {row.kind for row in rows}
    if options.tiny:
        yield language_kernel(replace(sizes.tiny(), weights=options.weights), options.gpu)
        return
    if kinds - {ATTENTION}:
        yield language_kernel(sizes, options.gpu)
        if options.stock:
            yield language_kernel(sizes, options.gpu, stock=True)
    if ATTENTION in kinds:
        yield language_kernel(alone(sizes), options.gpu, cache_only=True)


def _tiny(options: argparse.Namespace, kernels: Kernels) -> Iterator[Result]:
    if options.name in LANGUAGE:
        from warploom_bench.models.tiny import language_results

        return language_results(options.name, options.weights, options.gpu, kernels)
    from warploom_bench.models.tiny import exported_results

    return exported_results(options.name, options.gpu)


def _run_row(row: Row, options: argparse.Namespace, kernels: Kernels) -> int:
    """In a row's process: measure it, and write what is known after each step."""
    from warploom_bench.models.hardware import float16_peak
    from warploom_bench.run import import_torch
    from warploom_bench.torch_timer import copy_speed

    torch = import_torch()
    result = Result(options.name, str(row))
    result.bandwidth, result.peak = copy_speed(torch), float16_peak(_gpu_here())
    if options.name not in LANGUAGE:
        from warploom_bench.models.measure_exported import ExportedBench

        bench = ExportedBench(options.name, options.gpu, options.stock, not options.no_rival)
    elif row.kind == ATTENTION:
        from warploom_bench.models.measure_attention import AttentionBench

        bench = AttentionBench(
            torch, sizes_of(options), kernels, options.gpu, not options.no_rival
        )
    else:
        from warploom_bench.models.measure_language import LanguageBench

        bench = LanguageBench(
            torch, sizes_of(options), kernels, options.gpu, options.whole_graph, options.stock,
            not options.no_rival,
        )  # fmt: skip
    with torch.no_grad():
        for _ in bench.measure(row, result):
            result.save(options.into)
    result.save(options.into)
    return EXIT_RIGHT


def in_processes(
    rows: Sequence[Row], arguments: Sequence[str], options: argparse.Namespace
) -> Iterator[Result]:
    """Each row in a process, until the time is over."""
    over = time.monotonic() + 60 * options.minutes if options.minutes else None
    with tempfile.TemporaryDirectory(prefix="warploom-model-") as folder:
        for number, row in enumerate(rows):
            if over is not None and time.monotonic() > over:
                print(f"The time is over: {len(rows) - number} rows are left out.", flush=True)
                return
            into = Path(folder) / f"{row}.json"
            command = [
                sys.executable, "-X", "faulthandler", "-m", "warploom_bench", "model", *arguments,
                "--row", str(row), "--into", str(into), "--kernels", str(options.kernels),
            ]  # fmt: skip
            yield watched(command, options.name, row, into)


def watched(
    command: Sequence[str], model: str, row: Row, into: Path, longest: float = _LONGEST
) -> Result:
    """Run a row's process; what it has measured, and how it ended."""
    said = ""
    try:
        process = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=longest,
            env={**os.environ, **_PROFILER}, check=False,
        )  # fmt: skip
        said = process.stdout
        end = f"its process ended with status {process.returncode}" if process.returncode else ""
    except subprocess.TimeoutExpired:
        end = f"it hung for {longest:.0f} s"
    result = results.load(into) if into.exists() else Result(model, str(row), FAILED)
    if end:
        last = _ends(said)
        if result.ours.wall:
            result.notes.append(f"{end} behind the measurement: {last}")
        else:
            result.status, result.reason = FAILED, f"{end}: {last}"
    return result


def _ends(said: str) -> str:
    """The beginning and the end of what a process has said: causes come first, stacks last.

    Warnings, and lines that repeat one another but for numbers (an assertion of each thread), hide
    the cause: of them the first stays.
    """
    lines: list[str] = []
    before = ""
    for line in said.strip().splitlines():
        words = re.sub(r"\d+", "0", line)
        if words != before and "Warning: " not in line:
            lines.append(line)
        before = words
    if len(lines) <= 2 * _LAST_LINES:
        return "\n".join(lines)
    return "\n".join([*lines[:_LAST_LINES], "...", *lines[-_LAST_LINES:]])


def report(found: Iterable[Result], arguments: Sequence[str], options: argparse.Namespace) -> int:
    """Print and write after each row; the exit status."""
    facts, done = environment(["model", *arguments]), []
    for result in found:
        done.append(result)
        print(" | ".join(filter(None, results.line(result))), result.reason, flush=True)
        if options.profile:
            for name in ("ours", "rival"):
                runner = getattr(result, name)
                if runner.kernels:
                    print(f"\n{result.row}, {name}:\n" + results.by_kernel(runner))
        if options.out:
            results.write(done, facts, options.out, options.name)
    if not done:
        raise WarploomError("No row could be measured.")
    print("\n" + results.markdown(done, facts))
    return EXIT_WRONG if any(one.is_wrong for one in done) else EXIT_RIGHT
