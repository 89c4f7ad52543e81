"""What tests of MetaSchedule share."""

from __future__ import annotations

import logging

import pytest
import tvm
from tvm.s_tir import meta_schedule as ms

import warploom
from warploom import meta_schedule as wms


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
