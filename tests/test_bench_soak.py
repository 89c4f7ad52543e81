"""The soak: faults are told, everything else goes on."""

from __future__ import annotations

import random

import pytest

from warploom.bench import soak
from warploom.meta_schedule import Builder, Runner

pytestmark = pytest.mark.gpu


@pytest.mark.slow
def test_a_run_with_faults_loses_nothing_else():
    run = soak.soak((64, 64, 64), 60.0, 8.0, 1, workers=1)
    assert not run.unexpected and set(run.seen) >= {"right", "hang", "illegal address"}


def test_faults_are_told_and_right_candidates_measured():
    builder, runner = Builder(1), Runner(timeout_sec=30)
    try:
        run = soak._Soak((64, 64, 64), builder, runner)
        for kind in ("wrong result", "right", "illegal address", "right"):
            run.step(_Fixed(kind))
        assert run.seen == {"wrong result": 1, "right": 2, "illegal address": 1}
        assert not run.unexpected
        run.bad["hang"] = run.right[0]
        run.step(_Fixed("hang"))
        assert len(run.unexpected) == 1, "a fault that is not told is seen"
    finally:
        runner.close()
        builder.close()


class _Fixed(random.Random):
    """Chooses one kind of trial."""

    def __new__(cls, kind: str):
        return super().__new__(cls)

    def __init__(self, kind: str) -> None:
        super().__init__(1)
        self.kind = kind

    def randrange(self, count: int) -> int:
        return int(self.kind == "right")

    def choice(self, values):
        return self.kind if self.kind in values else values[0]
