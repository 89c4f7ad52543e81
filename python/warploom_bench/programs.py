"""A tile program of the package against GEMMs of a library that may lack them."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from warploom.command_line import natural
from warploom_bench.check import Deviation
from warploom_bench.compete import compare_competitors
from warploom_bench.competitors import OURS
from warploom_bench.dequant import parse_changes
from warploom_bench.kernels import Kernel, Kernels
from warploom_bench.report import Comparison, Shape
from warploom_bench.run import attempt, run

#: Something that computes the result in a set of operands.
Competitor = Callable[[Any], object]


def add_common(parser: argparse.ArgumentParser) -> None:
    """Options of our program's variants and of the data."""
    parser.add_argument(
        "--variant", action="append", default=[], metavar="NAME=VALUE,...",
        help="also measure our program with these arguments; repeatable",
    )  # fmt: skip
    parser.add_argument("--seed", type=natural, default=0, help="of the random data (default: 0)")


def our_kernels(program: Callable[..., Any], shape: Any, variants: Sequence[str] = ()) -> dict:
    """Return the kernels to compile, by the name of the competitor: ``program(shape, changes)``."""
    plain = dataclasses.replace(shape, group="", target=None)
    kernels = {OURS: Kernel(program, (plain,))}
    for text in variants:
        parse_changes(text)
        kernels[f"{OURS} {text}"] = Kernel(program, (plain, text))
    return kernels


def compare(
    torch: Any,
    shape: Shape,
    ours: Mapping[str, Competitor],
    libraries: Mapping[str, Competitor],
    sets: Sequence[Any],
    check: Callable[[Any], Deviation],
    allowed: float,
    options: argparse.Namespace,
) -> Comparison | None:
    """Check and time all; None if the library has none of its GEMMs for the operands."""

    def tried(competitor: Competitor) -> Competitor:
        competitor(sets[0])  # a library that cannot compute it raises at the first call
        torch.cuda.synchronize()
        return competitor

    torch.backends.cuda.matmul.allow_tf32 = False
    absent: dict[str, str] = {}
    able = attempt({name: partial(tried, library) for name, library in libraries.items()}, absent)
    if not able:
        return None
    (first, *more), (reference, *others) = ours.items(), able.items()
    ordered = dict([first, reference, *more, *others])
    measured = compare_competitors(
        torch, shape, ordered, sets, check, allowed, options.rounds, options.burst_only
    )
    return dataclasses.replace(measured, absent=absent)


def run_program(
    name: str,
    arguments: Sequence[str],
    options: argparse.Namespace,
    shapes: Sequence[Shape],
    program: Callable[..., Any],
    compare_shape: Callable[[Any, Any, Mapping[str, Any]], Comparison | None],
) -> int:
    """:func:`warploom_bench.run.run` with ``compare_shape(torch, shape, functions)``."""

    def wanted(shape: Shape) -> dict[str, Kernel]:
        return our_kernels(program, shape, options.variant)

    def compare_one(torch: Any, shape: Shape, kernels: Kernels) -> Comparison | None:
        functions = {key: kernels.function(kernel) for key, kernel in wanted(shape).items()}
        return compare_shape(torch, shape, functions)

    return run(name, arguments, options, shapes, compare_one, lambda s: wanted(s).values())
