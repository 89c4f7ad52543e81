"""Records of public models: the rule of the winner, and a run with faults, noise and a cut."""

from __future__ import annotations

import random
import time
from concurrent.futures import Future
from pathlib import Path

import pytest

from warploom.decide.config import Config
from warploom.decide.ranking import ranked
from warploom.errors import WarploomError
from warploom.meta_schedule import db_command, package_records
from warploom.meta_schedule.judged import read_judged
from warploom.meta_schedule.lookup import Lookup
from warploom.meta_schedule.processes import WorkerLost
from warploom.target.gpus import GPUS
from warploom.target.tvm_target import cuda_target, default_target
from warploom_bench import make_records, model_kernels
from warploom_bench.make_records import run, wanted
from warploom_bench.model_gemms import ModelGemm, by_importance
from warploom_bench.model_kernels import Built, Timed
from warploom_bench.winner import GAIN, judge

SLOW, FAST, OTHER = Config(stages=3), Config(stages=4), Config(stages=2)
GEMMS = [ModelGemm(64, 64, 16 << number, "float16") for number in range(6)]


def _samples(us, noise, rng, rounds=8):
    return [us * rng.uniform(1 - noise, 1 + noise) for _ in range(rounds)]


def test_a_winner_beats_the_default_by_more_than_the_noise():
    rng = random.Random(3)
    for gain, noise, wins in (
        (0.10, 0.01, True), (0.03, 0.002, True), (GAIN / 2, 0.0, False), (0.0, 0.01, False),
        (-0.1, 0.01, False),
    ):  # fmt: skip
        for _ in range(50):
            samples = {
                SLOW: _samples(10, noise, rng), FAST: _samples(10 * (1 - gain), noise, rng)
            }  # fmt: skip
            verdict = judge(samples, SLOW)
            assert (verdict.config == FAST) == wins, (gain, noise)
            assert verdict.default_us == pytest.approx(10, rel=0.02)
            assert verdict.us == pytest.approx(10 * (1 - gain * wins), rel=0.02)


def test_equal_configs_seldom_win_in_noise_of_any_size():
    rng, rounds = random.Random(4), 300
    for noise in (0.005, 0.02, 0.1):
        won = 0
        for _ in range(rounds):
            configs = [SLOW, FAST, OTHER, *(Config(stages=4, group=one) for one in (1, 2, 4))]
            samples = {config: _samples(10, noise, rng) for config in configs}
            won += judge(samples, SLOW).config != SLOW
        # All of four rounds faster by chance: one in 16, whatever the choice of the other rounds.
        assert won <= rounds / 16 * 1.6, noise


def test_one_slow_round_leaves_the_default():
    samples = {SLOW: [10.0] * 8, FAST: [8.0] * 7 + [10.5]}
    assert judge(samples, SLOW).config == SLOW
    assert judge({SLOW: [10.0] * 8}, SLOW).config == SLOW


class Machine:
    """In the place of the workers: config ``i`` of a GEMM takes ``us[i]``."""

    def __init__(self, folder, us=(10.0, 9.0, 12.0), faults=(), clock=None):
        self.folder, self.us, self.faults, self.clock = Path(folder), us, dict(faults), clock
        self.built: list[ModelGemm] = []

    def build(self, gemm):
        self.built.append(gemm)
        fault = self.faults.get(gemm)
        if fault == "lost":
            return _done(error=WorkerLost("it took more than 120 s"))
        found = []
        for number, (_, config) in enumerate(ranked(gemm.problem)[: len(self.us)]):
            path = self.folder / f"{gemm.m}-{number}.so"
            if fault == "default" and number == 0:
                found.append(Built(config, error="no kernel"))
                continue
            path.touch()
            found.append(Built(config, str(path)))
        return _done(found)

    def measure(self, gemm, paths):
        assert all(Path(path).exists() for path in paths)
        if self.clock is not None:
            self.clock()
        fault = self.faults.get(gemm)
        if fault == "hangs":
            return _done(error=WorkerLost("it took more than 60 s"))
        numbers = [int(Path(path).stem.partition("-")[2]) for path in paths]
        wrong = {"wrong": 0, "wrong winner": 1}.get(fault)
        return _done([
            Timed((), "rows from 0") if number == wrong else Timed((self.us[number],) * 8)
            for number in numbers
        ])  # fmt: skip


def _done(value=None, error=None):
    future = Future()
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
    return future


def _run(machine, gemms=GEMMS, until=None, ahead=3):
    until = time.monotonic() + 600 if until is None else until
    found = run(gemms, machine.build, machine.measure, ahead, until, "sm_90a", "h100")
    return list(found)


def test_a_fault_costs_only_its_own_gemm(tmp_path):
    faults = dict(zip(GEMMS, ("lost", "hangs", "wrong", "wrong winner", "default"), strict=False))
    found = dict(zip(GEMMS, _run(Machine(tmp_path, faults=faults)), strict=True))
    errors = [found[gemm].error for gemm in GEMMS]
    assert [error and error.partition(":")[0] for error in errors] == [
        "it took more than 120 s", "it took more than 60 s", "the model's choice is wrong", "",
        "no kernel", "",
    ]  # fmt: skip
    assert [found[gemm].problem for gemm in GEMMS] == [gemm.problem for gemm in GEMMS]
    confirmed = found[GEMMS[3]]
    default = ranked(confirmed.problem)[0][1]
    assert confirmed.record.config == default and confirmed.measured == 2, "the fastest is wrong"
    assert confirmed.record.seconds == pytest.approx(10e-6) and confirmed.record.gpu == "h100"
    won = found[GEMMS[5]]
    assert won.record.config == ranked(GEMMS[5].problem)[1][1] and won.default_us == 10.0
    assert won.record.seconds == pytest.approx(9e-6) and won.measured == 3
    assert not list(tmp_path.iterdir()), "libraries are removed"


def test_compiling_is_a_few_gemms_ahead_and_ends_with_the_time(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(make_records.time, "monotonic", lambda: now[0])

    def tick():
        now[0] += 1.0

    machine = Machine(tmp_path, clock=tick)
    found = _run(machine, until=2.5, ahead=2)
    assert [entry.problem for entry in found] == [gemm.problem for gemm in GEMMS[: len(found)]]
    assert 3 <= len(found) <= 4 and len(machine.built) <= len(found) + 2
    assert _run(Machine(tmp_path), until=-1.0) == []


def test_the_most_important_gemms_that_are_not_known_come_first():
    first, second, third = by_importance()[:3]
    assert wanted([])[:3] == [first, second, third]
    assert wanted([second.problem])[:2] == [first, third]
    assert {gemm.kind for gemm in wanted([], ["int4"])} == {"int4"}


class _Pool:
    """In the place of a pool of processes: calls the machine of the test."""

    machine: Machine

    def __init__(self, environments, lose_failed=False):
        assert environments

    def submit(self, function, gemm=None, *rest, timeout):
        if function is model_kernels.begin:
            return _done()
        if function is model_kernels.build:
            return self.machine.build(gemm)
        assert function is model_kernels.time_kernels
        return self.machine.measure(gemm, rest[0])

    def close(self):
        pass


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Runs the command on a fake H100 that measures :data:`GEMMS`."""
    monkeypatch.setattr(make_records, "require_gpu", lambda text: None)
    monkeypatch.setattr(make_records, "import_torch", lambda: None)
    monkeypatch.setattr(make_records, "default_target", lambda: (cuda_target("h100"), None))
    monkeypatch.setattr(make_records, "by_importance", lambda: list(GEMMS))
    monkeypatch.setattr(make_records, "rates", lambda lookup, gpu: f"rates of {gpu}")
    monkeypatch.setattr(make_records, "Pool", _Pool)
    out = tmp_path / "judged.jsonl"

    def start(machine, *words):
        monkeypatch.setattr(_Pool, "machine", machine, raising=False)
        return make_records.main(["--out", str(out), "--workers", "2", *words])

    return start, out


def test_a_run_that_was_cut_off_goes_on(command, tmp_path, capsys):
    start, out = command

    class Killed(BaseException):
        pass

    class Cut(Machine):
        def measure(self, gemm, paths):
            if gemm == GEMMS[3]:
                raise Killed
            return super().measure(gemm, paths)

    with pytest.raises(Killed):
        start(Cut(tmp_path))
    before = read_judged(out).entries
    assert 1 <= len(before) <= 3
    machine = Machine(tmp_path, faults={GEMMS[5]: "hangs"})
    assert start(machine) == 0
    assert machine.built == GEMMS[len(before) :], "what is known is not measured again"
    printed = capsys.readouterr().out
    assert f"{len(machine.built)} GEMMs in " in printed and "1 failed" in printed
    assert "it took more than 60 s" in printed and "rates of h100" in printed
    entries = read_judged(out).entries
    assert [entry.problem for entry in entries] == [gemm.problem for gemm in GEMMS]
    assert start(Machine(tmp_path)) == 0 and read_judged(out).entries == entries

    shipped = tmp_path / "h100.jsonl"
    assert db_command.main(["ship", str(out), "--out", str(shipped)]) == 0
    lookup = Lookup.of_files([shipped])
    for gemm in GEMMS[:5]:
        assert lookup.best(gemm.problem, gpu=GPUS["h100"]).config == ranked(gemm.problem)[1][1]
    assert lookup.best(GEMMS[5].problem) is None


def test_what_the_package_ships_for_the_gpu_is_not_measured_again(command, tmp_path, monkeypatch):
    start, _ = command
    (entry,) = _run(Machine(tmp_path), GEMMS[:1])
    for gpu, left in (("h100", GEMMS[1:]), ("h200", GEMMS)):
        path = tmp_path / f"{gpu}.jsonl"
        package_records.write([entry.record], path, gpu)
        monkeypatch.setattr(make_records, "shipped", lambda path=path: package_records.read(path))
        machine = Machine(tmp_path)
        assert start(machine, "--out", str(tmp_path / f"{gpu}-out")) == 0 and machine.built == left
    machine = Machine(tmp_path)
    assert start(machine, "--again", "--out", str(tmp_path / "again")) == 0
    assert machine.built == GEMMS


def test_a_command_that_cannot_work_says_why(command, tmp_path, monkeypatch):
    start, _ = command
    with pytest.raises(WarploomError, match="use 4 or more"):
        start(Machine(tmp_path), "--rounds", "3")
    faults = dict.fromkeys(GEMMS, "hangs")
    assert start(Machine(tmp_path, faults=faults)) == 1
    monkeypatch.setattr(make_records, "default_target", lambda: (cuda_target("h200"), None))
    with pytest.raises(WarploomError, match="measured on an h100, and this is an h200"):
        start(Machine(tmp_path))


@pytest.mark.parametrize("kind", ["float16", "float8_e4m3fn", "int4"])
def test_the_configs_to_measure_begin_with_the_default(kind):
    gemm, target = ModelGemm(4096, 4096, 4096, kind), cuda_target("h200")
    found = model_kernels.configs(gemm, target, 6)
    assert found[0] == ranked(gemm.problem)[0][1] and len(set(found)) == len(found) == 6
    assert len({(config.tile_m, config.tile_n) for config in found}) >= 3, "of several tiles"
    known = Lookup.shipped().config(gemm.problem)
    assert known is None or known in found
    assert model_kernels.configs(gemm, target, 1) == found[:1]


@pytest.mark.in_turn(4)
def test_configs_are_built_once_for_each_kernel(tmp_path):
    gemm = ModelGemm(128, 256, 16, "int4")
    built = model_kernels.build(gemm, cuda_target("h200"), 3, str(tmp_path))
    assert built[0].config == ranked(gemm.problem)[0][1] and not any(one.error for one in built)
    assert sorted(map(str, tmp_path.glob("*.so"))) == sorted(one.path for one in built)


@pytest.mark.hardware
@pytest.mark.parametrize("kind", ["float16", "float8_e4m3fn", "int4"])
def test_kernels_are_checked_and_timed_on_a_gpu(kind, tmp_path):
    pytest.importorskip("torch")
    gemm, (target, _) = ModelGemm(1024, 512, 64, kind), default_target()
    built = model_kernels.build(gemm, target, 3, str(tmp_path))
    timed = model_kernels.time_kernels(gemm, [one.path for one in built], 4)
    assert all(one.wrong == "" and len(one.us) == 4 and min(one.us) > 0 for one in timed)
