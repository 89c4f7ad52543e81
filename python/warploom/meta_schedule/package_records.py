"""The database that comes with the package: the fastest configs of GEMMs that were measured.

``records/GPU.jsonl`` has a header and a line for each GEMM: differences from a usual problem,
differences from the default config, and microseconds. The kernel that a config stands for is
another kernel in another version of warploom or TVM, so that a file serves the versions that it was
made with; and every line is verified when it is read. ``warploom tune db ship`` makes it.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any

from warploom._version import __version__
from warploom.decide.old_records import read_config, with_new_key
from warploom.decide.problem import GemmProblem
from warploom.errors import IllegalCombination
from warploom.meta_schedule.records import Record
from warploom.target import SM90A
from warploom.target.dtypes import bits_of

#: Set to 0, nothing that is shipped is used.
SWITCH = "WARPLOOM_SHIPPED"
_FORMAT = 1
_LAYOUTS = ("NT", "NN", "TN", "TT")
#: Defaults of the problem of a line.
_USUAL = asdict(
    GemmProblem(
        m=None, n=None, k=None, batch=1, a_dtype="float16", b_dtype="float16", layout="NT",
        accumulator="float32", products=1, a_bits=16, b_bits=16, inputs=(), outputs=("float16",),
    )
)  # fmt: skip


@dataclass(frozen=True)
class Shipped:
    """The contents of files with records.

    Attributes
    ----------
    records : tuple of Record
        Those that are right for this version, and legal.
    skipped : tuple of str
        A sentence for each line, or file, that is left out.
    """

    records: tuple[Record, ...]
    skipped: tuple[str, ...]


def shipped() -> Shipped:
    """The records that come with the package; none if :data:`SWITCH` is 0 in the environment."""
    if os.environ.get(SWITCH) == "0":
        return Shipped((), ())
    return _shipped()


@functools.cache
def _shipped() -> Shipped:
    files = [read(path) for path in shipped_files()]
    return Shipped(
        tuple(record for file in files for record in file.records),
        tuple(text for file in files for text in file.skipped),
    )


def shipped_files() -> list[Path]:
    """Files of the package."""
    root = Path(str(resources.files("warploom.meta_schedule"))) / "records"
    return sorted(root.glob("*.jsonl"))


def versions() -> dict[str, str]:
    """The versions that a file is made with and serves."""
    tvm = importlib.metadata.version("apache-tvm").split(".")
    return {"warploom": __version__, "tvm": ".".join(tvm[:2])}


def read(path: str | Path) -> Shipped:
    """Records of a file, each verified.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    path = Path(path)
    records: list[Record] = []
    skipped: list[str] = []
    arch = ""
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            line = json.loads(text)
            if number == 1:
                arch = _checked_header(line)
            else:
                records.append(_record(line, arch))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            reason = f"{error}" if isinstance(error, ValueError) else f"it has no {error}"
            skipped.append(f"{path.name}, line {number}: {reason}")
            if number == 1:
                break
    return Shipped(tuple(records), tuple(skipped))


def write(records: Iterable[Record], path: str | Path, gpu: str) -> int:
    """Write the records of one architecture to a file; returns how many.

    Parameters
    ----------
    records : iterable of Record
        Measured ones, one for each GEMM.
    path : path
    gpu : str
        The GPU that they were measured on.
    """
    ordered = sorted(records, key=lambda record: str(record.problem))
    header = {"format": _FORMAT, **versions(), "gpu": gpu, "arch": SM90A.name}
    lines = [header, *(_line(record) for record in ordered)]
    text = "".join(json.dumps(fields, separators=(",", ":")) + "\n" for fields in lines)
    Path(path).write_text(text, encoding="utf-8")
    return len(ordered)


def _line(record: Record) -> dict[str, Any]:
    problem = {name: _plain(value) for name, value in asdict(record.problem).items()
               if value != _USUAL[name]}  # fmt: skip
    numbers = record.config.values()
    config = {name: numbers[name] for name in record.config.changed()}
    return {**problem, "config": config, "us": round(record.seconds * 1e6, 2)}


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _checked_header(line: Mapping[str, Any]) -> str:
    made = {"format": line["format"], **{name: line[name] for name in versions()}}
    wanted = {"format": _FORMAT, **versions()}
    if made != wanted:
        was, now = (
            ", ".join(f"{name} {value}" for name, value in values.items())
            for values in (made, wanted)
        )
        raise ValueError(f"the file was made for {was}; this is {now}")
    if line["arch"] != SM90A.name:
        raise ValueError(f"there are no kernels for {line['arch']!r}; allowed is {SM90A.name}")
    return line["arch"]


def _record(line: Mapping[str, Any], arch: str) -> Record:
    values = {**_USUAL, **with_new_key(line)}
    config, us = read_config(values.pop("config")), values.pop("us")
    if not (isinstance(us, int | float) and math.isfinite(us) and us > 0):
        raise ValueError(f"us = {us}: a time must be positive")
    problem = _problem(values)
    reason = config.why_not(problem)
    if reason is not None:
        raise ValueError(f"{problem}: {reason}")
    return Record(problem, config, us * 1e-6, arch, False, None)


def _problem(values: Mapping[str, Any]) -> GemmProblem:
    unknown = set(values) - {field.name for field in fields(GemmProblem)}
    if unknown:
        raise ValueError(f"a GEMM has no {min(unknown)!r}")
    for name, text in _mistakes(values):
        raise ValueError(f"{name} = {values[name]!r}: {text}")
    try:
        for dtype in (values["a_dtype"], values["b_dtype"], *values["outputs"]):
            bits_of(dtype)
    except IllegalCombination as error:
        raise ValueError(str(error)) from None
    return GemmProblem(**{name: _frozen(value) for name, value in values.items()})


def _mistakes(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("m", "n", "k", "batch"):
        value = values[name]
        if value is not None and not (type(value) is int and value > 0):
            yield name, "an extent must be a positive integer or null"
    if values["layout"] not in _LAYOUTS:
        yield "layout", f"allowed are {', '.join(_LAYOUTS)}"
    if values["accumulator"] not in ("float32", "int32"):
        yield "accumulator", "allowed are float32 and int32"
    if not (type(values["products"]) is int and values["products"] > 0):
        yield "products", "it must be a positive integer"
    if not values["outputs"]:
        yield "outputs", "there must be one"


def _frozen(value: Any) -> Any:
    return tuple(_frozen(part) for part in value) if isinstance(value, list | tuple) else value
