"""Where the repository is, and how a new process imports the modules of the tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

#: The root of the repository: modules of the tests are imported from here, as ``tests.<room>.``.
ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"


def python_path() -> str:
    """``PYTHONPATH`` of a process that is to import all that this one can, the tests too."""
    return os.pathsep.join([str(ROOT), *filter(None, sys.path)])
