"""What was measured of a GPU: the file that ``warploom bench machine`` writes.

The file of a GPU lies in the folder of the caches, ``machines/NAME.json``, or is the one that
``WARPLOOM_MACHINE`` names. It gives the facts of a GPU that the table of ``gpus.py`` lacks, and
constants of the cost model. This module reads it; the package ``warploom_bench`` writes it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from warploom.errors import IllegalCombination
from warploom.runtime.cache_folder import default_folder

#: Names the file to read in place of that of the cache.
VARIABLE = "WARPLOOM_MACHINE"
#: Version of the format.
FORMAT = 1
#: Facts of a GPU in the file, and how they are read.
_FACTS = {"sms": int, "l2_bytes": int, "dram_bandwidth": float, "clock": float, "watts": int}


@dataclass(frozen=True)
class Measured:
    """The contents of a file.

    Attributes
    ----------
    name : str
        The GPU, as its driver calls it.
    facts : Mapping
        Fields of :class:`warploom.target.gpus.Gpu`: SMs, bytes of L2, bytes a second, Hz, W.
    constants : Mapping
        Fields of the cost model's machine, by name; those that were measured.
    path : Path
    """

    name: str
    facts: Mapping[str, float]
    constants: Mapping[str, float] = field(default_factory=dict)
    path: Path = Path()


def machine_file(name: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The file of a GPU, as its driver calls it, whether or not it exists.

    Examples
    --------
    >>> machine_file("NVIDIA H200", {"WARPLOOM_CACHE_DIR": "/c"}).as_posix()
    '/c/machines/nvidia-h200.json'
    """
    if environ.get(VARIABLE):
        return Path(environ[VARIABLE])
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return _folder(environ) / f"{readable}.json"


def _folder(environ: Mapping[str, str]) -> Path:
    caches = environ.get("WARPLOOM_CACHE_DIR")
    return Path(caches or default_folder(environ)).absolute() / "machines"


def contents(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Hashes of the files that decisions may depend on, wherever they lie.

    Returns
    -------
    dict of str to str
        SHA-256 by the name of the file in the folder of the caches; by :data:`VARIABLE` of the
        file that it names, which all GPUs then have.
    """
    named = environ.get(VARIABLE)
    if named:
        return {VARIABLE: _digest(Path(named))}
    return {path.name: _digest(path) for path in _folder(environ).glob("*.json")}


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:  # whoever reads it says so
        return ""


def measured(name: str, sms: int) -> Measured | None:
    """What was measured of a GPU; None if nothing was.

    Parameters
    ----------
    name : str
        As its driver calls it.
    sms : int
        A file of a GPU with another number of SMs, such as a MIG slice, is not taken.

    Raises
    ------
    IllegalCombination
        If the file is none of ``warploom bench machine``.
    """
    path = machine_file(name)
    try:
        state = path.stat()
    except OSError:
        if os.environ.get(VARIABLE):
            raise IllegalCombination(
                f"{VARIABLE} is {path}, which is no file that can be read; write it with `warploom "
                "bench machine --json FILE`, or unset the variable."
            ) from None
        return None
    found = _read(path, state.st_mtime_ns, state.st_size)
    return found if (found.name, found.facts["sms"]) == (name, sms) else None


@functools.lru_cache(maxsize=8)
def _read(path: Path, changed: int, size: int) -> Measured:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']}, and {FORMAT} is read")
        facts = {key: kind(content["facts"][key]) for key, kind in _FACTS.items()}
        constants = {str(key): float(value) for key, value in content["constants"].items()}
        numbers = [*facts.values(), *constants.values()]
        positive = all(value > 0 for key, value in facts.items() if key != "watts")
        if not positive or not all(0 <= value < math.inf for value in numbers):
            raise ValueError("a fact or constant is no positive number")
        return Measured(str(content["gpu"]), facts, constants, path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise IllegalCombination(
            f"{path} is no file of `warploom bench machine` ({error}); remove it, or measure again."
        ) from None
