"""The model's choice against the best config of a search."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from concurrent.futures import Future
from dataclasses import asdict
from math import inf
from pathlib import Path
from types import SimpleNamespace

import pytest

from warploom.decide.config import Config
from warploom.decide.ranking import ranked
from warploom.decide.repair import TILE
from warploom.errors import WarploomError
from warploom.gemm.workloads import problem_of
from warploom.gemm_shape import GemmShape
from warploom.meta_schedule.artifact import Facts, write_facts
from warploom.meta_schedule.measure import Measurement
from warploom.target.tvm_target import cuda_target
from warploom.tile.choices import ROWS
from warploom_bench import judge
from warploom_bench.judging.final import reserve, run_final
from warploom_bench.judging.lanes import in_lanes
from warploom_bench.judging.search import Search, run_round
from warploom_bench.judging.verdict import Verdict, read_verdicts, tables, verdicts
from warploom_bench.measured import read_candidates
from warploom_bench.neighbours import deepest, neighbours, redrawn
from warploom_bench.report import geometric_mean


@pytest.mark.parametrize("size", [(3, 512, 640), (129, 1024, 1024), (64, 64, 8192), (999, 104, 72)])
def test_neighbours_are_legal_new_and_near(size) -> None:
    problem = problem_of(GemmShape("g", *size, dtype="float16"))
    liked = [config for _, config in ranked(problem, 20)]
    seen, rng = set(liked), random.Random(str(size))
    drawn = neighbours(problem, liked[:3], liked, 30, seen, rng)
    assert len(set(drawn)) == len(drawn) == 30 and not set(drawn) & set(liked)
    assert all(config.why_not(problem) is None and config.stages >= 2 for config in drawn)
    again = neighbours(problem, liked[:3], liked, 30, set(liked), random.Random(str(size)))
    assert again == drawn, "a seed says which"


def test_every_choice_is_changed_by_some_neighbour() -> None:
    problem = problem_of(GemmShape("g", 64, 4096, 4096, dtype="float16"))
    config = ranked(problem)[0][1]
    tiles = [one for _, one in ranked(problem, 60)]
    rng, changed = random.Random(7), set()
    for _ in range(4000):  # one tile of sixty may be the only one with other consumers
        other = redrawn(config, tiles, rng)
        changed |= {n for n, v in vars(other).items() if v != getattr(config, n)}
    same = {name for name in TILE if len({getattr(one, name) for one in tiles}) == 1}
    assert changed >= {row.name for row in ROWS if row.draws} - {"stages"} - same
    assert deepest(problem, config, tiles) is not None


@pytest.mark.in_turn(2)
def test_the_command(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(judge, "require_gpu", lambda _: None)
    suite, out = tmp_path / "few.json", tmp_path / "judge.jsonl"
    suite.write_text(json.dumps({"small": [[16, 64, 64], [64, 64, 128]]}), encoding="utf-8")
    words = ["--suite", str(suite), "--rounds", "2,1", "--workers", "1", "--final", "1"]
    assert judge.main([*words, "--out", str(out)]) == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()][1:]
    assert all(line["us"] > 0 and not line["error"] for line in lines)
    phases = Counter(line["phase"] for line in lines)
    assert phases["round 1"] == 4 and phases["round 2"] == 2 and 2 <= phases["final"] <= 6
    assert all(len(line["samples"]) == 4 for line in lines if line["phase"] == "final")
    assert sum(line["choice"] for line in lines if line["phase"] == "final") == 2
    printed = capsys.readouterr().out
    assert "round 2: 2 configs of 2 cases, 0 without a time" in printed and "2/2" in printed
    assert judge.main(["--table", str(out)]) == 0
    assert printed.endswith(capsys.readouterr().out), "the same tables from the file"


class FakeCase:
    """Configs whose true times are known; configs near to others are the next ones."""

    family, arguments = "gemm", ()

    def __init__(self, group: str, us: list[float], predicted: float = 10.0) -> None:
        self.shape = {"group": group, "number": id(self)}
        self.configs = [Config(64, 64, 64, stages=1 + number) for number in range(len(us))]
        self.us, self.predicted = dict(zip(self.configs, us, strict=True)), predicted
        self.liked = self.configs[:6]

    def neighbours(self, near, count, seen, rng):
        drawn = [config for config in self.configs if config not in seen][:count]
        seen.update(drawn)
        return drawn

    def predict(self, config):
        return self.predicted

    def submit(self, config, builder, target):
        return done(str(builder.library(self, config)))


def done(value) -> Future:
    future: Future = Future()
    future.set_result(value)
    return future


class FakeMachine:
    """Builder and runner of fake cases; every sample has its own noise."""

    pool = SimpleNamespace(workers=[None])

    def __init__(self, folder, noise: float) -> None:
        self.folder, self.noise, self.rng = folder, noise, random.Random(3)
        self.true: dict[str, float] = {}
        self.asked: list[tuple[str, ...]] = []

    def library(self, case, config):
        folder = self.folder / f"{id(case)}-{config.stages}"
        if not folder.exists():
            folder.mkdir()
            write_facts(folder, Facts("0", kernel=str(config.stages)))
        self.true[str(folder / "kernel.so")] = case.us[config]
        return folder / "kernel.so"

    def measurement(self, library, samples):
        true = self.true[library] * 1e-6
        seconds = (true * self.rng.gauss(1, self.noise) for _ in range(samples))
        return Measurement(tuple(seconds), 1980)

    def submit(self, library, kind, arguments):
        return done(self.measurement(library, 1))

    def compare(self, libraries, kind, arguments, rounds):
        self.asked.append(tuple(libraries))
        return done([self.measurement(library, rounds) for library in libraries])


def judged(cases, machine, rounds=(16, 14, 10)) -> list[Verdict]:
    searches = [Search(case, random.Random(1)) for case in cases]
    lines = [
        line
        for number, count in enumerate(rounds, 1)
        for line in run_round(searches, count, f"round {number}", machine, [machine], None, inf)
    ]
    final = run_final(searches, 5, machine, [machine], None, inf)
    lines += [line for lines_of in final for line in lines_of]
    return verdicts(json.loads(json.dumps(asdict(line))) for line in lines)


def test_noise_makes_no_config_better_than_the_choice(tmp_path) -> None:
    machine = FakeMachine(tmp_path, noise=0.03)
    found = judged([FakeCase("equal", [10.0] * 40) for _ in range(60)], machine)
    assert all(len(one.us) == 40 for one in found)
    searched = geometric_mean([min(one.us.values()) / 10.0 for one in found])
    ratio = geometric_mean([one.ratio for one in found])
    assert searched < 0.97, "the least of a search is biased"
    assert ratio == pytest.approx(1.0, abs=0.006), "the standard error is 0.002"


def test_a_choice_that_is_slow_has_the_ratio_of_the_true_times(tmp_path) -> None:
    machine = FakeMachine(tmp_path, noise=0.02)
    times = [12.0, *[11.0] * 20, 9.0, *[10.5] * 18]
    found = judged([FakeCase("slow", times) for _ in range(20)], machine)
    assert geometric_mean([one.ratio for one in found]) == pytest.approx(0.75, abs=0.01)
    assert all(len(one.final) == 5 for one in found)
    assert all(len(set(libraries)) == 5 for libraries in machine.asked)


class FakeGpu:
    """One of several runners of a fake machine, and the cases whose configs it has measured."""

    pool = SimpleNamespace(workers=[None])

    def __init__(self, machine: FakeMachine) -> None:
        self.machine, self.cases = machine, []

    def submit(self, library, kind, arguments):
        self.cases.append(Path(library).parent.name.split("-")[0])
        return self.machine.submit(library, kind, arguments)

    def compare(self, libraries, kind, arguments, rounds):
        self.cases += [Path(library).parent.name.split("-")[0] for library in libraries]
        return self.machine.compare(libraries, kind, arguments, rounds)


@pytest.mark.parametrize(("gpus", "count"), [(4, 10), (4, 3), (2, 7)])
def test_each_gpu_measures_all_configs_of_its_cases(tmp_path, gpus, count) -> None:
    machine = FakeMachine(tmp_path, noise=0.01)
    runners = [FakeGpu(machine) for _ in range(gpus)]
    cases = [FakeCase("g", [10.0, 9.0, 8.0, 11.0, 12.0]) for _ in range(count)]
    searches = [Search(case, random.Random(1), at % gpus) for at, case in enumerate(cases)]
    lines = []
    for number in (1, 2):
        lines += run_round(searches, 2, f"round {number}", machine, runners, None, inf)
        searches.reverse()
    final = [line for of in run_final(searches, 2, machine, runners, None, inf) for line in of]
    assert len(lines) == 4 * count and len(final) == 4 * count
    shares = [set(runner.cases) for runner in runners]
    assert sum(map(len, shares)) == len(set.union(*shares)) == count, "no case has two GPUs"
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    found = verdicts(json.loads(json.dumps(asdict(line))) for line in [*lines, *final])
    assert len(found) == count and all(one.ratio is not None for one in found)


def test_a_slow_gpu_holds_up_no_other() -> None:
    told = threading.Event()

    def slow():
        assert told.wait(60), "the other lane has ended"
        yield "slow"

    def quick():
        yield "quick"

    results = in_lanes([slow(), quick()])
    assert next(results) == "quick"
    told.set()
    assert list(results) == ["slow"]


def test_an_exception_of_a_lane_is_raised() -> None:
    def failing():
        yield 1
        raise WarploomError("lost")

    with pytest.raises(WarploomError, match="lost"):
        list(in_lanes([failing(), iter(range(3))]))


def test_equal_kernels_are_measured_once(tmp_path) -> None:
    machine = FakeMachine(tmp_path, noise=0.0)
    case = FakeCase("same", [10.0, 9.0, 9.0, 9.5])
    for config in case.configs:
        library = machine.library(case, config)
        write_facts(library.parent, Facts("0", kernel="one" if config.stages < 4 else "other"))
    (verdict,) = judged([case], machine)
    assert len(verdict.final) == 2 and len(machine.asked[0]) == 2


def test_the_final_round_leaves_out_a_choice_without_a_time(tmp_path) -> None:
    machine, case = FakeMachine(tmp_path, noise=0.0), FakeCase("none", [10.0, 9.0])
    search = Search(case, random.Random(1))
    search.times[case.configs[1]] = 9.0
    assert list(run_final([search], 5, machine, [machine], None, inf)) == [] and not machine.asked


def test_the_errors_of_predictions(tmp_path) -> None:
    machine = FakeMachine(tmp_path, noise=0.0)
    (verdict,) = judged([FakeCase("errors", [10.0, 8.0, 12.5, 20.0])], machine)
    assert sorted(verdict.errors()) == pytest.approx([0, 0.2, 0.25, 0.5])
    assert sorted(verdict.errors(within=1.3)) == pytest.approx([0, 0.25])
    head, group, everything = tables([verdict])
    assert head.split()[:3] == ["gemm", "judged", "configs"]
    assert group.split() == [
        "errors", "1/1", "4", "0.800", "0.800", "12.5%", "50%", "22.5%", "50%"
    ]  # fmt: skip
    assert everything.split()[1:] == group.split()[1:]


def test_tables_pool_runs_and_tell_cases_without_a_final_round(tmp_path) -> None:
    config = {"tile_m": 64}

    def line(case: int, phase: str, choice: bool, us: float) -> dict:
        return {
            "family": "gemm", "shape": {"group": "g", "m": case}, "config": config | {"n": choice},
            "choice": choice, "phase": phase, "predicted": None, "us": us, "samples": [us, us],
            "clock": None, "error": "",
        }  # fmt: skip

    runs = [
        [{"date": "1"}, line(1, "final", True, 2.0), line(1, "final", False, 1.0)],
        [{"date": "2"}, line(1, "final", True, 1.0), line(1, "final", False, 2.0),
         line(2, "round 1", True, 1.0)],
    ]  # fmt: skip
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for file, lines in zip(files, runs, strict=True):
        file.write_text("".join(json.dumps(one) + "\n" for one in lines), encoding="utf-8")
    found = read_verdicts(files)
    assert [one.ratio for one in found] == [0.5, 1.0, None]
    _, group, _ = tables(found)
    assert group.split()[1:] == ["1/2", "2", "0.707", "0.707", "-", "-", "-", "-"]
    files[0].write_text('{"config": {}}\n', encoding="utf-8")
    with pytest.raises(WarploomError, match="no output of `bench judge`"):
        read_verdicts(files)


def test_lines_of_gemms_are_candidates_of_the_model(tmp_path) -> None:
    shape = GemmShape("g", 256, 512, 512, "float16")
    line = {
        "family": "gemm", "shape": dict(vars(shape)), "config": Config().values(), "choice": True,
        "phase": "final", "predicted": 3.0, "us": 4.0, "samples": [4.0], "clock": 1, "error": "",
    }  # fmt: skip
    other = {**line, "family": "quantised", "shape": {"group": "g", "m": 1, "bits": 4}}
    file = tmp_path / "judge.jsonl"
    file.write_text("\n".join(map(json.dumps, [{"date": "1"}, line, other])), encoding="utf-8")
    (found,) = read_candidates(file)
    assert found.us == 4.0 and found.problem == problem_of(shape)


def test_a_choice_without_a_time_is_told(tmp_path, monkeypatch, capsys) -> None:
    class Failing(FakeCase):
        def submit(self, config, builder, target):
            future: Future = Future()
            future.set_exception(WarploomError("no kernel"))
            return future

    machine = FakeMachine(tmp_path, noise=0.0)
    machine.close = lambda: None
    target = cuda_target("h100")
    for name, value in (
        ("require_gpu", lambda _: None), ("default_target", lambda: (target, False)),
        ("Builder", lambda _: machine), ("Runner", lambda _: machine),
        ("wanted_cases", lambda _: [Failing("bad", [1.0, 2.0]), FakeCase("good", [1.0, 2.0])]),
    ):  # fmt: skip
        monkeypatch.setattr(judge, name, value)
    assert judge.main(["--out", str(tmp_path / "judge.jsonl")]) == 0
    printed = capsys.readouterr().out
    assert "the choice for {'group': 'bad'" in printed and "has no time: no kernel" in printed
    rows = {tuple(line.split()[:2]) for line in printed.splitlines()[-3:]}
    assert rows == {("bad", "0/1"), ("good", "1/1"), ("all", "1/2")}, "the order is random"


def test_a_round_does_not_wait_for_compilers_behind_its_end(tmp_path) -> None:
    class Slow(FakeCase):
        def submit(self, config, builder, target):
            return super().submit(config, builder, target) if config == self.liked[0] else Future()

    machine, case = FakeMachine(tmp_path, noise=0.0), Slow("slow", [1.0, 2.0, 3.0])
    search = Search(case, random.Random(1))
    until = time.monotonic() + 0.5
    lines = list(run_round([search], 3, "round 1", machine, [machine], None, until))
    assert [line.choice for line in lines] == [True]
    assert list(run_round([search], 3, "round 2", machine, [machine], None, until)) == []
    ((line,),) = run_final([search], 5, machine, [machine], None, inf)
    assert line.choice and line.us == 1.0


def test_the_final_round_has_its_share_of_the_time() -> None:
    assert reserve(20, 480) == 60 and reserve(200, 480) == 192 and reserve(0, 480) == 0


@pytest.mark.parametrize("text", ["", "0", "3,x", "3,,4"])
def test_rounds_that_are_no_counts_are_refused(text, capsys) -> None:
    with pytest.raises(SystemExit):
        judge.main(["--rounds", text])
    assert "write counts of configs" in capsys.readouterr().err
