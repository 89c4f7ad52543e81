"""The artifact of a builder for a runner: a folder with a library and the facts about it."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from warploom.decide.config import Config

#: The library in the folder; TVM calls its path the artifact.
LIBRARY = "kernel.so"
#: The file in its place where nothing is compiled.
ESTIMATE = "estimate.json"
_FACTS = "facts.json"
#: The end of a file with right results in the place of a library that computes them.
RESULTS = ".npz"


@dataclass(frozen=True)
class Facts:
    """The facts about a built candidate.

    Attributes
    ----------
    workload : str
        Structural hash of the function without decisions: candidates of one task share it.
    problem : str
        The GEMM, or the tile program and what it is tuned for, in words; empty for others.
    config : dict, optional
        Decisions by name; None for functions that are neither GEMMs nor tile programs.
    predicted : float, optional
        Microseconds by the analytic model.
    outputs : tuple of int
        Which parameters the function writes.
    updated : tuple of int
        Which of these may hold something before that counts: they are read, or written in part.
    exact : bool
        Whether results for the inputs of checks are exact up to the rounding of the last step.
    rounded : bool
        Whether the function rounds each partial sum, so that the reference is not exact.
    reference : str, optional
        The library that computes the right result, or a file of :data:`RESULTS`; None if there is
        neither.
    on_host : bool
        Whether ``reference`` runs on the CPU.
    numbers : tuple of (int, number)
        Arguments that are numbers, with their positions.
    given : str, optional
        A file of tensors whose contents matter, by their positions; others are random.
    in_part : bool
        Whether ``reference`` has only some of the elements; others hold what was there before.
    is_program : bool
        Whether it is a tile program, whose decisions have any names and values.
    kernel : str
        Hash of the code; equal ones are the same kernel. Empty if it is not known.
    """

    workload: str
    problem: str = ""
    config: dict[str, Any] | None = None
    predicted: float | None = None
    outputs: tuple[int, ...] = ()
    updated: tuple[int, ...] = ()
    exact: bool = True
    rounded: bool = False
    reference: str | None = None
    on_host: bool = False
    numbers: tuple[tuple[int, Any], ...] = ()
    given: str | None = None
    in_part: bool = False
    is_program: bool = False
    kernel: str = ""

    def config_text(self) -> str:
        """The config as one would write them."""
        return str(Config.of(self.config)) if self.config else ""


def new_folder(parent: str | None = None) -> Path:
    """An empty folder for an artifact."""
    return Path(tempfile.mkdtemp(prefix="warploom-", dir=parent))


def write_facts(folder: Path, facts: Facts) -> None:
    """Put facts beside the library in ``folder``."""
    (folder / _FACTS).write_text(json.dumps(asdict(facts)))


def read_facts(artifact: str | Path) -> Facts:
    """The facts about a library, by its path.

    Raises
    ------
    OSError, ValueError, TypeError
        If there are none: another builder made it.
    """
    values: dict[str, Any] = json.loads((Path(artifact).parent / _FACTS).read_text())
    tuples = {name: tuple(values[name]) for name in ("outputs", "updated", "numbers")}
    return Facts(**{**values, **tuples})
