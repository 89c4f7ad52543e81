"""``python -m warploom_bench hit-rate``: how much of the public models the shipped records cover.

For each model and kind of operands: the share of its GEMMs, of 1 to 8192 rows, for which
``relax.build`` and ``tvm.compile`` find a record; in parentheses the same where the number of rows
is symbolic. Nothing is compiled and no GPU is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from warploom.command_line import Parser, input_file
from warploom.meta_schedule.lookup import Lookup
from warploom.meta_schedule.package_records import read, shipped_files
from warploom.meta_schedule.record_lines import KINDS
from warploom.target.gpus import GPUS
from warploom.target.limits import SM90A
from warploom_bench.model_gemms import Hits, layer_shares, mean, model_hits


def summary(paths: Sequence[Path], gpu: str) -> str:
    """What there is, and the hit rate over all models."""
    return f"{_size(paths)}\n{rates(Lookup.of_files(paths), gpu)}"


def rates(lookup: Lookup, gpu: str) -> str:
    """The hit rate over all models by operands, in words."""
    found = [hits for _, hits in model_hits(lookup, GPUS[gpu])]
    words = ", ".join(f"{kind} {_text(mean(one[kind] for one in found))}" for kind in KINDS)
    return f"hit rate on {gpu}, fixed rows (symbolic): {words}"


def _size(paths: Sequence[Path]) -> str:
    nbytes = sum(path.stat().st_size for path in paths)
    records = sum(len(read(path).records) for path in paths)
    names = ", ".join(path.name for path in paths) or "no file"
    return f"{names}: {records} records, {nbytes} bytes; the models have {_layers()} N x K"


def _layers() -> int:
    return len(layer_shares())


def _text(hits: Hits) -> str:
    return f"{hits.fixed:.1%} ({hits.symbolic:.1%})"


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    parser = Parser(prog="warploom bench hit-rate", description=__doc__)
    gpus = [name for name, gpu in GPUS.items() if gpu.arch is SM90A]
    parser.add_argument("--gpu", choices=gpus, default="h200", help="default: %(default)s")
    parser.add_argument(
        "--records", type=input_file, nargs="+", metavar="FILE",
        help="files that `warploom tune db ship` has written (default: those of the package)",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    paths = options.records or shipped_files()
    table = Table()
    for name in ("model", *KINDS):
        table.add_column(name, overflow="fold")
    for model, hits in model_hits(Lookup.of_files(paths), GPUS[options.gpu]):
        table.add_row(model.name, *map(_text, hits.values()))
    Console().print(table)
    print(summary(paths, options.gpu))
    return 0
