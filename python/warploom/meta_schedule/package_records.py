"""The database that comes with the package: measured configs of GEMMs.

``records/GPU.jsonl`` has a header and a line for each GEMM (:mod:`record_lines`). The kernel that a
config stands for is another kernel in another version of warploom or TVM, so that a file serves the
versions that it was made with; and every line is verified when it is read. ``warploom tune db
ship`` makes a file.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from warploom._version import __version__
from warploom.meta_schedule.record_lines import as_text, columns_of, order, record_line, record_of
from warploom.meta_schedule.records import Record
from warploom.target import SM90A
from warploom.target.gpus import GPUS

#: Set to 0, nothing that is shipped is used.
SWITCH = "WARPLOOM_SHIPPED"
_FORMAT = 2
#: Columns and K.
Layer = tuple[int | None, int | None]
#: What a line that is no record raises.
NO_RECORD = (ValueError, TypeError, KeyError, AttributeError)


@dataclass(frozen=True)
class Shipped:
    """The contents of files with records.

    Attributes
    ----------
    records : tuple of Record
        Those that are right for this version, and legal.
    skipped : tuple of str
        A sentence for each line, or file, that is left out.

    Examples
    --------
    >>> isinstance(wms.shipped(), wms.Shipped)
    True
    """

    records: tuple[Record, ...]
    skipped: tuple[str, ...]


def is_enabled() -> bool:
    """Whether what is shipped is used: unless :data:`SWITCH` is 0 in the environment."""
    return os.environ.get(SWITCH) != "0"


def shipped() -> Shipped:
    """All records that come with the package, verified; none if they are switched off.

    Examples
    --------
    >>> found = wms.shipped()
    >>> all(record.seconds > 0 for record in found.records), list(found.skipped)
    (True, [])
    """
    return _shipped() if is_enabled() else Shipped((), ())


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


class Index:
    """Records of files by layer, of which only those that are asked for are parsed and verified.

    A model has some ten layers and the package records of hundreds: to verify all of them would
    take longer than to choose the configs of the model.

    Parameters
    ----------
    paths : iterable of path
        Lines that are no records, and files of other versions, are left out; :func:`read` says why.

    Raises
    ------
    OSError
        If a file cannot be read.
    """

    def __init__(self, paths: Iterable[str | Path]) -> None:
        self._files: list[tuple[str, str, dict[Layer, list[str]]]] = []
        self._made: dict[Layer, tuple[Record, ...]] = {}
        for path in paths:
            first, *lines = Path(path).read_text(encoding="utf-8").splitlines() or [""]
            try:
                arch, gpu = checked_header(json.loads(first))
            except NO_RECORD:
                continue
            layers: dict[Layer, list[str]] = {}
            for text in lines:
                layers.setdefault(columns_of(text) or _slow_key(text, arch, gpu), []).append(text)
            self._files.append((arch, gpu, layers))

    def __len__(self) -> int:
        """Lines, right or not."""
        return sum(len(lines) for _, _, layers in self._files for lines in layers.values())

    def of(self, n: int | None, k: int | None) -> tuple[Record, ...]:
        """Records of so many columns (of all GEMMs that share A, together) and of a K."""
        layer = (n, k)
        if layer not in self._made:
            self._made[layer] = tuple(
                made
                for arch, gpu, layers in self._files
                for text in layers.get(layer, ())
                if (made := _parsed(text, arch, gpu)) is not None
            )
        return self._made[layer]


@functools.cache
def shipped_index() -> Index:
    """That of :func:`shipped_files`."""
    return Index(shipped_files())


def _slow_key(text: str, arch: str, gpu: str) -> Layer:
    """The key of a line that was written by another hand."""
    made = _parsed(text, arch, gpu)
    if made is None:
        return None, None
    n = made.problem.n
    return (None if n is None else n * made.problem.products), made.problem.k


def _parsed(text: str, arch: str, gpu: str) -> Record | None:
    try:
        return record_of(json.loads(text), arch, gpu)
    except NO_RECORD:
        return None


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
    arch = gpu = ""
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            line = json.loads(text)
            if number == 1:
                arch, gpu = checked_header(line)
            else:
                records.append(record_of(line, arch, gpu))
        except NO_RECORD as error:
            reason = f"{error}" if isinstance(error, ValueError) else f"it has no {error}"
            skipped.append(f"{path.name}, line {number}: {reason}")
            if number == 1:
                break
    return Shipped(tuple(records), tuple(skipped))


def write(records: Iterable[Record], path: str | Path, gpu: str) -> int:
    """Write the records of one GPU to a file, in an order of their own; returns how many.

    Parameters
    ----------
    records : iterable of Record
        Measured ones, one for each GEMM.
    path : path
    gpu : str
        The GPU that they were measured on.
    """
    ordered = sorted(records, key=order)
    lines = [header(gpu), *map(record_line, ordered)]
    Path(path).write_text("".join(as_text(line) + "\n" for line in lines), encoding="utf-8")
    return len(ordered)


def header(gpu: str) -> dict[str, Any]:
    """The first line of a file."""
    return {"format": _FORMAT, **versions(), "gpu": gpu, "arch": SM90A.name}


def checked_header(line: Mapping[str, Any]) -> tuple[str, str]:
    """Architecture and GPU of a first line.

    Raises
    ------
    ValueError, TypeError, KeyError
        If it is none, or of another version.
    """
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
    gpu = str(line["gpu"])
    if gpu not in GPUS or GPUS[gpu].arch is not SM90A:
        known = ", ".join(name for name, one in GPUS.items() if one.arch is SM90A)
        raise ValueError(f"there is no GPU {gpu!r} of {SM90A.name}; allowed are {known}")
    return SM90A.name, gpu
