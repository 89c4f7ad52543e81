"""Which candidates are measured, and how far defaults and searches are from the best."""

from __future__ import annotations

import json
import math
import warnings
from types import SimpleNamespace

import pytest

from warploom.decide.candidates import candidates, most_stages
from warploom.decide.config import Config
from warploom.decide.model import predict
from warploom.decide.selector import choose
from warploom.errors import IllegalCombination, StockScheduleWarning, WarploomError
from warploom.gemm.recognition import recognise
from warploom.gemm.workloads import function, problem_of
from warploom.gemm_shape import GemmShape
from warploom.meta_schedule import db_command, package_records
from warploom.meta_schedule.lookup import Lookup
from warploom_bench import competitors, exhaustive, tuning, tuning_report
from warploom_bench.candidates import (
    GemmCandidates,
    Line,
    Selection,
    everything,
    read_wanted,
    varied,
)
from warploom_bench.suite import load_suite

SHAPE = GemmShape("tiny", 64, 48, 136, "float16")
HEAD = {"date": "now", "command": "bench tuning", "gpu": {}, "versions": {}}


@pytest.fixture(scope="module")
def legal():
    problem = GemmCandidates(SHAPE).problem
    return [(predict(problem, one).total, one) for one in candidates(problem)]


@pytest.mark.parametrize("within", [1.0, 1.2, 2.0, math.inf])
def test_a_selection_has_the_candidates_near_the_best_prediction(within, legal):
    found = Selection(count=10_000, within=within).of(legal)
    best = min(predicted for predicted, _ in legal)
    assert set(found) == {pair for pair in legal if pair[0] <= within * best}
    assert found[0][0] == best and len({one for _, one in found}) == len(found)


@pytest.mark.in_turn(3)
def test_everything_is_legal_and_has_all_ways_to_share_tiles():
    problem = GemmCandidates(GemmShape("few tiles", 128, 512, 4096, "float16")).problem
    found = list(everything(problem))
    assert len(set(found)) == len(found) and set(candidates(problem)) <= set(found)
    assert all(one.why_not(problem) is None for one in found[::37])
    for name in ("through_cluster", "stream_k"):
        assert any(getattr(one, name) for one in found)


def test_a_selection_is_no_larger_than_asked_for_and_has_what_is_accepted(legal):
    found = Selection(count=7, accept={"swap_ab": 1, "split_k": 1}).of(legal)
    assert len(found) == 7 and all(one.swap_ab and one.split_k == 1 for _, one in found)
    tiles = {(one.tile_m, one.tile_n) for _, one in Selection(count=12).of(legal)}
    assert len(tiles) >= 6, "every other candidate is of a tile that has not been seen"
    assert Selection(accept={"tile_m": 4096}).of(legal) == []
    assert sorted(one for one, _ in varied(legal)) == sorted(one for one, _ in legal)


@pytest.mark.parametrize("wrong", [{"count": 0}, {"within": 0.9}, {"within": math.nan}], ids=str)
def test_an_empty_selection_is_an_error(wrong):
    with pytest.raises(WarploomError, match="is empty; use at least 1"):
        Selection(**wrong)
    with pytest.raises(IllegalCombination, match="'tile_x' is no choice"):
        Selection(accept={"tile_x": 1})


def test_a_file_says_exactly_what_is_measured(tmp_path):
    file = tmp_path / "wanted.jsonl"
    shape = {"m": SHAPE.m, "n": SHAPE.n, "k": SHAPE.k, "dtype": SHAPE.dtype, "group": SHAPE.group}
    fixed = {"tile_m": 64, "tile_n": 128, "consumers": 1, "stages": 2}
    family = {"tile_m": [64, 96], "consumers": 1, "group": [1, 8]}
    extents = [SHAPE.m, SHAPE.n, SHAPE.k]
    wanted = [{"gpu": "none"}, {"shape": shape, "config": fixed},
              {"shapes": [extents], "dtype": SHAPE.dtype, "config": family}]  # fmt: skip
    file.write_text("\n".join(map(json.dumps, wanted)))
    exactly = read_wanted(file)
    other = GemmShape("wanted", *extents, SHAPE.dtype)
    assert exactly[SHAPE] == [fixed] and len(exactly[other]) == 4
    gemm = GemmCandidates(other)
    gemm.select(Selection(exactly=exactly))
    # 96 rows are no multiple of 64: those are left out.
    assert [(one.tile_m, one.group) for _, one in gemm.chosen] == [(64, 1), (64, 8)]
    assert all(one.stages == most_stages(one, gemm.problem) for _, one in gemm.chosen)
    file.write_text(json.dumps({"shape": shape, "config": {"tile_x": 1}}))
    with pytest.raises(IllegalCombination, match="'tile_x' is no choice"):
        read_wanted(file)


def test_gemms_share_the_rest_of_the_time(monkeypatch):
    monkeypatch.setattr(exhaustive, "time", SimpleNamespace(monotonic=lambda: 7.0))
    budget = exhaustive.Budget(107.0)
    assert (budget.until(4), budget.until(1)) == (32.0, 107.0)
    assert exhaustive.Budget(107.0, seconds=5).until(4) == 12.0


def test_the_public_suite_has_all_its_groups():
    shapes = load_suite("public")
    assert len(shapes) == 40 == len(set(shapes))
    groups = {"squares", "k_sweep", "deepseek", "llama", "decode", "ragged"}
    assert {one.group for one in shapes} == groups


def _compare(monkeypatch, times, choices, lines):
    """``compared`` with times of kernels that nobody compiles."""
    monkeypatch.setattr(
        GemmCandidates, "submit", lambda self, config, *_: SimpleNamespace(result=lambda: config)
    )

    def compare(entered, device_type, arguments, rounds):
        found = [
            SimpleNamespace(seconds=[us * 1e-6] * rounds if us else (), wrong="" if us else "bad")
            for us in (times(one) for one in entered)
        ]
        return SimpleNamespace(result=lambda: found)

    runner = SimpleNamespace(compare=compare)
    return tuning.compared(GemmCandidates(SHAPE), lines, choices, 2, 3, None, runner, None)


def _lines(legal, times):
    return [Line({}, one.values(), 1.0, us, [us] if us else [], None, "" if us else "bad")
            for (_, one), us in zip(legal, times, strict=False)]  # fmt: skip


def test_ratios_refer_to_the_best_of_what_is_measured_side_by_side(monkeypatch, legal):
    a, b, c, d = (one for _, one in legal[:4])
    lines = _lines(legal, [9.0, 5.0, 6.0, None])
    # What was fastest alone is not so beside the others.
    real = {a: 9.0, b: 8.0, c: 4.0, d: 5.0}
    choices = {"model": a, "default": a, "tuned": d}
    row = _compare(monkeypatch, real.__getitem__, choices, lines)
    assert row.us == {"model": 9.0, "default": 9.0, "tuned": 5.0, "best": 4.0}
    assert row.config["best"] == c.values() and row.candidates == 4
    assert row.ratio("model") == pytest.approx(4 / 9) and row.ratio("tuned") == 0.8
    row = _compare(monkeypatch, {**real, d: None}.__getitem__, choices, lines)
    assert row.ratio("tuned") is None
    with pytest.raises(WarploomError, match="64x48x136 float16: bad"):
        _compare(monkeypatch, lambda _: None, choices, lines)


def test_the_report_has_means_of_what_did_not_fail(tmp_path):
    config = Config().values()
    shape = {**vars(SHAPE)}
    rows = [
        tuning_report.Row(shape, 8, {"model": 8.0, "default": 5.0, "tuned": 4.0, "best": 4.0},
                   dict.fromkeys(("model", "default", "tuned", "best"), config)),
        tuning_report.Row(shape, 8, {"model": 2.0, "default": 1.0, "best": 1.0},
                   dict.fromkeys(("model", "default", "best"), config)),
    ]  # fmt: skip
    found = tuning_report.means(rows)
    assert found == pytest.approx({"model": 0.5, "default": math.sqrt(0.8), "tuned": 1.0})
    searched = tuning_report.Searched({}, 64, 3, 8.0)
    tuning_report.write(rows, searched, 32, HEAD, tmp_path / "made" / "result")
    text = (tmp_path / "made" / "result.md").read_text()
    assert "8.0 trials a second" in text and "geometric mean 0.5000" in text
    assert "failed" in text.splitlines()[-1] and "128x256x64" in text
    content = json.loads((tmp_path / "made" / "result.json").read_text())
    assert content["search"]["failed"] == 3 and len(content["rows"]) == 2


def test_gemms_that_no_kernel_computes_are_left_out(capsys):
    good, bad = (GemmShape("g", 64, 48, k, "float8_e4m3fn") for k in (144, 136))
    assert tuning.gemms_of([bad, good]) == [good]
    assert "64x48x136 float8_e4m3fn is left out: rows of A" in capsys.readouterr().out


def test_faults_are_for_plain_gemms_only(tmp_path):
    shape = GemmShape("g", 64, 48, 136, "float16", epilogue="residual")
    with pytest.raises(WarploomError, match="GEMMs without an epilogue only"):
        tuning.tune_all([shape], None, 1, tmp_path, 1, (0,), 1, one_in=2)


@pytest.mark.gpu
@pytest.mark.slow
def test_fused_gemms_are_tuned_on_two_gpus_shipped_and_found(tmp_path, two_devices, capsys):
    suite, work, out = (tmp_path / name for name in ("suite.json", "work", "out.jsonl"))
    suite.write_text(json.dumps({"tiny": [[64, 96, 136]], "other": [[8, 8, 8]]}))
    words = ["--epilogue", "residual", "--epilogue", "swiglu", "--group", "tiny", "--trials", "3",
             "--minutes", "0", "--rounds", "2", "--finalists", "1", "--workers", "2",
             *(word for one in two_devices for word in ("--device", str(one))),
             "--suite", str(suite), "--work-dir", str(work), "--out", str(tmp_path)]  # fmt: skip
    assert tuning.main(words) == 0
    shapes = [GemmShape("tiny", 64, 96, 136, "float16", epilogue=one)
              for one in ("residual", "swiglu")]  # fmt: skip
    content = json.loads((tmp_path / "tuning.json").read_text())
    assert content["search"]["trials"] == 6 and content["search"]["failed"] == 0
    assert [GemmShape(**one["shape"]) for one in content["rows"]] == shapes
    assert "64x96x136 float16 swiglu" in (tmp_path / "tuning.md").read_text()

    (before,) = package_records.shipped_files()
    ship = ["ship", "--before", str(before), "--out", str(out), "--gain", "-9"]
    assert db_command.main([*ship, str(tmp_path / "tuning.json")]) == 0
    records = package_records.read(out).records
    assert set(package_records.read(before).records) < set(records), "none is lost"
    own = Lookup.of_folders([work])
    for shape in shapes:
        # What a user compiles is what was tuned.
        problem = problem_of(shape)
        assert recognise(function(shape)).problem == problem
        for found in (Lookup(records).best(problem), own.best(problem)):
            assert found.exact and found.config.why_not(problem) is None
        with warnings.catch_warnings():
            warnings.simplefilter("error", StockScheduleWarning)
            assert competitors.tuned(shape, [work]) is not None


@pytest.mark.gpu
@pytest.mark.long
def test_the_benchmark_runs_from_end_to_end(tmp_path, capsys):
    suite = tmp_path / "suite.json"
    suite.write_text(json.dumps({"tiny": [[64, 48, 136], [16, 64, 72]]}))
    words = ["--trials", "4", "--minutes", "1", "--count", "3", "--rounds", "3", "--workers", "2",
             "--finalists", "2", "--suite", str(suite), "--out", str(tmp_path)]  # fmt: skip
    assert tuning.main(words) == 0
    assert "tuned: geometric mean" in capsys.readouterr().out
    content = json.loads((tmp_path / "tuning.json").read_text())
    assert content["search"]["trials"] == 8
    for row in content["rows"]:
        assert 0 < row["us"]["best"] <= min(row["us"].values())
        model = choose(GemmCandidates(GemmShape(**row["shape"])).problem)
        assert row["config"]["model"] == model.values()
