"""Pages of the tutorials: their cells, and what these have printed when the site was built."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from warploom.tutorials.export import find_tutorials

ROOT = Path(__file__).parents[2]
#: Lines of output that a page shows of a cell.
_MOST_LINES = 60


@dataclass(frozen=True)
class Cell:
    """A cell of a tutorial.

    Attributes
    ----------
    is_code : bool
    text : str
        Code, or Markdown.
    line : int
        The first line of the cell in its file, counted from 1.
    """

    is_code: bool
    text: str
    line: int


def tutorials(folder: Path) -> list[Path]:
    """The tutorials of a folder, and the steps of its ladders."""
    return find_tutorials(folder)


def cells(path: Path) -> list[Cell]:
    """The cells of a file in the percent format; those without text are left out."""
    found: list[Cell] = []
    kind, lines, start = True, [], 1
    for number, line in enumerate([*path.read_text().splitlines(), "# %%"], 1):
        if not line.startswith("# %%"):
            lines.append(line)
            continue
        text = "\n".join(lines if kind else (re.sub("^# ?", "", each) for each in lines))
        if text.strip():
            found.append(Cell(kind, text.strip("\n"), start))
        kind, lines, start = not line.startswith("# %% [markdown]"), [], number + 1
    return found


@dataclass(frozen=True)
class Outputs:
    """What programs printed, kept in a folder: a program whose file is the same runs once.

    Attributes
    ----------
    folder : Path
    seconds : float
        After which a program is considered hung.
    jobs : int
        Programs that run at a time.
    """

    folder: Path
    seconds: float = 1800
    jobs: int = 2

    def record(self, paths: Sequence[Path]) -> None:
        """Execute those programs whose outputs are not kept yet.

        Raises
        ------
        RuntimeError
            If a program fails; the message has the end of what it said.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        missing = [path for path in paths if not self.file(path).exists()]
        with ThreadPoolExecutor(self.jobs) as pool:
            failures = [each for each in pool.map(self._execute, missing) if each]
        if failures:
            raise RuntimeError("\n".join(failures))

    def of(self, path: Path) -> dict[int, str]:
        """What a program has printed, by the first line of the cell."""
        kept = json.loads(self.file(path).read_text())
        return {int(line): text for line, text in kept.items()}

    def file(self, path: Path) -> Path:
        """The file that keeps the outputs of a program."""
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        return self.folder / f"{path.parent.name}-{path.stem}-{digest}.json"

    def _execute(self, path: Path) -> str:
        out = self.file(path)
        print(f"executing {path.relative_to(ROOT)}", flush=True)
        command = [sys.executable, "-m", "tutorials.site.execute", str(path), str(out)]
        where = os.pathsep.join([str(ROOT), str(ROOT / "python")])
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=self.seconds, cwd=ROOT,
                env={**os.environ, "PYTHONPATH": where},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"{path}: not done after {self.seconds} s"
        return f"{path}: {done.stderr[-2000:]}" if done.returncode else ""


def page(path: Path, outputs: Outputs | None) -> str:
    """A tutorial in Markdown.

    Parameters
    ----------
    path : Path
    outputs : Outputs or None
        What its cells have printed; None shows the code alone.
    """
    printed = outputs.of(path) if outputs else {}
    parts = []
    for cell in cells(path):
        if not cell.is_code:
            parts.append(cell.text)
            continue
        parts.append(f"```python\n{cell.text}\n```")
        if text := printed.get(cell.line, "").strip("\n"):
            parts.append(shown(text))
    parts.append(f"`{path.relative_to(ROOT)}` is this page as a program.")
    return "\n\n".join(parts) + "\n"


def _wrapped(line: str) -> list[str]:
    """A line of prose as lines that fit on a page; lines of tables and scripts stay."""
    if len(line) <= 150 or line.startswith(" ") or "  " in line:
        return [line]
    return textwrap.wrap(line, 110, subsequent_indent="    ", break_long_words=False)


def shown(text: str) -> str:
    """What a program has printed, as a block of a page; long text is cut."""
    lines = [part for line in text.splitlines() for part in _wrapped(line)]
    if len(lines) > _MOST_LINES:
        left_out = len(lines) - _MOST_LINES
        lines = [*lines[:_MOST_LINES], f"... {left_out} lines more"]
    body = "\n".join(lines)
    return f"````{{code-block}} text\n:class: output\n\n{body}\n````"
