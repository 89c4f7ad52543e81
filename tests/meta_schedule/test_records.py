"""Databases: read, shared between alike GEMMs, merged, repaired after a kill."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest
import tvm
from tvm import te
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord

import warploom
from warploom import meta_schedule as wms
from warploom.decide.config import Config
from warploom.decide.ranking import ranked
from warploom.errors import WarploomError
from warploom.gemm.annotations import config_of
from warploom.gemm.recognition import recognise
from warploom.gemm.workloads import problem_of
from warploom.gemm_shape import GemmShape
from warploom.meta_schedule import db_command, plot
from warploom.meta_schedule.artifact import Facts
from warploom.meta_schedule.database import (
    RECORDS,
    WORKLOADS,
    drop_unfinished,
    open_database,
    recover,
)
from warploom.meta_schedule.journal import NAME, Journal, read_journal
from warploom.meta_schedule.lookup import Lookup, bucket
from warploom.meta_schedule.measure import Measurement
from warploom.meta_schedule.originals import key_of
from warploom.meta_schedule.records import Record, config_of_trace, records_of, trace_of
from warploom.meta_schedule.workloads import matmul
from warploom.tile.choices import ROWS

SIZE = (512, 1024, 768)
H200 = warploom.cuda_target("h200")


def _best(func, count: int) -> list:
    return [config for _, config in ranked(recognise(func).problem)[:count]]


def _add(folder: Path, func, times: dict, target=H200) -> None:
    """Record microseconds by config, as TVM does after a batch."""
    mod = tvm.IRModule({"main": func})
    database = JSONDatabase(work_dir=str(folder))
    workload = database.commit_workload(mod)
    for config, us in times.items():
        trace = trace_of(mod, config)
        info = ArgInfo.from_prim_func(func)
        record = TuningRecord(trace, workload, [us * 1e-6] * 3, target, info)
        database.commit_tuning_record(record)


@pytest.fixture
def folder(tmp_path) -> Path:
    """Three records, the second of which is the fastest, and a failed one."""
    made = tmp_path / "made"
    made.mkdir()
    func = matmul(*SIZE)
    times = dict(zip(_best(func, 4), [30.0, 20.0, 25.0, 1e16], strict=True))
    _add(made, func, times)
    return made


def _with_bias(m, n, k):
    a, b = te.placeholder((m, k), "float16", name="A"), te.placeholder((n, k), "float16", name="B")
    bias = te.placeholder((n,), "float16", name="bias")
    along = te.reduce_axis((0, k), name="k")

    def value(i, j):
        return te.sum(a[i, along].astype("float32") * b[j, along].astype("float32"), along)

    total = te.compute((m, n), value, name="matmul")
    c = te.compute((m, n), lambda i, j: (total[i, j] + bias[j]).astype("float16"), name="C")
    return te.create_prim_func([a, b, bias, c])


def test_a_trace_replays_to_the_config_it_is_read_as(folder):
    func = matmul(*SIZE)
    found = records_of(open_database(folder))
    assert [one.seconds for one in found] == pytest.approx([20e-6, 25e-6, 30e-6])
    last, *others = _best(func, 3)
    for one, config in zip(found, [*others, last], strict=True):
        sch = Schedule(one.stock.workload.mod)
        one.stock.trace.apply_to_schedule(sch, remove_postproc=False)
        assert config_of(sch.mod["main"]) == one.config == config
        assert (one.arch, one.estimate, one.problem) == ("sm_90a", False, recognise(func).problem)


def test_tvm_itself_finds_the_best_record(folder):
    mod = tvm.IRModule({"main": matmul(*SIZE)})
    sch = open_database(folder).query_schedule(mod, H200, "main")
    assert config_of(sch.mod["main"]) == _best(mod["main"], 2)[1]


def test_records_are_shared_with_other_epilogues_and_numbers_of_rows(folder):
    lookup = Lookup.of_folders([folder])
    func = matmul(*SIZE)
    best = _best(func, 2)[1]
    exact = lookup.best(recognise(func).problem)
    assert (exact.config, exact.exact, exact.record.seconds) == (best, True, pytest.approx(20e-6))
    for other in (_with_bias(*SIZE), matmul(400, *SIZE[1:]), matmul(*SIZE, "bfloat16")):
        problem = recognise(other).problem
        found = lookup.best(problem)
        assert not found.exact and found.config.why_not(problem) is None
        assert replace(found.config, stages=best.stages) == best
    fewer_bits = matmul(*SIZE, "float8_e4m3fn")
    for different in (matmul(128, *SIZE[1:]), matmul(512, 1024, 776), fewer_bits):
        assert lookup.best(recognise(different).problem) is None
    assert lookup.best(recognise(func).problem, "sm_100a") is None


def _of_epilogue(epilogue, m=512, n=2048, dtype="float16"):
    return problem_of(GemmShape("g", m, n, 768, dtype, epilogue=epilogue))


@pytest.mark.parametrize(
    ("columns", "wanted", "swap_ab"), [(256, 128, False), (160, 80, False), (128, 64, True)]
)
def test_pairs_of_gemms_share_the_records_of_all_columns(columns, wanted, swap_ab):
    config = Config(128, columns, stages=3, group=16, swap_ab=swap_ab)
    if swap_ab:
        config = replace(config, tile_m=64, consumers=1)
    plain, pairs = _of_epilogue("none"), _of_epilogue("swiglu")
    assert (plain.n, pairs.n, pairs.products) == (2048, 1024, 2)
    found = Lookup([Record(plain, config, 1e-5, "sm_90a", False, None)]).best(pairs)
    assert found.config == replace(config, tile_n=wanted, stages=found.config.stages)
    assert found.config.why_not(pairs) is None and not found.exact
    back = Lookup([Record(pairs, found.config, 1e-5, "sm_90a", False, None)]).best(plain)
    assert back.config == replace(config, stages=found.config.stages)


def test_columns_that_no_pair_can_have_are_not_shared():
    for config in (Config(64, 8, consumers=1), Config(64, 64, consumers=1, swap_ab=True)):
        plain = Record(_of_epilogue("none"), config, 1e-5, "sm_90a", False, None)
        assert Lookup([plain]).best(_of_epilogue("swiglu")) is None
    wide = Record(_of_epilogue("swiglu"), Config(64, 256, consumers=1), 1e-5, "sm_90a", False,
                  None)  # fmt: skip
    assert Lookup([wide]).best(_of_epilogue("none")) is None, "no tile has 512 columns"


def test_the_record_of_the_most_similar_epilogue_is_preferred():
    epilogues = ("none", "bias", "residual", "swiglu")
    records = [
        Record(_of_epilogue(one), Config(128, 128, group=group), us, "sm_90a", False, None)
        for group, (one, us) in enumerate(zip(epilogues, (1e-5, 2e-5, 3e-5, 4e-5), strict=True), 1)
    ]
    lookup = Lookup(reversed(records))
    for group, one in enumerate(epilogues, 1):
        assert lookup.best(_of_epilogue(one)).config.group == group
        other_kind = lookup.best(_of_epilogue(one, dtype="bfloat16"))
        assert other_kind.config.group == group and not other_kind.exact
        assert lookup.best(_of_epilogue(one, m=400)).config.group == group
    near = replace(records[0], problem=_of_epilogue("none", m=410))
    assert Lookup([*records, near]).best(_of_epilogue("swiglu", m=400)).record == near, (
        "the number of rows decides before the epilogue"
    )
    assert Lookup(records[:3]).best(_of_epilogue("swiglu")).config.group == 1
    assert lookup.best(_of_epilogue("bias_gelu")).config.group == 2


def test_stages_that_an_epilogue_leaves_no_room_for_are_dropped(tmp_path):
    func, wide = matmul(32, 4096, 4096), matmul(32, 4096, 4096, out_dtype="float32")
    problem = recognise(wide).problem
    full = next(one for one in _best(func, 64)
                if one.swap_ab and one.stages > 3 and one.why_not(problem) is not None)  # fmt: skip
    _add(tmp_path, func, {full: 10.0})
    found = Lookup.of_folders([tmp_path]).best(problem)
    assert 2 <= found.config.stages < full.stages and found.config.why_not(problem) is None


@pytest.mark.parametrize(("rows", "wanted"), [(1, 8), (8, 8), (9, 16), (512, 512), (513, 1024)])
def test_buckets_of_rows_are_powers_of_two(rows, wanted):
    assert bucket(rows) == wanted and bucket(None) is None


def test_estimates_are_never_mixed_with_measured_times(folder, tmp_path):
    func, other = matmul(*SIZE), tmp_path / "estimates"
    other.mkdir()
    _add(other, func, {_best(func, 1)[0]: 1.0}, wms.estimate_target(H200))
    assert Lookup.of_folders([other]).best(recognise(func).problem) is None
    both = Lookup.of_folders([folder, other])
    assert both.best(recognise(func).problem).record.seconds == pytest.approx(20e-6)
    estimates = Lookup.of_folders([folder, other], estimates=True)
    assert estimates.best(recognise(func).problem).record.seconds == pytest.approx(1e-6)
    with pytest.raises(WarploomError, match="cannot be in one database"):
        wms.merge([folder, other], tmp_path / "merged")
    for where, target in ((folder, wms.estimate_target(H200)), (other, H200)):
        with pytest.raises(WarploomError, match="cannot be in one database"):
            wms.tune_tir(func, target, where, 1)


def test_merging_keeps_each_record_once_and_exporting_the_best(folder, tmp_path):
    other, merged = tmp_path / "other", tmp_path / "merged"
    other.mkdir()
    _add(other, _with_bias(*SIZE), {_best(matmul(*SIZE), 1)[0]: 22.0})
    assert wms.merge([folder, other], merged) == 5
    assert wms.merge([folder, other], merged) == 5, "what it has is not added again"
    assert len(records_of(open_database(merged))) == 4
    assert wms.merge([merged], tmp_path / "best", best=1) == 2
    found = records_of(open_database(tmp_path / "best"))
    assert sorted(one.seconds for one in found) == pytest.approx([20e-6, 22e-6])
    assert not list(tmp_path.glob("*/.*")), "no files are left over"


@pytest.mark.parametrize("name", [RECORDS, WORKLOADS])
def test_a_line_that_was_not_finished_is_removed(folder, name):
    whole = (folder / name).read_bytes()
    assert not drop_unfinished(folder / name) and whole.endswith(b"\n")
    (folder / name).write_bytes(whole + whole[: len(whole) // 7])
    assert len(records_of(open_database(folder))) == 3
    assert (folder / name).read_bytes() == whole
    (folder / name).write_bytes(whole[:-1])
    assert drop_unfinished(folder / name) and (folder / name).read_bytes() == whole


def test_trials_that_only_the_journal_has_are_recovered(folder):
    func = matmul(*SIZE)
    problem = recognise(func).problem
    journal = Journal(folder)
    workload = key_of(tvm.IRModule({"main": func}))
    fast, known = _best(func, 6)[5], _best(func, 1)[0]
    for config, us, error in ((fast, 11.0, ""), (known, 30.0, ""), (fast, None, "it hangs")):
        found = Measurement((us * 1e-6,) * 3, 1500) if us else None
        journal(Facts(workload, str(problem), config.values(), 12.0), found, error)
    with journal.path.open("a") as file:
        file.write('{"time": 1')
    assert recover(folder, H200) == 1
    assert recover(folder, H200) == 0
    best = Lookup.of_folders([folder]).best(problem)
    assert (best.config, best.record.seconds) == (fast, pytest.approx(11e-6))


def test_config_that_no_design_space_has_are_recorded_too():
    mod = tvm.IRModule({"main": matmul(*SIZE)})
    problem = recognise(mod["main"]).problem
    config = _best(mod["main"], 1)[0]
    for one in (config, replace(config, group=5), replace(config, tile_m=60, swap_ab=True)):
        assert config_of_trace(trace_of(mod, one), problem) == one
        short = trace_of(mod, one, short=True)
        assert config_of_trace(short, problem) == one and len(str(short.as_json())) < 60 * len(ROWS)
    assert config_of_trace(Schedule(mod).trace, problem) is None


def test_lines_of_the_exhaustive_benchmark_become_records(tmp_path):
    func = matmul(*SIZE)
    shape = dict(zip("mnk", SIZE, strict=True)) | {"dtype": "float16", "group": "a"}
    lines = [{"date": "today"}]
    for config, us in zip(_best(func, 4), [30.0, 20.0, None, 25.0], strict=True):
        samples = [us, us + 1, us - 1] if us else []
        lines.append({"shape": shape, "config": config.values(), "us": us, "samples": samples})
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    out = tmp_path / "out"
    words = ["import", str(path), "--out", str(out), "--best", "2", "--target", "h200"]
    assert db_command.main(words) == 0 == db_command.main(["verify", str(out)])
    best = Lookup.of_folders([out]).best(recognise(func).problem)
    assert (best.config, best.record.seconds) == (_best(func, 2)[1], pytest.approx(20e-6))
    assert len(records_of(open_database(out))) == 2


def test_commands_inspect_verify_merge_and_export(folder, tmp_path, capsys):
    assert db_command.main(["inspect", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "20.00" in shown and "measured" in shown and "40" in shown  # TFLOP/s
    assert db_command.main(["verify", str(folder)]) == 0
    assert db_command.main(["export", str(folder), "--out", str(tmp_path / "best")]) == 0
    assert "1 records" in capsys.readouterr().out
    assert db_command.main(["inspect"]) == 0, "what is shipped, if anything"
    with pytest.raises(WarploomError, match="it is no database"):
        db_command.main(["verify", str(tmp_path / "nowhere")])
    empty = tmp_path / "empty"
    open_database(empty)
    (empty / RECORDS).touch()
    assert db_command.main(["verify", str(empty)]) == 1
    assert "no records" in capsys.readouterr().out


def test_a_search_is_drawn_from_its_journal(tmp_path, capsys):
    journal = Journal(tmp_path)
    facts = Facts("1f", "64 x 64 x 64", {"tile_m": 64}, 5.0)
    for us in (None, 8.0, 9.0, 4.0):
        journal(facts, Measurement((us * 1e-6,), None) if us else None, "" if us else "no")
    entries = read_journal(tmp_path)
    assert [round(one, 3) for one in plot.best_so_far(entries)] == [float("inf"), 8.0, 8.0, 4.0]
    assert plot.main([str(tmp_path)]) == 0
    lines = (tmp_path / "tuning.csv").read_text().splitlines()
    assert len(lines) == 5 and lines[0].endswith("tile_m") and lines[1].endswith("no,64")
    assert [json.loads(one)["error"] for one in (tmp_path / NAME).read_text().splitlines()] == [
        "no", "", "", "",
    ]  # fmt: skip
    with pytest.raises(WarploomError, match="no trials"):
        plot.main([str(tmp_path / "nowhere")])
    drawn = importlib.util.find_spec("matplotlib") is not None
    assert (tmp_path / "tuning.png").exists() == drawn
    picture = (tmp_path / "tuning.svg").read_text()
    assert "64 x 64 x 64: 4 us after 4 trials" in picture and "1 of them failed" in picture
