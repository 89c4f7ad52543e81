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
from warploom.decide.ranking import choose_by_rows, ranked
from warploom.decide.selector import choose
from warploom.errors import WarploomError
from warploom.gemm.annotations import config_of
from warploom.gemm.recognition import recognise
from warploom.gemm.workloads import problem_of
from warploom.gemm_shape import GemmShape
from warploom.meta_schedule import db_command, lookup, package_records
from warploom.meta_schedule.judged import Journal, Judged, read_judged
from warploom.meta_schedule.lookup import MANY_ROWS, Lookup
from warploom.meta_schedule.records import Record, trace_of
from warploom.meta_schedule.ship import Measured, measurements, worth_shipping
from warploom.meta_schedule.workloads import matmul
from warploom.relax.insertion import inserted
from warploom.relax.pipeline import stock_passes
from warploom.target.gpus import GPUS

SIZE = (256, 512, 768)
TARGET = warploom.cuda_target("h200")


def _problem(size=SIZE, dtype="float16"):
    return recognise(matmul(*size, dtype)).problem


def _record(number: int, us: float, problem=None) -> Record:
    problem = problem or _problem()
    return Record(problem, ranked(problem)[number][1], us / 1e6, "sm_90a", False, None)


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
        ({"as": "int3"}, "as = 'int3': allowed are float16, bfloat16, float8_e4m3fn, int4"),
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
        ({"format": 1}, "the file was made for format 1"),
        ({"warploom": "99.0"}, "made for format 2, warploom 99.0"),
        ({"tvm": "0.1"}, "tvm 0.1; this is format 2"),
        ({"arch": "sm_80"}, "there are no kernels for 'sm_80'"),
        ({"gpu": "b200"}, "there is no GPU 'b200' of sm_90a; allowed are h100, "),
    ],
    ids=str,
)
def test_a_file_of_another_version_is_left_out(file, change, reason):
    path, _ = file
    header, *others = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps({**json.loads(header), **change}), *others]))
    found = package_records.read(path)
    assert found.records == () and len(found.skipped) == 1 and reason in found.skipped[0]
    assert len(package_records.Index([path])) == 0
    path.write_text("not json\n{}\n")
    assert "line 1" in package_records.read(path).skipped[0]


#: Bytes of a record in a file, on average at most, and of a file.
RECORD_BYTES, FILE_BYTES = 200, 1_500_000


@pytest.mark.parametrize("path", package_records.shipped_files(), ids=lambda path: path.stem)
def test_a_shipped_file_is_right_and_small_and_in_order(path, tmp_path, capsys):
    found = package_records.read(path)
    assert found.records and found.skipped == ()
    assert path.stat().st_size < min(FILE_BYTES, RECORD_BYTES * len(found.records))
    problems = [one.problem for one in found.records]
    assert len(set(problems)) == len(problems)
    assert {one.gpu for one in found.records} == {path.stem}
    again = tmp_path / "again.jsonl"
    package_records.write(reversed(found.records), again, path.stem)
    assert again.read_bytes() == path.read_bytes(), "a review sees only what has changed"
    assert db_command.main(["verify", str(path)]) == 0
    gpu = GPUS[path.stem]
    for one in found.records:
        assert Lookup.shipped().best(one.problem, gpu=gpu).config == one.config


def test_what_is_shipped_can_be_switched_off(monkeypatch, capsys):
    problem, lookup = wms.shipped().records[0].problem, Lookup.shipped()
    assert lookup.best(problem) is not None and db_command.main(["inspect"]) == 0
    monkeypatch.setenv(package_records.SWITCH, "0")
    assert wms.shipped().records == () and lookup.best(problem) is None
    assert Lookup.shipped().best(problem) is None
    monkeypatch.delenv(package_records.SWITCH)
    assert lookup.best(problem) is not None


def test_only_the_layers_that_are_asked_for_are_parsed(tmp_path, monkeypatch):
    records = [
        replace(_record(0, 5.0, problem_of(GemmShape("g", m, n, 768, "float16"))), gpu="h200")
        for n in (512, 1024, 2048)
        for m in (16, 64)
    ]
    pair = replace(records[0].problem, n=256, products=2)  # 512 columns together
    records.append(replace(_record(0, 5.0, pair), gpu="h200"))
    path = tmp_path / "h200.jsonl"
    package_records.write(records, path, "h200")
    text = path.read_text()
    by_hand = json.loads(text.splitlines()[-1])  # of 2048 columns, with its keys in another order
    path.write_text(text + json.dumps({**by_hand, "m": 256, "n": by_hand.pop("n")}) + "\nbroken\n")
    parsed = []
    real = package_records.record_of
    monkeypatch.setattr(
        package_records, "record_of", lambda *given: parsed.append(given[0]) or real(*given)
    )
    index = package_records.Index([path])
    assert len(index) == 9 and len(parsed) == 1, "the line that another hand has written"
    found = index.of(512, 768)
    assert {(one.problem.m, one.problem.products) for one in found} == {(16, 1), (64, 1), (16, 2)}
    assert index.of(512, 768) is found and len(parsed) == 1 + 3
    assert {one.problem.m for one in index.of(2048, 768)} == {16, 64, 256}
    assert index.of(512, 512) == index.of(None, None) == ()
    lookup = Lookup.of_files([path])
    for record in records:
        assert lookup.best(record.problem).record == Lookup(records).best(record.problem).record


def _of_gpu(gpu, us, number, rows=SIZE[0]):
    problem = _problem((rows, *SIZE[1:]))
    return Record(problem, ranked(problem)[number][1], us * 1e-6, "sm_90a", False, None, gpu)


def test_a_record_serves_the_gpus_with_as_many_multiprocessors():
    h200, h100 = _of_gpu("h200", 5.0, 0), _of_gpu("h100", 9.0, 1)
    both = Lookup([h200, h100])
    for name, wanted in {"h200": h200, "h100": h100, "gh200": h200, "h100-nvl": h200}.items():
        assert both.best(_problem(), gpu=GPUS[name]).record == wanted, name
    for name in ("h20", "h100-pcie", "h100-3g", "h200-1g"):
        assert both.best(_problem(), gpu=GPUS[name]) is None, name
        with warploom.cuda_target(name):
            assert both.config(_problem()) is None, "the GPU of the current target"
    near = _of_gpu("h100", 1.0, 1, 200)
    assert Lookup([near, h200]).best(_problem(), gpu=GPUS["h100"]).record == h200, (
        "the very GEMM on a GPU like it goes before one with other rows"
    )
    unknown = _of_gpu("", 7.0, 2)
    assert Lookup([unknown]).best(_problem(), gpu=GPUS["h20"]).record == unknown
    own = replace(GPUS["h200"], name="own", sms=100)
    assert Lookup([_of_gpu(own.model, 7.0, 2)]).best(_problem(), gpu=GPUS["h200"]) is None
    assert Lookup([_of_gpu(own.model, 7.0, 2)]).best(_problem(), gpu=own) is not None


def test_rows_that_only_the_launch_knows_have_the_records_of_many():
    many = replace(_problem(), m=MANY_ROWS)
    symbolic = replace(_problem(), m=None)
    record = Record(many, ranked(many)[1][1], 1e-5, "sm_90a", False, None)
    found = Lookup([record]).best(symbolic)
    assert found.record == record and not found.exact
    assert found.config.why_not(symbolic) is None
    assert Lookup([_record(1, 5.0)]).best(symbolic) is None, "of 256 rows"
    own = Record(symbolic, ranked(symbolic)[2][1], 1e-4, "sm_90a", False, None)
    assert Lookup([record, own]).best(symbolic).record == own
    assert dict(choose_by_rows(symbolic, known=Lookup([record]).config))[None] == found.config


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
    path = tmp_path / "h200.jsonl"
    package_records.write([_record(1, 0.01)], path, "h200")  # which nothing is faster than
    monkeypatch.setattr(lookup, "shipped_index", lambda: package_records.Index([path]))
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
    pairs = (
        [problem_of(GemmShape("g", rows, 4096, 4096, "float16", epilogue=one))
         for one in ("none", "residual")]
        for rows in (256, 512, 1024, 2048, 8192)
    )  # fmt: skip
    plain, residual = next(pair for pair in pairs if choose(pair[0]) == choose(pair[1]))
    default, a, b = (config for _, config in ranked(plain)[:3])
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


def _judgements():
    """A winner, a confirmed default, and a GEMM without a record."""
    won, confirmed, failed = (_problem((rows, *SIZE[1:])) for rows in (256, 64, 16))
    faster, default = ranked(won)[2][1], ranked(confirmed)[0][1]
    return [
        Judged(won, Record(won, faster, 5e-6, "sm_90a", False, None, "h100"), 6.0, 4),
        Judged(confirmed, Record(confirmed, default, 3e-6, "sm_90a", False, None, "h100"), 3.0, 6),
        Judged(failed, None, error="it hangs"),
    ]


def test_a_journal_of_judged_gemms_goes_on_where_it_was_cut_off(tmp_path):
    path, entries = tmp_path / "judged.jsonl", _judgements()
    journal = Journal(path, "h100")
    for entry in entries[:2]:
        journal.add(entry)
    with path.open("ab") as file:
        file.write(json.dumps(entries[2].line()).encode()[:20])  # the process was killed
    again = Journal(path, "h100")
    assert list(again.known.values()) == entries[:2]
    again.add(entries[2])
    assert read_judged(path).entries == tuple(entries) and read_judged(path).gpu == "h100"
    with pytest.raises(WarploomError, match="was measured on an h100, and this is an h200"):
        Journal(path, "h200")
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], '{"record":{}}', *lines[1:]]) + "\n")
    with pytest.raises(WarploomError, match=r"judged\.jsonl, line 2: it has no 'config'"):
        Journal(path, "h100")
    path.write_text("{}\n")
    with pytest.raises(WarploomError, match="line 1"):
        Journal(path, "h100")


def test_judged_records_are_shipped_as_they_are_and_stay(tmp_path, capsys):
    path, out = tmp_path / "judged.jsonl", tmp_path / "h100.jsonl"
    journal = Journal(path, "h100")
    for entry in _judgements():
        journal.add(entry)
    wanted = {e.problem: e.record for e in _judgements() if e.record is not None}
    assert db_command.main(["ship", str(path), "--out", str(out)]) == 0
    assert "2 records" in capsys.readouterr().out

    def shipped():
        return {one.problem: one for one in package_records.read(out).records}

    assert shipped() == wanted and {one.gpu for one in shipped().values()} == {"h100"}
    words = ["ship", str(path), "--before", str(out), "--out", str(out)]
    before = out.read_bytes()
    assert db_command.main(words) == 0 and out.read_bytes() == before
    (tmp_path / "none.jsonl").write_text("")
    words = ["ship", str(tmp_path / "none.jsonl"), "--before", str(out), "--out", str(out)]
    assert db_command.main(words) == 0 and shipped() == wanted, "a confirmed default stays"
    other = tmp_path / "h200.jsonl"
    package_records.write([_record(1, 5.0)], other, "h200")
    with pytest.raises(WarploomError, match="the records of one GPU, and these are of h100, h200"):
        db_command.main(["ship", str(path), "--before", str(other), "--out", str(out)])
