"""``warploom tune db inspect|verify|repair|merge|export|import|ship``: tuning records."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from warploom.command_line import Parser, natural, output_file, output_folder
from warploom.decide.problem import GemmProblem
from warploom.decide.repair import why_not_search
from warploom.errors import WarploomError
from warploom.language.tuning.space import text_of
from warploom.meta_schedule.database import RECORDS, is_database, merge, read_database
from warploom.meta_schedule.imported import import_lines
from warploom.meta_schedule.judged import is_judged, read_judged
from warploom.meta_schedule.mend import DROPPED, mend
from warploom.meta_schedule.package_records import read, shipped, write
from warploom.meta_schedule.programs.records import Tuned, tuned_programs
from warploom.meta_schedule.progress import short
from warploom.meta_schedule.records import FAILED_SECONDS, Record, median, records_of
from warploom.meta_schedule.ship import GAIN, measurements, together, worth_shipping
from warploom.target.tvm_target import cuda_target


def summary(records: Sequence[Record]) -> Table:
    """A row for each GEMM, architecture and kind of time."""
    groups: dict[tuple[str, str, bool], list[Record]] = {}
    for record in records:
        groups.setdefault((str(record.problem), record.arch, record.estimate), []).append(record)
    table = Table()
    for name in ("GEMM", "arch", "time", "records", "best us", "TFLOP/s", "best config"):
        table.add_column(name, overflow="fold")
    for (problem, arch, estimate), mine in sorted(groups.items()):
        best = min(mine, key=lambda record: record.seconds)
        rate = operations(best.problem) / best.seconds / 1e12
        table.add_row(
            problem, arch, "estimated" if estimate else "measured", str(len(mine)),
            f"{best.seconds * 1e6:.2f}", f"{rate:.0f}", short(best.config),
        )  # fmt: skip
    return table


def summary_of_programs(tuned: Sequence[Tuned]) -> Table:
    """A row for each tile program of a user, key, architecture and kind of time."""
    table = Table()
    for name in ("tile program", "arch", "time", "records", "best us", "best config"):
        table.add_column(name, overflow="fold")
    for one in tuned:
        best = one.measured[0]
        table.add_row(
            one.name, one.arch, "emulated" if one.emulated else "measured",
            str(len(one.measured)), f"{best.seconds * 1e6:.2f}", text_of(best.config),
        )  # fmt: skip
    return table


def operations(problem: GemmProblem) -> int:
    """Multiplications and additions; sizes that are not known count as 1."""
    count = 2 * problem.products
    for size in (problem.m, problem.n, problem.k, problem.batch):
        count *= size or 1
    return count


def complaints(folder: Path) -> Iterator[str]:
    """Yield the faults of a database, or of a shipped file, in sentences."""
    if folder.is_file():
        yield from read(folder).skipped
        return
    database = read_database(folder)
    stock = database.get_all_tuning_records()
    if not stock:
        yield f"{folder} has no records."
    good = records_of(database)
    succeeded = sum(median(record) < FAILED_SECONDS for record in stock)
    succeeded -= sum(len(tuned.measured) for tuned in tuned_programs(database))
    if succeeded > len(good):
        yield f"{succeeded - len(good)} records are of no GEMM, or choose no legal config."
    for measurement in good:
        if measurement.seconds <= 0:
            took = f"{measurement.config} takes {measurement.seconds} seconds"
            yield f"{measurement.problem}: {took}."
        reason = why_not_search(measurement.problem, measurement.config)
        if reason is not None:
            yield f"{measurement.problem}: {measurement.config} is not possible. {reason}"
    if len({record.estimate for record in good}) > 1:
        yield "There are estimates and measured times."


def _records(source: Path) -> Sequence[Record]:
    return read(source).records if source.is_file() else records_of(read_database(source))


def _shipped_before(path: Path) -> Sequence[Record]:
    """The records of a file, each of which must be right."""
    lines = read(path)
    if lines.skipped:
        raise WarploomError(f"Records would be lost. {lines.skipped[0]}")
    return lines.records


def _parser() -> Parser:
    parser = Parser(prog="warploom tune db", description=__doc__)
    words = parser.add_subparsers(dest="word", required=True)
    inspect = words.add_parser("inspect", help="list the best of each GEMM")
    inspect.add_argument("folders", nargs="*", type=Path, help="(default: the shipped records)")
    inspect.add_argument("--json", action="store_true", help="print all records as JSON")
    verify = words.add_parser("verify", help="check every record")
    verify.add_argument(
        "folders", nargs="+", type=Path, help="databases, or files that `ship` has written"
    )
    repair = words.add_parser(
        "repair", help=f"remove damaged lines, which {DROPPED} in the same folder gets"
    )
    repair.add_argument("folders", nargs="+", type=Path)
    for name, text in (
        ("merge", "write all records of several databases into one"),
        ("export", "write only the fastest of each GEMM"),
    ):
        word = words.add_parser(name, help=text)
        word.add_argument("folders", nargs="+", type=Path)
        word.add_argument("--out", type=output_folder, required=True)
        word.add_argument(
            "--best",
            type=natural,
            default=1 if name == "export" else 0,
            help="records of each GEMM (default: %(default)s, 0: all)",
        )
    lines = words.add_parser("import", help="make records of results of `bench exhaustive`")
    lines.add_argument("files", nargs="+", type=Path)
    lines.add_argument("--out", type=output_folder, required=True)
    lines.add_argument("--target", default="h200", help="GPU of the measurements (default: h200)")
    lines.add_argument("--best", type=natural, default=3, help="of each GEMM (default: 3)")
    ship = words.add_parser(
        "ship", help="write the records to ship: judged configs, or those that beat the default"
    )
    ship.add_argument(
        "sources", nargs="+", type=Path,
        help="files of `bench records`, databases, .jsonl[.gz] of `bench exhaustive`, .json of "
        "`bench tuning`",
    )  # fmt: skip
    ship.add_argument("--out", type=output_file, required=True, help="such as records/h200.jsonl")
    ship.add_argument(
        "--before", type=Path,
        help="records shipped before, kept unless a source has better ones; may be --out",
    )  # fmt: skip
    ship.add_argument(
        "--gpu", help="of the measurements (default: that of files that say it, else h200)"
    )
    ship.add_argument("--gain", type=float, default=GAIN,
                      help="least part of the default's time (default: %(default)s)")  # fmt: skip
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run the command; ``verify`` exits with 1 if something is wrong."""
    options = _parser().parse_args(arguments)
    if options.word not in ("ship", "import"):
        _require_databases(options)
    return _ACTIONS[options.word](options)


def _require_databases(options: argparse.Namespace) -> None:
    for folder in options.folders:
        is_file = options.word in ("inspect", "verify") and folder.is_file()
        if not is_file and not is_database(folder):
            raise WarploomError(f"{folder} has no {RECORDS}; it is no database.")


def _ship(options: argparse.Namespace) -> int:
    judged = {source: read_judged(source) for source in options.sources if is_judged(source)}
    measured = [
        measurement
        for source in options.sources
        if source not in judged
        for measurement in measurements(source)
    ]
    before = _shipped_before(options.before) if options.before else ()
    gpus = {record.gpu for record in before} | {file.gpu for file in judged.values()}
    gpu = options.gpu or (min(gpus) if len(gpus) == 1 else "h200")
    if gpus - {gpu}:
        raise WarploomError(
            "A file has the records of one GPU, and these are of "
            f"{', '.join(sorted(gpus | {gpu}))}; write a file for each."
        )
    found = [entry.record for file in judged.values() for entry in file.entries if entry.record]
    kept = together(found, worth_shipping(measured, options.gain, before))
    print(f"{options.out}: {write(kept, options.out, gpu)} records")
    return 0


def _import(options: argparse.Namespace) -> int:
    count = import_lines(options.files, options.out, cuda_target(options.target), options.best)
    print(f"{options.out}: {count} records")
    return 0


def _repair(options: argparse.Namespace) -> int:
    for folder in options.folders:
        done = mend(folder)
        aside = f"; {done.dropped} lines are now in {folder / DROPPED}" if done.dropped else ""
        print(f"{folder}: {done.records} records of {done.workloads} workloads{aside}")
    return 0


def _as_json(record: Record) -> dict[str, object]:
    return {
        "problem": str(record.problem), "arch": record.arch, "estimate": record.estimate,
        "us": record.seconds * 1e6, "config": str(record.config),
    }  # fmt: skip


def _program_as_json(tuned: Tuned) -> dict[str, object]:
    best = tuned.measured[0]
    return {
        "program": tuned.name, "arch": tuned.arch, "emulated": tuned.emulated,
        "us": best.seconds * 1e6, "config": text_of(best.config),
    }  # fmt: skip


def _inspect(options: argparse.Namespace) -> int:
    measured = [record for folder in options.folders for record in _records(folder)]
    databases = [read_database(folder) for folder in options.folders if not folder.is_file()]
    programs = [tuned for database in databases for tuned in tuned_programs(database)]
    if not options.folders:
        measured = list(shipped().records)
    if options.json:
        print(json.dumps([*map(_as_json, measured), *map(_program_as_json, programs)], indent=2))
        return 0
    if measured or not programs:
        Console().print(summary(measured))
    if programs:
        Console().print(summary_of_programs(programs))
    return 0


def _verify(options: argparse.Namespace) -> int:
    wrong = [text for folder in options.folders for text in complaints(folder)]
    print("\n".join(wrong) or "Nothing is wrong.")
    return 1 if wrong else 0


def _merge(options: argparse.Namespace) -> int:
    count = merge(options.folders, options.out, options.best)
    print(f"{options.out}: {count} records")
    return 0


_ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {
    "ship": _ship, "import": _import, "repair": _repair, "inspect": _inspect, "verify": _verify,
    "merge": _merge, "export": _merge,
}  # fmt: skip
