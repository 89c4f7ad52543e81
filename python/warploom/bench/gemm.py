"""``python -m warploom.bench gemm``: matrix products against the libraries, checked and timed.

Exit status: 0 if every result is right and every target and baseline is reached, 1 if a result is
wrong, 2 if a target or a baseline is missed.
"""

from __future__ import annotations

import argparse
import importlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from warploom.bench import backends
from warploom.bench import operands as ops
from warploom.bench.baseline import regressions
from warploom.bench.competitors import HINTS, our_product, parse_changes, tile_product
from warploom.bench.environment import environment
from warploom.bench.options import suite_options, timing_options
from warploom.bench.plot import plot_ratios
from warploom.bench.report import Comparison, Entry, Shape, markdown, write
from warploom.bench.suite import (
    EPILOGUES,
    LAYOUTS,
    RESULT_DTYPE,
    GemmShape,
    load_suite,
)
from warploom.bench.timing import Launch, Statistics, burst, host_cost, measure, sustained
from warploom.bench.torch_timer import TorchTimer, capture
from warploom.errors import WarploomError

#: Products of fewer operations are replayed from a CUDA graph: they run for less than about a
#: millisecond, and the host's hiccups would show if they were launched one by one.
_GRAPH_OPERATIONS = 600e9
#: Least executions in a graph; a multiple of the input sets.
_GRAPH_EXECUTIONS = 20

DEFAULT_BACKENDS = ("default", "cublaslt", "cublaslt-best")

EXIT_RIGHT, EXIT_WRONG, EXIT_SLOW = 0, 1, 2


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
            "Benchmarks against cuBLAS need PyTorch with CUDA; install it with `pip install torch`."
        ) from error
    if not torch.cuda.is_available():
        raise WarploomError("Benchmarks against cuBLAS need a GPU that PyTorch can use.")
    return torch


def compare(
    torch: Any,
    shape: GemmShape,
    names: Sequence[str],
    rounds: int = 15,
    seed: int = 0,
    burst_only: bool = False,
    databases: Sequence[Path] = (),
    variants: Sequence[str] = (),
    tile_variants: Sequence[str] = (),
) -> Comparison | None:
    """Check and time all competitors on one shape; None if there is no library among them.

    Parameters
    ----------
    torch : module
        From :func:`import_torch`.
    shape : GemmShape
    names : sequence of str
        Of :mod:`warploom.bench.backends`; those that have nothing for the shape are left out.
    rounds : int
        Burst samples of each competitor.
    seed : int
        Of the random operands.
    burst_only : bool
        Leave out the sustained protocol, which takes longest.
    databases : sequence of Path
        For the backend ``tuned``.
    variants : sequence of str
        Further competitors: changes to the configuration of ``by-hand``, as
        ``"tile_n=128,stages=6"``.
    tile_variants : sequence of str
        Further ones of ``tile-program``: changes as above, or hints, as ``"tile_n=128,split_k=4"``.
    """
    sets = [ops.make_operands(torch, shape, seed + i) for i in range(ops.input_sets(shape))]
    products = _products(backends.OURS, names, torch, shape, sets, databases)
    for text in variants:
        products[f"by-hand {text}"] = our_product(shape, parse_changes(text))
    for text in tile_variants:
        products[f"tile-program {text}"] = tile_product(shape, parse_changes(text, HINTS))
    libraries = _products(backends.LIBRARIES, names, torch, shape, sets, databases)
    if not products or not libraries:
        return None
    # Ours first, then the library that ratios refer to, then all others.
    (ours, *more), (reference, *others) = products.items(), libraries.items()
    ordered = dict([ours, reference, *more, *others])

    def error(operands: ops.Operands) -> float:
        return ops.relative_error(torch, shape, operands)

    allowed, poison = ops.allowed_error(shape), ops.poison(shape.result_dtype)
    return compare_products(
        torch, shape, ordered, sets, error, allowed, rounds, burst_only, poison
    )


def _products(
    known: Mapping[str, backends.Backend], names: Iterable[str], *arguments: Any
) -> dict[str, backends.Product]:
    made = {name: known[name](*arguments) for name in names if name in known}
    return {name: product for name, product in made.items() if product is not None}


def compare_products(
    torch: Any,
    shape: Shape,
    products: Mapping[str, Callable[[Any], object]],
    sets: Sequence[Any],
    error: Callable[[Any], float],
    allowed_error: float,
    rounds: int,
    burst_only: bool,
    poison: float = math.nan,
) -> Comparison:
    """Check and time functions of operand sets that write ``operands.c``; ours is the first.

    Parameters
    ----------
    sets : sequence
        Operands of successive launches.
    error : callable
        Relative error of the result in a set.
    poison : float
        What results are full of before they are computed.
    """
    errors = {
        name: _check(torch, product, sets, error, poison) for name, product in products.items()
    }
    launches = {name: _launch(product, sets) for name, product in products.items()}
    times = _time(torch, shape, launches, len(sets), rounds, burst_only)
    return Comparison(
        shape,
        tuple(
            Entry(
                name,
                times[name],
                errors[name],
                allowed_error,
                host_cost(launches[name], torch.cuda.synchronize),
            )
            for name in products
        ),
    )


def _check(
    torch: Any,
    product: Callable[[Any], object],
    sets: Sequence[Any],
    error: Callable[[Any], float],
    poison: float,
) -> float:
    """The larger error of the first and the last of several launches in a row.

    They follow each other as they do when they are timed: kernels that start before the one before
    them has ended must not disturb each other.
    """
    product(sets[0])  # compiles and loads what is made at the first call
    torch.cuda.synchronize()
    for operands in sets:
        operands.c.fill_(poison)
    torch.cuda.synchronize()
    for operands in sets:
        product(operands)
    torch.cuda.synchronize()
    errors = error(sets[0]), error(sets[-1])
    return max(errors, key=lambda one: float("inf") if one != one else one)


def _launch(product: Callable[[Any], object], sets: Sequence[Any]) -> Launch:
    return lambda index: product(sets[index])


def _time(
    torch: Any,
    shape: Shape,
    launches: Mapping[str, Launch],
    sets: int,
    rounds: int,
    burst_only: bool,
) -> dict[str, dict[str, Statistics]]:
    """Statistics of each competitor by protocol."""
    timer, executions = TorchTimer(torch), 1
    if shape.operations < _GRAPH_OPERATIONS:
        executions = -(-_GRAPH_EXECUTIONS // sets) * sets
        graphs = {n: capture(torch, launch, sets, executions) for n, launch in launches.items()}
        launches = {name: _replay(replay) for name, replay in graphs.items()}
    by_protocol = {"burst": measure(launches, timer, burst(rounds), sets, executions)}
    if not burst_only:
        slowest = max(times.median for times in by_protocol["burst"].values())
        sampling = sustained(slowest * executions)
        by_protocol["sustained"] = measure(launches, timer, sampling, sets, executions)
    return {n: {key: times[n] for key, times in by_protocol.items()} for n in launches}


def _replay(replay) -> Launch:
    return lambda index: replay()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "--dtype",
        action="append",
        choices=sorted(RESULT_DTYPE),
        help="for JSON files without dtypes; repeatable (default: float16)",
    )
    parser.add_argument(
        "--layout", action="append", choices=LAYOUTS,
        help="for such files; repeatable (default: NT)",
    )  # fmt: skip
    parser.add_argument(
        "--epilogue", action="append", choices=EPILOGUES,
        help="for such files; repeatable (default: none)",
    )  # fmt: skip
    known = [*backends.OURS, *backends.LIBRARIES]
    parser.add_argument(
        "--backend", action="append", choices=known, metavar="NAME",
        help=f"{', '.join(known)}; repeatable; the first of ours is compared with the first "
        f"library (default: {', '.join(DEFAULT_BACKENDS)})",
    )  # fmt: skip
    parser.add_argument(
        "--database", type=Path, action="append", default=[],
        help="folder of a tuning database, for the backend tuned; repeatable (default: shipped)",
    )  # fmt: skip
    parser.add_argument(
        "--variant", action="append", default=[], metavar="NAME=INTEGER,...",
        help="also measure the kernel by hand with these changes to its GemmConfig; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--tile-variant", action="append", default=[], metavar="NAME=INTEGER,...",
        help="also measure the tile program with these changes to its GemmConfig and hints "
        f"({', '.join(HINTS)}); repeatable",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="of the random data (default: 0)")
    parser.add_argument(
        "--baseline", type=Path, help="JSON of an earlier run, whose ratios must be reached again"
    )
    parser.add_argument(
        "--tolerance", type=float, default=0.03,
        help="how much a ratio may be below the baseline (default: %(default)s)",
    )  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit status is explained above."""
    parser = argparse.ArgumentParser(
        prog="warploom bench gemm",
        description=__doc__,
        parents=[suite_options("foundation"), timing_options("gemm-SUITE.json, .md and .png")],
    )
    add_arguments(parser)
    options = parser.parse_args(arguments)
    shapes = load_suite(
        options.suite, options.dtype or ("float16",), options.group,
        options.layout or ("NT",), options.epilogue or ("none",),
    )  # fmt: skip
    names = options.backend or DEFAULT_BACKENDS
    if not set(names) & set(backends.OURS) or not set(names) & set(backends.LIBRARIES):
        raise WarploomError(
            f"Backends {', '.join(names)}: at least one of {', '.join(backends.OURS)} and one of "
            f"{', '.join(backends.LIBRARIES)} are compared."
        )
    torch = import_torch()
    comparisons = []
    for shape in shapes:
        found = compare(
            torch, shape, names, options.rounds, options.seed, options.burst_only,
            options.database, options.variant, options.tile_variant,
        )  # fmt: skip
        if found is None:
            print(f"{shape}: left out, none of ours or none of the libraries has it", flush=True)
            continue
        comparisons.append(found)
        print(progress(found), flush=True)
        torch.cuda.empty_cache()
    if not comparisons:
        raise WarploomError(f"Suite {options.suite!r} has no shape that {', '.join(names)} take.")
    facts = environment(["gemm", *arguments])
    print("\n" + markdown(comparisons, facts))
    if options.out:
        name = f"gemm-{Path(options.suite).stem}"
        write(comparisons, facts, options.out, name)
        plot_ratios(comparisons, options.out / f"{name}.png")
    worse = []
    if options.baseline:
        worse = regressions(comparisons, options.baseline, options.tolerance)
        print("\n".join(worse) or "No ratio is below the baseline.")
    status = exit_status(comparisons)
    return EXIT_SLOW if worse and status == EXIT_RIGHT else status


def progress(comparison: Comparison) -> str:
    """A line on the screen for a shape."""
    ours, protocol = comparison.entries[0], comparison.protocols[0]
    wrong = [f"{e.name} {e.error:.1e}" for e in comparison.entries if not e.is_right]
    right = f", WRONG: {', '.join(wrong)}" if wrong else ""
    others = ", ".join(
        f"{e.name} {e.times[protocol].median * 1e6:.1f} us" for e in comparison.entries
    )
    ratio = comparison.ratio(ours, protocol)
    return f"{comparison.shape}: {ratio:.3f} of {comparison.entries[1].name} ({others}){right}"


def exit_status(comparisons: Sequence[Comparison]) -> int:
    """Wrong results outweigh missed targets."""
    if not all(entry.is_right for c in comparisons for entry in c.entries):
        return EXIT_WRONG
    return EXIT_SLOW if any(c.misses_target for c in comparisons) else EXIT_RIGHT
