"""What tests of MetaSchedule share."""

from __future__ import annotations

import tvm
from tvm.s_tir import meta_schedule as ms

import warploom
from warploom import meta_schedule as wms


def context_of(func) -> ms.TuneContext:
    """A task with our design space."""
    return ms.TuneContext(
        tvm.IRModule({"main": func}),
        target=warploom.cuda_target("h200"),
        space_generator=wms.Space(),
        search_strategy="evolutionary",
        rand_state=1,
    )
