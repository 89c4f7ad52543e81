"""``warploom inspect relax FILE``: where the time of a model goes, and who computes it.

Nothing is compiled: times are those of the model of costs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tvm
from rich.console import Console
from rich.text import Text
from tvm.target import Target

from warploom import pictures
from warploom.command_line import Parser, load_object, output_file, positive
from warploom.errors import WarploomError
from warploom.meta_schedule.database import RECORDS
from warploom.meta_schedule.lookup import Lookup
from warploom.relax.inspect import FunctionReport, inspected
from warploom.relax.launches import DEFAULT_SIZE
from warploom.relax.shares_picture import draw
from warploom.relax.shares_table import SharesTable, legend
from warploom.relax.time_shares import TVM, FunctionShares, kind_of, shares_of
from warploom.target import SM90A
from warploom.target.tvm_target import cuda_target, gpu_of


def main(arguments: Sequence[str]) -> int:
    """Print the shares of kernels in each Relax function of a model, and draw them.

    Returns
    -------
    int
        0, or 1 if no function becomes a tensor-core kernel.
    """
    options = _parser().parse_args(arguments)
    if options.png:
        pictures.pyplot()  # a missing library is said before minutes of work
    target = _target(options.target)
    lookup = Lookup.in_order(
        [_records(folder) for folder in options.database], not options.no_shipped, options.estimates
    )
    seen = inspected(_load(options.model), options.tf32, lookup, target)
    sizes = dict(options.size)
    functions = shares_of(seen, sizes, options.context)
    _check_names(sizes, functions)
    gpu = gpu_of(target).name
    if options.json:
        print(json.dumps(_as_json(gpu, functions, seen.reports), indent=2))
    else:
        _print(gpu, functions, seen.reports, options.configs)
    for path in filter(None, (options.png, options.svg)):
        pictures.write(draw([one for one in functions if one.kernels], gpu), path)
    return int(not any(report.on_tensor_cores for report in seen.reports))


def _parser() -> Parser:
    parser = Parser(
        prog="warploom inspect relax",
        description="Where the time of a Relax model goes, by kernel: modelled, nothing is "
        "compiled. Which functions get kernels of warploom, and why others are left to TVM.",
    )
    parser.add_argument(
        "model",
        help="FILE.json that tvm.ir.save_json wrote, or FILE.py:NAME, where NAME is an IRModule or "
        "a function that returns one",
    )
    parser.add_argument(
        "--size", action="append", default=[], type=_size, metavar="NAME=N",
        help=f"what a symbolic size counts as, instead of {DEFAULT_SIZE}; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--context", type=positive, default=DEFAULT_SIZE, metavar="N",
        help="keys of a sequence in the KV cache, where a function decodes (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--target", default="h200", help="the GPU (default: %(default)s)")
    parser.add_argument("--configs", action="store_true", help="list all configs of each function")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--png", type=output_file, metavar="FILE", help="draw, by matplotlib")
    parser.add_argument("--svg", type=output_file, metavar="FILE", help="draw")
    parser.add_argument("--tf32", action="store_true", help="float32 GEMMs as tf32")
    parser.add_argument(
        "--database", action="append", default=[], metavar="FOLDER",
        help="your tuning records, which go before those of the package; repeatable",
    )  # fmt: skip
    parser.add_argument("--no-shipped", action="store_true", help="no records of the package")
    parser.add_argument(
        "--estimates", action="store_true", help="also estimates of --database, never compared"
    )
    return parser


def _size(text: str) -> tuple[str, int]:
    name, equals, number = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=N, such as n=2048")
    return name, positive(number)


def _target(name: str) -> Target:
    target = cuda_target(name)
    if gpu_of(target).arch is not SM90A:
        raise WarploomError(
            f"--target {name} is no GPU of sm_90a, for which models get kernels; allowed are "
            "h100, h200 and their like."
        )
    return target


def _records(folder: str) -> str:
    if not Path(folder, RECORDS).is_file():
        raise WarploomError(
            f"{folder} has no {RECORDS}; name the work_dir of a search, such as that of tune_tir."
        )
    return folder


def _check_names(sizes: dict[str, int], functions: Sequence[FunctionShares]) -> None:
    """Refuse sizes that nothing has."""
    known = sorted({name for one in functions for name in one.sizes} - {"context"})
    for name in sizes:
        if name not in known:
            there = f"it has {', '.join(known)}" if known else "all its sizes are numbers"
            raise WarploomError(f"The model has no symbolic size {name}; {there}.")


def _print(
    gpu: str, functions: Sequence[FunctionShares], reports: Sequence[FunctionReport], configs: bool
) -> None:
    console = Console(highlight=False)
    for shares in functions:
        console.print(SharesTable(shares))
        console.print()
    if configs:
        for report in reports:
            print(report)
        print()
    if functions:
        console.print(legend(gpu, functions), style="dim")
    launched = {kernel.name for shares in functions for kernel in shares.kernels}
    for report in reports:  # of a cache that nothing prices, such as trees of tokens
        if kind_of(report) == TVM and not report.reshapes and report.name not in launched:
            words = f"left to TVM: {report.name}, which no function above calls: {report.reason}"
            console.print(Text(words, style="dim"))
    counts = _counts(reports)
    print(
        f"{sum(counts.values())} functions: {counts['wgmma']} on tensor cores, {counts['rows']} "
        f"row by row, {counts['TVM']} left to TVM, {counts['reshapes']} only reshape"
    )


def _counts(reports: Sequence[FunctionReport]) -> dict[str, int]:
    """Functions of each kind, and those that only reshape."""
    counts = {"wgmma": 0, "rows": 0, "TVM": 0, "reshapes": 0}
    for report in reports:
        counts["reshapes" if report.reshapes else kind_of(report)] += 1
    return counts


def _as_json(
    gpu: str, functions: Sequence[FunctionShares], reports: Sequence[FunctionReport]
) -> dict[str, Any]:
    return {
        "gpu": gpu, "source": "modelled", "counts": _counts(reports),
        "functions": [one.as_json() for one in functions],
    }  # fmt: skip


def _load(place: str) -> tvm.IRModule:
    if ":" in place or place.endswith(".py"):
        return load_object(place, (tvm.IRModule,))[0]
    file = Path(place)
    if not file.is_file():
        raise WarploomError(f"There is no file {place}; pass FILE.json or FILE.py:NAME.")
    try:
        module = tvm.ir.load_json(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, ValueError, RuntimeError) as error:
        raise WarploomError(
            f"{place} is no JSON of a module, as tvm.ir.save_json writes it; pass such a file, or "
            "FILE.py:NAME."
        ) from error
    if not isinstance(module, tvm.IRModule):
        raise WarploomError(f"{place} holds {type(module).__name__}; it must be an IRModule.")
    return module
