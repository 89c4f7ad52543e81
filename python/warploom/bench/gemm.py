"""``python -m warploom.bench gemm``: matrix products against the libraries, checked and timed.

Exit status: 0 if every result is right and every target and baseline is reached, 1 if a result is
wrong or a kernel fails, 2 if a target or a baseline is missed.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from warploom.bench import backends, competitors
from warploom.bench import operands as ops
from warploom.bench.kernels import Kernel, Kernels
from warploom.bench.options import (
    kernel_options,
    kinds_of,
    product_options,
    suite_options,
    timing_options,
    wanted_shapes,
)
from warploom.bench.report import Comparison, Entry, Shape
from warploom.bench.run import attempt, run
from warploom.bench.suite import GemmShape, parse_extents, shapes_of
from warploom.bench.timing import Launch, Statistics, burst, host_cost, measure, sustained
from warploom.bench.torch_timer import TorchTimer, capture
from warploom.errors import WarploomError

_GRAPH_OPERATIONS = backends.GRAPH_OPERATIONS
#: Least executions in a graph; a multiple of the input sets.
_GRAPH_EXECUTIONS = 20
#: Most launches in a row by which the host's cost is found, and about how long they may take.
_HOST_LAUNCHES, _HOST_SECONDS = 50, 0.02

DEFAULT_BACKENDS = ("default", "cublaslt", "cublaslt-best")


def our_kernels(
    shape: GemmShape,
    names: Sequence[str],
    databases: Sequence[Path] = (),
    variants: Sequence[str] = (),
    tile_variants: Sequence[str] = (),
    knobs: Sequence[str] = (),
) -> dict[str, Kernel]:
    """What is compiled for a shape, by the name of the competitor; see :func:`compare`."""
    plain = dataclasses.replace(shape, group="", target=None)
    found = {
        name: Kernel(backends.OURS[name], (plain, tuple(databases)))
        for name in names
        if name in backends.OURS
    }
    for text in variants:
        competitors.parse_changes(text)
        found[f"by-hand {text}"] = Kernel(competitors.by_hand_variant, (plain, text))
    for text in tile_variants:
        competitors.parse_changes(text, competitors.HINTS)
        found[f"tile-program {text}"] = Kernel(competitors.tile_program_variant, (plain, text))
    for text in knobs:
        competitors.parse_knobs(text)
        found[f"knobs {text}"] = Kernel(competitors.knobs_variant, (plain, text))
    return found


def compare(
    torch: Any,
    shape: GemmShape,
    kernels: Kernels,
    wanted: Mapping[str, Kernel],
    names: Sequence[str],
    rounds: int = 15,
    seed: int = 0,
    burst_only: bool = False,
) -> Comparison | None:
    """Check and time all competitors on one shape; None if one side has nothing.

    Parameters
    ----------
    torch : module
    shape : GemmShape
    kernels : Kernels
        Which has those of ours.
    wanted : mapping from str to Kernel
        Ours, of :func:`our_kernels`.
    names : sequence of str
        Of :data:`backends.LIBRARIES`, among others; those that fail, or that have nothing for the
        shape, are left out.
    rounds : int
        Burst samples of each competitor.
    seed : int
        Of the random operands.
    burst_only : bool
        Leave out the sustained protocol, which takes longest.
    """
    functions = {name: kernels.function(one) for name, one in wanted.items()}
    ours = {
        name: (lambda o, call=call: call(*ops.arguments(shape, o)))
        for name, call in functions.items()
        if call is not None
    }
    if not ours:
        return None
    sets = [ops.make_operands(torch, shape, seed + i) for i in range(ops.input_sets(shape))]

    def library(name: str) -> backends.Product | None:
        product = backends.LIBRARIES[name](torch, shape, sets)
        if product is not None:
            product(sets[0])  # whoever cannot compute it says so at the first call
            torch.cuda.synchronize()
        return product

    absent: dict[str, str] = {}
    makers = {name: partial(library, name) for name in names if name in backends.LIBRARIES}
    libraries = attempt(makers, absent)
    if not libraries:
        return None
    # Ours first, then the library that ratios refer to, then all others.
    (first, *more), (reference, *others) = ours.items(), libraries.items()
    ordered = dict([first, reference, *more, *others])

    def error(operands: ops.Operands) -> float:
        return ops.relative_error(torch, shape, operands)

    allowed, poison = ops.allowed_error(shape), ops.poison(shape.result_dtype)
    found = compare_products(
        torch, shape, ordered, sets, error, allowed, rounds, burst_only, poison
    )
    return dataclasses.replace(found, absent=absent)


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
                _host_cost(torch, launches[name], times[name]),
            )
            for name in products
        ),
    )


def _host_cost(torch: Any, launch: Launch, times: Mapping[str, Statistics]) -> float:
    """Seconds of a call, with fewer calls of what takes long."""
    median = next(iter(times.values())).median
    launches = max(5, min(_HOST_LAUNCHES, round(_HOST_SECONDS / median)))
    return host_cost(launch, torch.cuda.synchronize, launches)


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
        "--shape", action="append", metavar="MxNxK", help="instead of a suite; repeatable"
    )
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
        f"({', '.join(competitors.HINTS)}); repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--knobs", action="append", default=[], metavar="NAME=INTEGER,...",
        help="also measure what TVM compiles of a te function with the model's choice but for "
        "these knobs; repeatable",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="of the random data (default: 0)")


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit status is explained above."""
    parser = argparse.ArgumentParser(
        prog="warploom bench gemm",
        description=__doc__,
        parents=[
            suite_options("foundation"), timing_options("gemm-SUITE.json, .md and .png"),
            kernel_options(), product_options(),
        ],
    )  # fmt: skip
    add_arguments(parser)
    options = parser.parse_args(arguments)
    suite = Path(options.suite).stem
    if options.shape:
        content, suite = {"shapes": list(map(parse_extents, options.shape))}, "shapes"
        shapes = shapes_of(content, *kinds_of(options))
    else:
        shapes = wanted_shapes(options)
    names = options.backend or DEFAULT_BACKENDS
    if not set(names) & set(backends.OURS) or not set(names) & set(backends.LIBRARIES):
        raise WarploomError(
            f"Backends {', '.join(names)}: at least one of {', '.join(backends.OURS)} and one of "
            f"{', '.join(backends.LIBRARIES)} are compared."
        )

    def wanted(shape: GemmShape) -> dict[str, Kernel]:
        return our_kernels(
            shape, names, options.database, options.variant, options.tile_variant, options.knobs
        )

    return run(
        "gemm", arguments, options, shapes,
        lambda torch, shape, kernels: compare(
            torch, shape, kernels, wanted(shape), names, options.rounds, options.seed,
            options.burst_only,
        ),
        lambda shape: wanted(shape).values(), f"gemm-{suite}",
    )  # fmt: skip
