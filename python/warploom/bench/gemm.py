"""``python -m warploom.bench gemm``: matrix products against cuBLAS, checked and timed.

Exit status: 0 if every result is right and every target is reached, 1 if a result is wrong, 2 if
a target is missed.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from warploom.bench import operands as ops
from warploom.bench.competitors import (
    HINTS,
    OURS,
    TILES,
    library_products,
    our_product,
    parse_changes,
    tile_product,
)
from warploom.bench.environment import environment
from warploom.bench.report import Comparison, Entry, Shape, markdown, write
from warploom.bench.suite import RESULT_DTYPE, GemmShape, load_suite, suite_names
from warploom.bench.timing import Launch, Statistics, burst, host_cost, measure, sustained
from warploom.bench.torch_timer import TorchTimer, capture
from warploom.errors import WarploomError

#: Products of fewer operations are replayed from a CUDA graph: they run for less than about
#: 100 microseconds, and launching them one by one would measure the host.
_GRAPH_OPERATIONS = 60e9
#: Least executions in a graph; a multiple of the input sets.
_GRAPH_EXECUTIONS = 20

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
    rounds: int = 15,
    seed: int = 0,
    burst_only: bool = False,
    variants: Sequence[str] = (),
    tile_programs: bool = False,
    tile_variants: Sequence[str] = (),
) -> Comparison:
    """Check and time all competitors on one shape.

    Parameters
    ----------
    torch : module
        From :func:`import_torch`.
    shape : GemmShape
    rounds : int
        Burst samples of each competitor.
    seed : int
        Of the random operands.
    burst_only : bool
        Leave out the sustained protocol, which takes longest.
    variants : sequence of str
        Further competitors: changes to our configuration, as ``"tile_n=128,stages=6"``.
    tile_programs : bool
        Whether the tile program of the product competes too, where its kernel has one.
    tile_variants : sequence of str
        Further tile programs: changes as above, or hints, as ``"tile_n=128,split_k=4"``.
    """
    products = {OURS: our_product(shape)} | library_products(torch, shape)
    if tile_programs and (product := tile_product(shape)) is not None:
        products[TILES] = product
    for text in variants:
        products[f"{OURS} {text}"] = our_product(shape, parse_changes(text))
    for text in tile_variants:
        products[f"{TILES} {text}"] = tile_product(shape, parse_changes(text, HINTS))
    sets = [ops.make_operands(torch, shape, seed + i) for i in range(ops.input_sets(shape))]

    def error(operands: ops.Operands) -> float:
        return ops.relative_error(torch, shape, operands)

    allowed = ops.allowed_error(shape)
    return compare_products(torch, shape, products, sets, error, allowed, rounds, burst_only)


def compare_products(
    torch: Any,
    shape: Shape,
    products: Mapping[str, Callable[[Any], object]],
    sets: Sequence[Any],
    error: Callable[[Any], float],
    allowed_error: float,
    rounds: int,
    burst_only: bool,
) -> Comparison:
    """Check and time functions of operand sets that write ``operands.c``; ours is the first.

    Parameters
    ----------
    sets : sequence
        Operands of successive launches.
    error : callable
        Relative error of the result in a set.
    """
    errors = {name: _check(torch, product, sets[0], error) for name, product in products.items()}
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
    torch: Any, product: Callable[[Any], object], operands: Any, error: Callable[[Any], float]
) -> float:
    operands.c.fill_(float("nan"))
    product(operands)
    torch.cuda.synchronize()
    return error(operands)


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
        "--suite",
        default="foundation",
        help=f"{', '.join(suite_names())}, or a JSON file (default: %(default)s)",
    )
    parser.add_argument("--group", action="append", default=[], help="only this group; repeatable")
    parser.add_argument(
        "--dtype",
        action="append",
        choices=sorted(RESULT_DTYPE),
        help="for JSON files without dtypes; repeatable (default: float16)",
    )
    parser.add_argument("--rounds", type=int, default=15, help="burst samples (default: 15)")
    parser.add_argument(
        "--variant",
        action="append",
        default=[],
        metavar="NAME=INTEGER,...",
        help="also measure our kernel with these changes to its GemmConfig; repeatable",
    )
    parser.add_argument(
        "--tile-programs",
        action="store_true",
        help="also measure the same product as a tile program",
    )
    parser.add_argument(
        "--tile-variant",
        action="append",
        default=[],
        metavar="NAME=INTEGER,...",
        help="also measure the tile program with these changes to its GemmConfig and hints "
        f"({', '.join(HINTS)}); repeatable",
    )
    parser.add_argument("--burst-only", action="store_true", help="leave out sustained load")
    parser.add_argument("--seed", type=int, default=0, help="of the random data (default: 0)")
    parser.add_argument("--out", type=Path, help="folder for gemm-SUITE.json and .md")


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit status is explained above."""
    parser = argparse.ArgumentParser(prog="warploom bench gemm", description=__doc__)
    add_arguments(parser)
    options = parser.parse_args(arguments)
    shapes = load_suite(options.suite, options.dtype or ("float16",), options.group)
    torch = import_torch()
    comparisons = []
    for shape in shapes:
        settings = (
            options.rounds, options.seed, options.burst_only, options.variant,
            options.tile_programs, options.tile_variant,
        )  # fmt: skip
        comparisons.append(compare(torch, shape, *settings))
        print(progress(comparisons[-1]), flush=True)
        torch.cuda.empty_cache()
    facts = environment(["gemm", *arguments])
    print("\n" + markdown(comparisons, facts))
    if options.out:
        write(comparisons, facts, options.out, f"gemm-{Path(options.suite).stem}")
    return exit_status(comparisons)


def progress(comparison: Comparison) -> str:
    """A line on the screen for a shape."""
    ours, protocol = comparison.entries[0], comparison.protocols[0]
    right = "" if ours.is_right else f", WRONG: error {ours.error:.1e}"
    return f"{comparison.shape}: {comparison.ratio(ours, protocol):.3f} of the library{right}"


def exit_status(comparisons: Sequence[Comparison]) -> int:
    """Wrong results outweigh missed targets."""
    if not all(entry.is_right for c in comparisons for entry in c.entries):
        return EXIT_WRONG
    return EXIT_SLOW if any(c.misses_target for c in comparisons) else EXIT_RIGHT
