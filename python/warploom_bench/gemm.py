"""``python -m warploom_bench gemm``: GEMMs against the libraries, checked and timed.

Exit status: 0 if every result is right and every target and baseline is reached, 1 if a result is
wrong or a kernel fails, 2 if a target or a baseline is missed.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from warploom.command_line import Parser, natural
from warploom.errors import WarploomError
from warploom.gemm_shape import GemmShape
from warploom.timing import Statistics
from warploom_bench import backends, competitors
from warploom_bench import operands as ops
from warploom_bench.check import Deviation, worst_of
from warploom_bench.compete import compare_competitors
from warploom_bench.kernels import Kernel, Kernels
from warploom_bench.options import (
    gemm_options,
    kernel_options,
    kinds_of,
    suite_options,
    timing_options,
    wanted_shapes,
)
from warploom_bench.report import Comparison, Entry
from warploom_bench.run import attempt, run
from warploom_bench.suite import parse_extents, shapes_of

#: Between the name of a library and the number of its algorithm.
_NUMBER = " #"

DEFAULT_BACKENDS = ("default", "cublaslt", "cublaslt-best")


def our_kernels(
    shape: GemmShape,
    names: Sequence[str],
    databases: Sequence[Path] = (),
    tile_variants: Sequence[str] = (),
    config: Sequence[str] = (),
) -> dict[str, Kernel]:
    """Return the kernels to compile for a shape, by competitor; see :func:`compare`."""
    plain = dataclasses.replace(shape, group="", target=None)
    result = {
        name: Kernel(backends.OURS[name], (plain, tuple(databases)))
        for name in names
        if name in backends.OURS
    }
    for text in tile_variants:
        competitors.parse_config(text)
        result[f"tile-program {text}"] = Kernel(competitors.tile_program_variant, (plain, text))
    for text in config:
        competitors.parse_config(text)
        result[f"config {text}"] = Kernel(competitors.config_variant, (plain, text))
    return result


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

    def library(name: str) -> backends.Competitor | None:
        competitor = backends.LIBRARIES[name](torch, shape, sets)
        if competitor is not None:
            competitor(sets[0])  # a library that cannot compute it says so at the first call
            torch.cuda.synchronize()
        return competitor

    absent: dict[str, str] = {}
    makers = {name: partial(library, name) for name in names if name in backends.LIBRARIES}
    libraries = attempt(makers, absent)
    several = {
        name: partial(backends.SEVERAL[name], torch, shape, sets)
        for name in names
        if name in backends.SEVERAL
    }
    for name, found in attempt(several, absent).items():
        libraries |= {f"{name}{_NUMBER}{i}": competitor for i, competitor in enumerate(found)}
    if not libraries:
        return None
    # Ours first, then the library that ratios refer to, then all others.
    (first, *more), (reference, *others) = ours.items(), libraries.items()
    ordered = dict([first, reference, *more, *others])

    def check(operands: ops.Operands) -> Deviation:
        return ops.check(torch, shape, operands)

    allowed, poison = ops.allowed_error(shape), ops.poison(shape.result_dtype)
    found = compare_competitors(
        torch, shape, ordered, sets, check, allowed, rounds, burst_only, poison
    )
    entries = choose_and_judge(found.entries)
    return dataclasses.replace(found, entries=entries, absent=absent)


def choose_and_judge(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Entries with the algorithms of a library joined into one entry of the library's name.

    The algorithm is chosen by every other sample of the first protocol and judged by the samples
    between: the least of several noisy times would be too low.
    """
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.name.partition(_NUMBER)[0], []).append(entry)
    return tuple(_best(name, group) for name, group in groups.items())


def _best(name: str, group: Sequence[Entry]) -> Entry:
    if _NUMBER not in group[0].name:
        return group[0]
    protocol = next(iter(group[0].times))
    best = min(group, key=lambda entry: statistics.median(entry.times[protocol].samples[::2]))
    times = {key: _judged(of) for key, of in best.times.items()}
    deviation = worst_of(*(entry.deviation for entry in group))
    return dataclasses.replace(best, name=name, times=times, deviation=deviation)


def _judged(times: Statistics) -> Statistics:
    """Samples that did not choose; all of them where there is one."""
    return dataclasses.replace(times, samples=times.samples[1::2] or times.samples)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "--shape", action="append", metavar="MxNxK", help="instead of a suite; repeatable"
    )
    known = [*backends.OURS, *backends.LIBRARIES, *backends.SEVERAL]
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
        "--tile-variant", action="append", default=[], metavar="NAME=INTEGER,...",
        help="also measure the tile program with the model's choice but for these choices; "
        "repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--config", action="append", default=[], metavar="NAME=INTEGER,...",
        help="also measure TVM's kernel of a te function with the model's choice but for "
        "these choices; repeatable",
    )  # fmt: skip
    parser.add_argument("--seed", type=natural, default=0, help="of the random data (default: 0)")


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit status is explained above."""
    parser = Parser(
        prog="warploom bench gemm",
        description=__doc__,
        parents=[
            suite_options("foundation"), timing_options("gemm-SUITE.json, .md and .png"),
            kernel_options(), gemm_options(),
        ],
    )  # fmt: skip
    add_arguments(parser)
    options = parser.parse_args(arguments)
    suite = Path(options.suite).stem.replace(":", "-")
    if options.shape:
        content, suite = {"shapes": list(map(parse_extents, options.shape))}, "shapes"
        shapes = shapes_of(content, *kinds_of(options))
    else:
        shapes = wanted_shapes(options)
    names = options.backend or DEFAULT_BACKENDS
    libraries = [*backends.LIBRARIES, *backends.SEVERAL]
    if not set(names) & set(backends.OURS) or not set(names) & set(libraries):
        raise WarploomError(
            f"Backends {', '.join(names)}: at least one of {', '.join(backends.OURS)} and one of "
            f"{', '.join(libraries)} are compared."
        )

    def wanted(shape: GemmShape) -> dict[str, Kernel]:
        return our_kernels(
            shape, names, options.database, options.tile_variant, options.config
        )

    return run(
        "gemm", arguments, options, shapes,
        lambda torch, shape, kernels: compare(
            torch, shape, kernels, wanted(shape), names, options.rounds, options.seed,
            options.burst_only,
        ),
        lambda shape: wanted(shape).values(), f"gemm-{suite}",
    )  # fmt: skip
