"""Records which tests execute which lines of the package: a plugin of pytest.

``python -m tests.source_mutants --record`` loads it. Each process writes a file of its own: one
line of JSON for each test that passed, with its name, its seconds and the lines of each module.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import warploom

#: Names the folder that the files are written to.
FOLDER = "WARPLOOM_SOURCE_COVERAGE"
#: A function that so many calls of a test have shown no new line of is no longer watched in it.
_ENOUGH = 60

_PACKAGE = f"{Path(warploom.__file__).parent}/"
#: A line that a function has executed, by the path below the package.
_Lines = dict[str, set[int]]


class _Recorder:
    """Watches the lines of the package that one test executes."""

    def __init__(self) -> None:
        self.lines: _Lines = defaultdict(set)
        self.without_news: Counter[CodeType] = Counter()

    def called(self, frame: FrameType, _event: str, _argument: Any) -> Callable[..., Any] | None:
        """What ``sys.settrace`` calls for each call: the tracer of its lines, or None."""
        code = frame.f_code
        name = code.co_filename
        if not name.startswith(_PACKAGE) or self.without_news[code] > _ENOUGH:
            return None
        seen = self.lines[name[len(_PACKAGE) :]]
        self.without_news[code] += 1

        def line(frame: FrameType, event: str, _argument: Any) -> Callable[..., Any]:
            if event == "line" and frame.f_lineno not in seen:
                seen.add(frame.f_lineno)
                self.without_news[code] = 0
            return line

        seen.add(frame.f_lineno)
        return line


class Coverage:
    """The plugin: it watches every test from its set-up to its tear-down."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{os.getpid()}.jsonl"
        self.failed = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        recorder, self.failed, start = _Recorder(), False, time.process_time()
        sys.settrace(recorder.called)
        threading.settrace(recorder.called)
        try:
            result = yield
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
        lines = {name: sorted(found) for name, found in recorder.lines.items()}
        if not self.failed and lines:
            seconds = round(time.process_time() - start, 3)
            row = {"test": item.nodeid, "seconds": seconds, "lines": lines}
            with open(self.path, "a") as file:
                file.write(json.dumps(row) + "\n")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.outcome != "passed"


def pytest_configure(config: pytest.Config) -> None:
    # The first process of pytest-xdist runs no test.
    if not getattr(config.option, "numprocesses", None):
        config.pluginmanager.register(Coverage(Path(os.environ[FOLDER])))
