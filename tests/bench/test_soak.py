"""The soak: faults are told, everything else goes on."""

from __future__ import annotations

import json
import random

import pytest

from warploom.meta_schedule import Builder, Runner
from warploom.meta_schedule.journal import Entry
from warploom_bench import soak
from warploom_bench.faults import BAD_KERNELS, KILLED, Injected, complaints, failed_but_right

pytestmark = pytest.mark.gpu


def _entry(config, us: float | None, error: str = "") -> Entry:
    return Entry(0.0, "1f", "a product", config, 1.0, us, [us] if us else [], None, error)


def test_what_a_search_should_have_noticed_is_told():
    good, bad, lost, killed = ({"tile_m": number} for number in (64, 128, 192, 256))
    injected = [
        Injected("wrong result", "1f", bad),
        Injected("hang", "1f", lost),
        Injected("killed", "1f", killed),
    ]
    right = [
        _entry(good, 5.0),
        _entry(bad, None, "it differs"),
        _entry(lost, None, "it took more"),
        _entry(killed, 6.0),
    ]
    assert list(complaints(injected, right)) == []
    assert failed_but_right(injected, right) == []
    odd = _entry(good, None, "odd")
    assert failed_but_right(injected, [*right, odd]) == [odd]
    assert list(complaints(injected, [odd, _entry(bad, 7.0)])) == [
        "a product, nothing wrong: odd",
        "a product, wrong result: measured, 7.00 us",
        "a trial with the fault 'hang' is lost",
    ]


def test_what_is_known_is_written_after_each_search(tmp_path, monkeypatch, capsys):
    out, seen = tmp_path / "made" / "soak.json", []
    faults = {"hang": 1, "illegal address": 0, "wrong result": 2, KILLED: 3}

    def searches(*arguments):
        tell = arguments[-1]
        for runs, wrong in ((1, []), (2, ["odd"])):
            done = soak.Searches(runs, 96 * runs, 8.0 * runs, faults, len(wrong), wrong)
            tell(done)
            seen.append(json.loads(out.read_text()))
            assert list(out.parent.iterdir()) == [out]
        return done

    monkeypatch.setattr(soak, "search_with_faults", searches)
    assert soak.main(["--searches", "--minutes", "26", "--out", str(out)]) == 1
    assert [one["runs"] for one in seen] == [1, 2]
    assert seen[0]["environment"]["command"].startswith("python -m warploom_bench soak --searches")
    assert seen[1]["faults"] == faults and seen[1]["seconds"] == 16.0
    assert (seen[1]["failed_but_right"], seen[1]["complaints"]) == (1, ["odd"])
    said = capsys.readouterr().out
    assert "2 searches, 192 trials, 12.0 a second; faults: 1 hang, 0 illegal address, 3 killed" in (
        said
    )


@pytest.mark.slow
def test_searches_tell_of_each_kind_of_fault():
    told = []
    done = soak.search_with_faults([(64, 64, 64)], 4, 0.5, 100, 5, 2, 60.0, told.append)
    assert done.complaints == [] and (done.runs, done.trials) == (1, 4) and told == [done]
    assert done.faults == dict.fromkeys((*BAD_KERNELS, KILLED), 0) and done.failed_but_right == 0


@pytest.mark.long
def test_searches_with_faults_have_only_right_records():
    told = []
    done = soak.search_with_faults(
        [(64, 64, 64), (16, 64, 128)], 12, 1.0, 3, 5, 2, 20.0, told.append
    )
    assert done.complaints == [] and (done.runs, done.trials) == (1, 24) and told == [done]
    assert sum(done.faults.values()) >= 4 and done.failed_but_right == 0


@pytest.mark.long
def test_a_run_with_faults_loses_nothing_else():
    run = soak.soak((64, 64, 64), 60.0, 8.0, 1, workers=1)
    assert not run.unexpected and set(run.seen) >= {"right", "hang", "illegal address"}


@pytest.mark.slow
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
