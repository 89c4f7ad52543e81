"""What the package ships: verified when it is read, and where it is in the order of look-up."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import tvm
from tvm import relax
from tvm.relax.frontend import nn
from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord

import warploom
from warploom import meta_schedule as wms
from warploom.decide.config import Config
from warploom.decide.ranking import ranked
from warploom.decide.selector import choose
from warploom.errors import WarploomError
from warploom.gemm.annotations import config_of
from warploom.gemm.recognition import recognise
from warploom.gemm.workloads import problem_of
from warploom.gemm_shape import GemmShape
from warploom.meta_schedule import db_command, lookup, package_records
from warploom.meta_schedule.lookup import Lookup
from warploom.meta_schedule.records import Record, trace_of
from warploom.meta_schedule.ship import Measured, measurements, worth_shipping
from warploom.meta_schedule.workloads import matmul
from warploom.relax.insertion import inserted
from warploom.relax.pipeline import stock_passes

SIZE = (256, 512, 768)
TARGET = warploom.cuda_target("h200")


def _problem(size=SIZE, dtype="float16"):
    return recognise(matmul(*size, dtype)).problem


def _record(number: int, us: float, problem=None) -> Record:
    problem = problem or _problem()
    return Record(problem, ranked(problem)[number][1], us * 1e-6, "sm_90a", False, None)


@pytest.fixture
def file(tmp_path):
    made = tmp_path / "made.jsonl"
    other = _problem((64, 64, 256), "float8_e4m3fn")
    swiglu = replace(_problem(), products=2, a_bits=4.5, computed=(True, False),
                     inputs=(("float16", "row"),), outputs=("float16", "float32"))  # fmt: skip
    records = [
        _record(3, 9.876),
        _record(1, 5.0, other),
        Record(swiglu, Config(192, 64, consumers=3), 7e-6, "sm_90a", False, None),
    ]
    assert package_records.write(records, made, "h200") == 3
    return made, records


def test_a_file_holds_what_was_written_in_short(file):
    path, records = file
    found = package_records.read(path)
    assert found.skipped == ()
    wanted = {(one.problem, one.config, round(one.seconds * 1e6, 2)) for one in records}
    assert {
        (one.problem, one.config, round(one.seconds * 1e6, 2)) for one in found.records
    } == wanted
    assert all(one.arch == "sm_90a" and not one.estimate for one in found.records)
    assert max(map(len, path.read_text().splitlines())) < 250


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"us": 0}, "us = 0: a time must be positive"),
        ({"us": float("inf")}, "a time must be positive"),
        ({"us": None}, "a time must be positive"),
        ({"m": -5}, "m = -5: an extent must be a positive integer or null"),
        ({"n": 1.5}, "n = 1.5: an extent"),
        ({"layout": "XY"}, "layout = 'XY': allowed are NT, NN, TN, TT"),
        ({"accumulator": "float16"}, "allowed are float32 and int32"),
        ({"a_dtype": "float17"}, "float17"),
        ({"outputs": []}, "there must be one"),
        ({"products": 0}, "products = 0: it must be"),
        ({"sparsity": 2}, "a GEMM has no 'sparsity'"),
        ({"config": {"tile_m": 100}}, "need a multiple of"),
        ({"config": {"tile_x": 64}}, "'tile_x' is no choice"),
        ({"config": {"stages": 99}}, "bytes of shared memory"),
        ({"config": 7}, "it has no"),
    ],
    ids=str,
)
def test_a_line_that_is_not_right_is_left_out_and_says_why(file, change, reason, capsys):
    path, _ = file
    header, first, *others = path.read_text().splitlines()
    path.write_text("\n".join([header, json.dumps({**json.loads(first), **change}), *others]))
    found = package_records.read(path)
    assert len(found.records) == 2 and len(found.skipped) == 1
    assert found.skipped[0].startswith("made.jsonl, line 2: ") and reason in found.skipped[0]
    assert db_command.main(["verify", str(path)]) == 1 and reason in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": 2}, "the file was made for format 2"),
        ({"warploom": "99.0"}, "made for format 1, warploom 99.0"),
        ({"tvm": "0.1"}, "tvm 0.1; this is format 1"),
        ({"arch": "sm_80"}, "there are no kernels for 'sm_80'"),
    ],
    ids=str,
)
def test_a_file_of_another_version_is_left_out(file, change, reason):
    path, _ = file
    header, *others = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps({**json.loads(header), **change}), *others]))
    found = package_records.read(path)
    assert found.records == () and len(found.skipped) == 1 and reason in found.skipped[0]
    path.write_text("not json\n{}\n")
    assert "line 1" in package_records.read(path).skipped[0]


def test_what_is_shipped_is_right_and_small(monkeypatch, capsys):
    (path,) = package_records.shipped_files()
    assert path.name == "h200.jsonl" and path.stat().st_size < 20_000
    found = wms.shipped()
    assert found.records and found.skipped == ()
    problems = [one.problem for one in found.records]
    assert len(set(problems)) == len(problems)
    assert db_command.main(["verify", str(path)]) == 0 == db_command.main(["inspect", str(path)])
    for one in found.records:
        assert Lookup.shipped().best(one.problem).config == one.config
    monkeypatch.setenv(package_records.SWITCH, "0")
    assert wms.shipped().records == () and Lookup.shipped().best(problems[0]) is None


def _database(folder, times, target=TARGET):
    """Records of microseconds by config."""
    mod = tvm.IRModule({"main": matmul(*SIZE)})
    folder.mkdir()
    database = JSONDatabase(work_dir=str(folder))
    workload = database.commit_workload(mod)
    for config, us in times.items():
        record = TuningRecord(trace_of(mod, config), workload, [us * 1e-6], target, None)
        database.commit_tuning_record(record)
    return folder


class _Layer(nn.Module):
    def __init__(self) -> None:
        self.linear = nn.Linear(SIZE[2], SIZE[1], bias=False)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.linear(x)


def _compiled_with(**arguments) -> Config:
    """The config that a model's GEMM gets."""
    layer = _Layer()
    layer.to("float16")
    spec = {"forward": {"x": nn.spec.Tensor([SIZE[0], SIZE[2]], "float16")}}
    mod = layer.export_tvm(spec)[0]
    with TARGET:
        known = Lookup.in_order(**arguments)
        mod = tvm.transform.Sequential(inserted(stock_passes()(TARGET), lookup=known))(mod)
    functions = [one for one in mod.functions.values() if not isinstance(one, relax.Function)]
    found = [config_of(one) for one in functions]
    return next(one for one in found if one is not None)


def test_own_records_go_before_shipped_ones_and_these_before_the_model(tmp_path, monkeypatch):
    best, second, third, fourth = (config for _, config in ranked(_problem())[:4])
    monkeypatch.setattr(
        lookup, "shipped", lambda: package_records.Shipped((_record(1, 0.001),), ())
    )  # which nothing is faster than
    assert best == choose(_problem())
    assert _compiled_with() == second
    assert _compiled_with(use_shipped=False) == best
    own = _database(tmp_path / "own", {third: 30.0, fourth: 40.0})
    assert (
        _compiled_with(folders=[own]) == third == _compiled_with(folders=[own], use_shipped=False)
    )
    guessed = _database(tmp_path / "guessed", {fourth: 1e-6}, wms.estimate_target(TARGET))
    assert _compiled_with(folders=[guessed]) == second
    assert _compiled_with(folders=[guessed], use_shipped=False) == best, (
        "nobody asked for estimates"
    )
    assert _compiled_with(folders=[guessed], estimates=True) == second, "measured ones go first"
    assert _compiled_with(folders=[guessed], estimates=True, use_shipped=False) == fourth
    both = {"folders": [own, guessed], "estimates": True}
    assert _compiled_with(**both) == third, "however fast the estimate"


def test_only_what_beats_the_default_is_shipped(tmp_path, capsys):
    problem = _problem()
    default, good, better, same = (config for _, config in ranked(problem)[:4])
    shape = dict(zip("mnk", SIZE, strict=True)) | {"dtype": "float16", "group": "a"}
    lines = [
        {"date": "today"},
        *({"shape": shape, "config": config.values(), "us": us}
          for config, us in ((default, 10.0), (good, 9.0), (better, 8.0), (same, None))),
        {"shape": {**shape, "m": 128}, "config": good.values(), "us": 1.0},
    ]  # fmt: skip
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    found, unknown = worth_shipping(measurements(path))
    assert (found.config, found.problem) == (better, problem)
    assert (unknown.config, unknown.problem.m) == (good, 128), "nobody has measured the default"
    assert list(worth_shipping(measurements(path), gain=0.25)) == [unknown]

    rows = [{"shape": shape, "us": {"model": 10.0, "best": 9.95},
             "config": {"model": default.values(), "best": good.values()}}]  # fmt: skip
    (tmp_path / "tuning.json").write_text(json.dumps({"rows": rows}))
    own = _database(tmp_path / "own", {default: 10.0, same: 7.0})
    words = ["ship", "--out", str(tmp_path / "out.jsonl"), str(tmp_path / "tuning.json")]
    assert db_command.main(words) == 0 and "0 records" in capsys.readouterr().out
    assert db_command.main([*words, str(own), str(path)]) == 0
    shipped = package_records.read(tmp_path / "out.jsonl").records
    (record,) = (one for one in shipped if one.problem == problem)
    assert record.config == same and record.seconds == pytest.approx(7e-6)
    with pytest.raises(WarploomError, match="has no measurements; give the folder"):
        db_command.main(["ship", str(tmp_path), "--out", str(tmp_path / "out.jsonl")])
    with pytest.raises(WarploomError, match=r"no\.jsonl cannot be read: No such file"):
        db_command.main(["ship", str(tmp_path / "no.jsonl"), "--out", str(tmp_path / "out.jsonl")])


def test_an_epilogue_is_compared_with_the_config_of_the_plain_gemm():
    plain, residual = (
        problem_of(GemmShape("g", 4096, 4096, 4096, "float16", epilogue=one))
        for one in ("none", "residual")
    )
    default, a, b = (config for _, config in ranked(plain)[:3])
    assert choose(residual) == default
    assert a.why_not(residual) is None and b.why_not(residual) is None
    plainly = [Measured(plain, default, 10.0), Measured(plain, a, 8.0)]

    def shipped(*times):
        found = [Measured(residual, config, us) for config, us in times]
        kept = worth_shipping([*found, *plainly])  # in any order
        lookup = Lookup(kept)
        assert lookup.best(plain).config == a
        return {one.problem: one.config for one in kept}, lookup.best(residual).config

    assert shipped((default, 12.0), (a, 11.0), (b, 10.95)) == ({plain: a}, a), "a is good enough"
    assert shipped((default, 12.0), (a, 11.0), (b, 10.0)) == ({plain: a, residual: b}, b)
    assert shipped((default, 10.0), (a, 11.0)) == ({plain: a, residual: default}, default), (
        "without a record it would get a"
    )
    # And the plain GEMM, whose default is best, must not get what is shipped for another.
    kept = worth_shipping([
        Measured(plain, default, 8.0), Measured(plain, a, 10.0),
        Measured(residual, default, 12.0), Measured(residual, a, 10.0),
    ])  # fmt: skip
    assert {one.problem: one.config for one in kept} == {plain: default, residual: a}


def test_what_was_shipped_before_is_kept_but_for_what_is_known_better(tmp_path, capsys):
    first, other = _problem(), _problem((64, 64, 256), "float8_e4m3fn")
    default, a, b = (config for _, config in ranked(first)[:3])
    old = [Record(first, a, 9e-6, "sm_90a", False, None), _record(1, 5.0, other)]

    def after(*times):
        found = [Measured(first, config, us) for config, us in times]
        return {one.problem: (one.config, round(one.seconds * 1e6, 2))
                for one in worth_shipping(found, before=old)}  # fmt: skip

    kept = (old[1].config, 5.0)
    assert after() == {first: (a, 9.0), other: kept}
    assert after((default, 9.2), (b, 9.1)) == {first: (a, 9.0), other: kept}
    assert after((default, 9.2), (b, 8.0)) == {first: (b, 8.0), other: kept}
    assert after((default, 9.0), (a, 9.3)) == {other: kept}, "it was measured again, and is no good"

    path, out = tmp_path / "old.jsonl", tmp_path / "out.jsonl"
    package_records.write(old, path, "h200")
    rows = [{"shape": {"group": "g", "m": 256, "n": 512, "k": 768, "dtype": "float16"},
             "us": {"model": 9.0, "best": 7.0},
             "config": {"model": default.values(), "best": b.values()}}]  # fmt: skip
    (tmp_path / "tuning.json").write_text(json.dumps({"rows": rows}))
    words = ["ship", str(tmp_path / "tuning.json"), "--before", str(path), "--out"]
    assert db_command.main([*words, str(out)]) == 0 == db_command.main([*words, str(path)])
    assert "2 records" in capsys.readouterr().out and out.read_bytes() == path.read_bytes()
    assert {one.problem: one.config for one in package_records.read(out).records} == {
        first: b, other: old[1].config
    }  # fmt: skip
    path.write_text(path.read_text().replace('"us":5.0', '"us":0'))
    with pytest.raises(WarploomError, match=r"Records would be lost. old\.jsonl, line \d: us = 0"):
        db_command.main([*words, str(out)])
