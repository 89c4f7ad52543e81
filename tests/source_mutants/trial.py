"""Judges a mutant of a source: a copy of the package in which one module differs, and pytest.

No file of the package changes. The copy is a folder of links that comes first on ``PYTHONPATH``, so
the processes that a test starts import the mutant, too.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import warploom
from tests.shared.paths import ROOT
from tests.source_mutants.mutation import SourceMutant

PACKAGE = Path(warploom.__file__).parent
#: A mutant that takes longer hangs. Many times what judges take.
LIMIT = 240.0
#: Folders whose mutants may make machine code that the cache would then keep for others.
_CACHED = ("compiler",)
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.*)$", re.MULTILINE)
_NO_SUCH_TEST = "ERROR: not found"


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant.

    Attributes
    ----------
    state : str
        ``killed``, ``survived``, ``hung`` (which counts as killed), ``no judges``, or ``stale``: a
        test that should judge is gone, or the module has changed.
    by : str
        The test that failed, if one did.
    output : str
        The end of what pytest printed.
    """

    state: str
    by: str = ""
    output: str = ""

    @property
    def killed(self) -> bool:
        """Whether the tests tell the mutant from the package."""
        return self.state in ("killed", "hung")


def overlay(folder: Path, module: str, text: str) -> None:
    """A copy of the package in a folder, with links for all but one module."""
    source, copy = PACKAGE, folder / PACKAGE.name
    for part in Path(module).parts:
        copy.mkdir()
        for one in source.iterdir():
            if one.name not in (part, "__pycache__"):
                (copy / one.name).symlink_to(one)
        source, copy = source / part, copy / part
    copy.write_text(text)


def judge(
    mutant: SourceMutant, tests: Sequence[str], limit: float = LIMIT, **changes: str
) -> Verdict:
    """Execute tests with the mutant, on the emulator, until one fails.

    Keyword arguments are variables of the environment.
    """
    if not tests:
        return Verdict("no judges")
    with tempfile.TemporaryDirectory() as folder:
        text = (PACKAGE / mutant.module).read_text()
        if not mutant.is_of(text):
            return Verdict("stale", output=f"{mutant.module} has changed")
        overlay(Path(folder), mutant.module, mutant.apply(text))
        path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
        environ = {
            **{name: value for name, value in os.environ.items() if "PYTEST" not in name},
            **{"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            # A GPU would execute what no longer waits for its data.
            **{"WARPLOOM_EMULATOR": "1", "CUDA_VISIBLE_DEVICES": ""},
            # Examples of hypothesis that kill a mutant are none that tests should begin with.
            **{"HYPOTHESIS_STORAGE_DIRECTORY": f"{folder}/hypothesis", **changes},
        }
        if mutant.module.startswith(_CACHED):
            environ["WARPLOOM_CACHE_DIR"] = f"{folder}/cache"
        command = [
            *(sys.executable, "-m", "pytest", "-x", "-q", "--tb=short", "-p", "no:randomly"),
            *("-p", "no:cacheprovider", "-p", "no:xdist", *tests),
        ]
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=limit
            )
        except subprocess.TimeoutExpired:
            return Verdict("hung")
    output = done.stdout + done.stderr
    missing = _missing(output)
    # pytest leaves the parameters out where no test of that name has any.
    left = [
        one for one in tests
        if not any(f"/{name}\n" in missing for name in (one, one.partition("[")[0]))
    ]  # fmt: skip
    if left and len(left) < len(tests):  # tests that were renamed since they were recorded
        return judge(mutant, left, limit, **changes)
    return _verdict(done.returncode, output, tests)


def _missing(output: str) -> str:
    """The lines of pytest's output that name tests which do not exist."""
    lines = output.splitlines(keepends=True)
    return "".join(one for one in lines if one.startswith(_NO_SUCH_TEST))


def _verdict(status: int, output: str, tests: Sequence[str]) -> Verdict:
    if status == 0:
        return Verdict("survived", output=output[-400:])
    if _NO_SUCH_TEST in output:
        return Verdict("stale", output=output[-400:])
    # A summary line is the kind, the name, which may have spaces, and the message.
    found = _FAILED.search(output)
    text = found[1] if found else ""
    names = [one for one in tests if text.startswith(one)]
    return Verdict("killed", max(names, key=len, default=text.partition(" - ")[0]), output[-2000:])
