"""The process of ``warploom emulate``.

``python -m warploom.emulator.script <settings> <page or nothing> <script>``.

Not to be started otherwise: the environment must have put the emulator in the place of the driver.
"""

from __future__ import annotations

import functools
import json
import runpy
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from warploom import emulator
from warploom.emulator import clients, script_lines, settings
from warploom.emulator.binding import EmulatorError
from warploom.emulator.findings import findings_of, summary
from warploom.emulator.html_report import html_page
from warploom.emulator.run_program import FAILURES, message_of


def main(arguments: Sequence[str]) -> None:
    """Run the script as Python would; afterwards write what was found, and print counts."""
    chosen, page = settings.Settings(**json.loads(arguments[0])), arguments[1]
    sys.excepthook = functools.partial(_show, sys.excepthook)
    emulator.enable()
    clients.prepare_process()
    settings.apply(chosen)
    sys.argv = list(arguments[2:])
    sys.path[0] = str(Path(arguments[2]).resolve().parent)
    try:
        runpy.run_path(arguments[2], run_name="__main__")
    finally:
        if page:
            _write_page(Path(page), arguments[2])
        if chosen.report:
            _print_reports()


def _show(
    others: Callable[..., None], kind: type[BaseException], error: BaseException,
    trace: TracebackType | None,
) -> None:  # fmt: skip
    """Print an error; of a launch the emulator's report, folded and without CUDA source."""
    if isinstance(error, EmulatorError) or "warploom emulator: " not in str(error):
        others(kind, error, trace)
        return
    found = findings_of(emulator.reports())
    print("Traceback (most recent call last):", file=sys.stderr)
    print("".join(traceback.format_tb(trace)), end="", file=sys.stderr)
    print(f"{kind.__name__}: {summary(message_of(error), found)}", file=sys.stderr)


def _write_page(page: Path, script: str) -> None:
    """Write all that was found: by launches of the script, and by runs whose errors it has seen."""
    earlier = {one: None for error in FAILURES for one in error.findings}
    found = [*earlier, *(one for one in findings_of(emulator.reports()) if one not in earlier)]
    page.parent.mkdir(parents=True, exist_ok=True)
    title = f"What the emulator has found in {Path(script).name}"
    page.write_text(html_page(found, script_lines.files(), title), encoding="utf-8")
    print(f"{page}: {len(found)} finding{'s' * (len(found) != 1)}")


def _print_reports() -> None:
    for number, report in enumerate(emulator.launch_reports(), 1):
        print(f"\nlaunch {number}\n{report}")


if __name__ == "__main__":
    main(sys.argv[1:])
