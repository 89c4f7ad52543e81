"""The order in which configs of a user's program are measured: by the model of tile programs."""

from __future__ import annotations

from dataclasses import replace

from tvm.target import Target
from tvm.tirx import PrimFunc

from warploom.decide import price_program
from warploom.language.tuning.task import Task


def with_rank(task: Task) -> Task:
    """The task, with the model's predictions where its author has no function of his own.

    What the model has no price for is measured last. So is what it fails on: a prediction is no
    condition of a search.
    """
    if task.rank is not None:
        return task

    def rank(program: PrimFunc, target: Target) -> float | None:
        try:
            return price_program(program, target, task.sizes).total * 1e-6
        except Exception:  # a Decline, or a program unlike those that the model was tested with
            return None

    return replace(task, rank=rank)
