"""The process of ``warploom emulate``: ``python -m warploom.emulator.script <settings> <script>``.

Not to be started otherwise: the environment must have put the emulator in the place of the driver.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from warploom import emulator
from warploom.emulator import settings


def main(arguments: Sequence[str]) -> None:
    """Run the script as Python would, and afterwards print the reports of its launches."""
    chosen = settings.Settings(**json.loads(arguments[0]))
    emulator.enable()
    settings.apply(chosen)
    sys.argv = list(arguments[1:])
    sys.path[0] = str(Path(arguments[1]).resolve().parent)
    try:
        runpy.run_path(arguments[1], run_name="__main__")
    finally:
        if chosen.report:
            _print_reports()


def _print_reports() -> None:
    for number, report in enumerate(emulator.launch_reports(), 1):
        print(f"\nlaunch {number}\n{report}")


if __name__ == "__main__":
    main(sys.argv[1:])
