"""The frame of all benchmarks of kernels: compile everything, measure each shape, and report.

Files are written after each shape: a run that is cut off loses only the one it was at.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from warploom import pictures
from warploom.errors import WarploomError
from warploom_bench.baseline import regressions
from warploom_bench.environment import environment
from warploom_bench.kept import RESUME, Kept
from warploom_bench.kernels import Kernel, Kernels
from warploom_bench.plot import plot_ratios
from warploom_bench.report import (
    EXIT_RIGHT,
    EXIT_SLOW,
    EXIT_WRONG,
    Comparison,
    Shape,
    exit_status,
    markdown,
    progress,
    write,
)
from warploom_bench.torch_timer import copy_speed

_T = TypeVar("_T")


def import_torch() -> Any:
    """PyTorch with a CUDA device.

    Raises
    ------
    WarploomError
        If there is none.
    """
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise WarploomError(
            "Benchmarks against libraries need PyTorch with CUDA; install it with "
            "`pip install torch`."
        ) from error
    if not torch.cuda.is_available():
        raise WarploomError("Benchmarks against libraries need a GPU that PyTorch can use.")
    return torch


def run(
    name: str,
    arguments: Sequence[str],
    options: argparse.Namespace,
    shapes: Sequence[Shape],
    compare: Callable[[Any, Any, Kernels], Comparison | None],
    wanted: Callable[[Any], Iterable[Kernel]] | None = None,
    file: str | None = None,
) -> int:
    """Run a benchmark.

    Parameters
    ----------
    name : str
        Of the command.
    arguments : sequence of str
        Its arguments, for the report.
    options : Namespace
        Of :func:`options.timing_options`, and of :func:`options.kernel_options` with ``wanted``.
    shapes : sequence
    compare : callable
        ``(torch, shape, kernels) -> comparison``, or None if there is nothing to compare.
    wanted : callable, optional
        Kernels of a shape, which are compiled before anything is measured.
    file : str, optional
        Name of the files without suffix; that of the command by default.

    Returns
    -------
    int
        0 if every result is right and every target and baseline is reached, 1 if a result is wrong
        or a kernel of ours failed, 2 if a target or a baseline is missed.

    Raises
    ------
    WarploomError
        If no shape could be measured.
    """
    over = time.monotonic() + 60 * options.minutes if options.minutes else None
    kernels = Kernels()
    if wanted is not None:
        if options.compile_only and not options.kernels:
            raise WarploomError("--compile-only needs --kernels DIR, the folder to fill.")
        if not options.compile_only:
            import_torch()  # before minutes of compiling
        kernels = Kernels(options.kernels, options.workers)
        failed = kernels.compile(kernel for shape in shapes for kernel in wanted(shape))
        if options.compile_only:
            kernels.add_runtime()
            return EXIT_WRONG if failed else EXIT_RIGHT
    torch = import_torch()
    facts = environment([name, *arguments]) | {"copy_bytes_per_second": copy_speed(torch)}
    comparisons: list[Comparison] = []
    status = EXIT_RIGHT
    same = [name, *arguments, facts["gpu"].get("name", "a GPU")]
    kept = Kept(options.out, file or name, same, options.resume)
    for number, shape in enumerate(shapes):
        if str(shape) in kept.done:
            comparisons.append(kept.done[str(shape)])
            continue
        if over is not None and time.monotonic() > over:
            print(f"The time is over: {len(shapes) - number} shapes are left out.", flush=True)
            break
        try:
            with torch.no_grad():
                comparison = compare(torch, shape, kernels)
        except KeyboardInterrupt:
            again = f"; add {RESUME} to go on" if options.out else "; --out keeps what is measured"
            print(f"{len(comparisons)} of {len(shapes)} shapes are measured{again}.", flush=True)
            raise
        except (WarploomError, RuntimeError) as error:  # errors of CUDA are the latter
            print(f"{shape}: FAILED: {first_line(error)}", flush=True)
            status = EXIT_WRONG
            continue
        if comparison is None:
            print(f"{shape}: left out, none of ours or none of the libraries has it", flush=True)
            continue
        comparisons.append(comparison)
        kept.add(comparison)
        print(f"[{number + 1}/{len(shapes)}] {progress(comparison)}", flush=True)
        if options.out:
            write(comparisons, facts, options.out, file or name)
        torch.cuda.empty_cache()
    else:
        kept.finished()
    if not comparisons:
        raise WarploomError(f"No shape of {len(shapes)} could be measured.")
    print("\n" + markdown(comparisons, facts))
    if options.out and plot_ratios(comparisons, options.out / f"{file or name}.png") is None:
        print(pictures.MISSING)
    worse = []
    if options.baseline:
        worse = regressions(comparisons, options.baseline, options.tolerance)
        print("\n".join(worse) or "No ratio is below the baseline.")
    status = status or exit_status(comparisons)
    return EXIT_SLOW if worse and status == EXIT_RIGHT else status


def attempt(makers: Mapping[str, Callable[[], _T]], absent: dict[str, str]) -> dict[str, _T]:
    """Return the non-None results of the makers; ``absent`` receives the errors of failing makers.

    For libraries, which fail in ways of their own, and must not end a run.
    """
    results = {}
    for name, make in makers.items():
        try:
            made = make()
        except Exception as error:
            absent[name] = first_line(error)
            continue
        if made is not None:
            results[name] = made
    return results


def first_line(error: Exception) -> str:
    """The reason, short enough for a line."""
    text = str(error).strip().splitlines()
    return text[0][:300] if text and text[0] else type(error).__name__
