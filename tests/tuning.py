"""What tests of MetaSchedule share."""

from __future__ import annotations

import importlib
import inspect
import logging
import sys

import pytest
import tvm
from tvm.s_tir import meta_schedule as ms

import warploom
from warploom import meta_schedule as wms


@pytest.fixture
def intrinsics(monkeypatch) -> None:
    """Import TVM's own intrinsics, as every TuneContext does, in a quarter of the time.

    Each of its 250 functions asks for the whole stack, which is deep here, and needs its top.
    """
    if "tvm.s_tir.tensor_intrin" not in sys.modules:
        monkeypatch.setattr(inspect, "stack", _top_of_stack)
        importlib.import_module("tvm.s_tir.tensor_intrin")


def _top_of_stack(context: int = 1) -> list[inspect.FrameInfo]:
    frames, frame = [], sys._getframe(1)
    while frame is not None and len(frames) < 6:
        frames.append(inspect.FrameInfo(frame, *inspect.getframeinfo(frame, context)))
        frame = frame.f_back
    return frames


@pytest.fixture(autouse=True)
def reset_loggers() -> None:
    """Let loggers of earlier searches propagate again, as before them.

    pytest gives those that do not a handler without a name, and then TVM fails on that.
    """
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("tvm.s_tir.meta_schedule"):
            logging.getLogger(name).propagate = True


def context_of(func) -> ms.TuneContext:
    """A task with our design space."""
    return ms.TuneContext(
        tvm.IRModule({"main": func}),
        target=warploom.cuda_target("h200"),
        space_generator=wms.Space(),
        search_strategy="evolutionary",
        rand_state=1,
    )
