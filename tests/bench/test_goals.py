"""Goals: what results are worth, and runs that fail, hang, or are cut off."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from warploom.errors import WarploomError
from warploom_bench import claims as claims_module
from warploom_bench import goals
from warploom_bench.benchmarks import BENCHMARKS, Benchmark
from warploom_bench.claims import ENDED, Claim, Row, load, table
from warploom_bench.report import EXIT_RIGHT, EXIT_SLOW, EXIT_WRONG


def result(us_by_name, group="g", moved=4000):
    """A comparison as benchmarks write it; the names' medians in microseconds."""
    entries = [
        {"name": name, "seconds": {"burst": [0.5e-6 * us, 1e-6 * us, 9e-6 * us]}}
        for name, us in us_by_name.items()
    ]
    return {"shape": {"group": group}, "text": f"shape of {group}", "bytes": moved,
            "operations": 3e7, "entries": entries}  # fmt: skip


RESULTS = {
    "environment": {"copy_bytes_per_second": 4e9},
    "comparisons": [
        result({"default": 10, "first": 20, "tuned": 8, "best": 12}),
        result({"default": 10, "first": 5}, group="h", moved=20000),
    ],
}


@pytest.mark.parametrize(
    ("claim", "value"),
    [
        ({}, math.sqrt(1.2 * 0.5)),
        ({"over": ("first",)}, math.sqrt(2.0 * 0.5)),
        ({"over": ("first",), "take": "worst"}, 0.5),
        ({"over": ("first", "best"), "ours": ("tuned", "default")}, math.sqrt(1.5 * 0.5)),
        ({"over": ("best",)}, 1.2),
        ({"over": ("first",), "where": {"group": "h"}}, 0.5),
        ({"take": "copy", "where": {"group": "h"}}, 0.5),
        ({"ours": ("tuned",), "take": "copy"}, 0.125),
        ({"take": "tflops", "where": {"group": ["x", "h"]}}, 3.0),
    ],
    ids=str,
)
def test_claims_are_computed_from_medians(claim, value):
    claim = claim or {"ours": ("default", "tuned")}  # whoever else competes is a library
    found, detail = Claim("what", 1.0, **claim).measured(RESULTS)
    assert found == pytest.approx(value) and "worst" in detail


@pytest.mark.parametrize(
    "claim", [{"over": ("nobody",)}, {"protocol": "sustained"}, {"where": {"group": "x"}}], ids=str
)
def test_what_was_not_measured_has_no_value(claim):
    assert Claim("what", 1.0, **claim).measured(RESULTS) is None


def test_times_are_goals_from_above():
    claim = Claim("launch", 5.0, take="main(a)")
    value, _ = claim.measured({"seconds": {"main(a)": 4e-6}})
    assert value == pytest.approx(4) and claim.is_met(value) and not claim.is_met(5.1)
    assert claim.measured({"seconds": {}}) is None
    stages = {"import": [2.0, 1.9], "compile or load": [0.25, 0.2], "first result": [0.5, 0.1]}
    cold = Claim("cold start", 1e6, take="a process").measured({"rows": {"a process": stages}})
    assert cold[0] == pytest.approx(0.75e6), "wall time, after the imports"


def row(name, goal=0.5, command=("fake",)):
    return Row(name, 0.0, command, (Claim(f"claim of {name}", goal, over=("first",)),))


def write(folder, content):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(content))


def cells(text):
    return [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines()[2:]]


def test_table_says_what_is_met_and_what_is_missing(tmp_path):
    rows = [row("met"), row("missed", goal=3.0), row("cut"), row("none"), row("broken")]
    for name in ("met", "missed", "cut"):
        write(tmp_path / name, RESULTS)
    for name in ("met", "missed", "broken"):
        reason, status = ("no GPU", EXIT_WRONG) if name == "broken" else ("", EXIT_RIGHT)
        goals._end(tmp_path / name, status, reason, 1.0)
    text, status = table(rows, tmp_path)
    assert status == EXIT_WRONG
    met = [line[3] for line in cells(text)]
    assert met == ["yes", "NO", "yes", "not measured", "FAILED"]
    assert "a part of the run" in cells(text)[2][4] and cells(text)[4][4] == "no GPU"
    assert table(rows[:2], tmp_path)[1] == EXIT_SLOW and table(rows[:1], tmp_path)[1] == EXIT_RIGHT


#: In the place of the process that runs rows: each does what its name says.
_CHILD = """
import os, sys, time
from pathlib import Path
out, *names = sys.argv[1:]
for name in names:
    folder = Path(out, name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "begun").touch()
    if name == "crashes":
        os._exit(7)
    if name == "hangs":
        time.sleep(600)
    (folder / "ended.json").write_text('{"status": 0, "reason": "", "seconds": 1}')
"""


def test_a_crash_and_a_hang_cost_one_row_each(tmp_path, monkeypatch):
    monkeypatch.setattr(goals, "_LOOK", 0.02)
    monkeypatch.setattr(claims_module, "_LEAST_SECONDS", 2.0)
    rows = [row(name) for name in ("first", "crashes", "hangs", "last")]
    started = []

    def start(left, minutes):
        started.append([one.name for one in left])
        assert 0 < minutes <= 9
        return subprocess.Popen([sys.executable, "-c", _CHILD, str(tmp_path), *started[-1]])

    goals.run_all(rows, tmp_path, 9.0, start)
    assert started == [["first", "crashes", "hangs", "last"], ["hangs", "last"], ["last"]]
    reasons = {one.name: one.ended(tmp_path)["reason"] for one in rows}
    assert reasons["first"] == reasons["last"] == ""
    assert reasons["crashes"] == "its process ended with status 7" and "hung" in reasons["hangs"]
    goals.run_all(rows, tmp_path, 9.0, start)
    assert len(started) == 3, "what has ended is not run again"


def test_what_is_cut_off_is_run_again(tmp_path, monkeypatch):
    for name in ("_LOOK", "_LEAST_LEFT"):
        monkeypatch.setattr(goals, name, 0.02)
    rows = [row("hangs")]

    def start(left, minutes):
        return subprocess.Popen([sys.executable, "-c", _CHILD, str(tmp_path), "hangs"])

    begin = time.monotonic()
    goals.run_all(rows, tmp_path, 0.01, start)
    assert time.monotonic() - begin < 300 and rows[0].ended(tmp_path) is None


@pytest.fixture
def fake(monkeypatch):
    """A benchmark ``fake`` that records its arguments and writes results."""
    seen = []

    def main(arguments):
        seen.append(arguments)
        if "--fail" in arguments:
            raise WarploomError("no such shape")
        if "--compile-only" not in arguments:
            write(goals.Path(arguments[arguments.index("--out") + 1]), RESULTS)
        return EXIT_RIGHT

    monkeypatch.setitem(BENCHMARKS, "fake", Benchmark("fake", "", "", ""))
    monkeypatch.setattr(goals, "import_module", lambda name: SimpleNamespace(main=main))
    return seen


def test_rows_are_run_in_one_process_and_reported(fake, tmp_path, capsys):
    file, out = tmp_path / "goals.json", tmp_path / "out"
    claims = [{"label": "speed", "goal": 0.9, "over": ["first"]}]
    rows = [
        {"name": name, "minutes": 1, "command": ["fake", *more], "claims": claims}
        for name, more in (("a", ["--x"]), ("b", ["--fail"]))
    ]
    file.write_text(json.dumps({"rows": rows}))
    common = ["--goals", str(file), "--out", str(out), "--kernels", "K"]
    assert goals.main([*common, "--compile-only"]) == EXIT_WRONG
    assert "Not all kernels of b were compiled" in capsys.readouterr().out
    assert fake[0] == ["--x", "--kernels", "K", "--compile-only"]
    assert goals.main([*common, "--in-process", "--minutes", "2"]) == EXIT_RIGHT
    at = fake[2]
    assert at[:4] == ["--x", "--kernels", "K", "--minutes"] and float(at[4]) == pytest.approx(2)
    assert json.loads((out / "b" / ENDED).read_text())["reason"] == "no such shape"
    assert goals.main([*common, "--table"]) == EXIT_WRONG
    assert [line[3] for line in cells((out / "goals.md").read_text())] == ["yes", "FAILED"]
    with pytest.raises(WarploomError, match="no row 'c'; allowed are a, b"):
        goals.main([*common, "--row", "c"])
    with pytest.raises(WarploomError, match="needs --kernels DIR"):
        goals.main(["--compile-only"])


def test_rows_of_the_package_are_commands_that_exist():
    """Every command parses, and every claim refers to what its command measures."""
    rows = load()
    assert len({one.name for one in rows}) == len(rows)
    for one in rows:
        what, *arguments = one.command
        assert what in BENCHMARKS
        for claim in one.claims:
            backends = {name for name in arguments if not name.startswith("-")}
            if what == "gemm":
                assert {*claim.ours, *claim.over} <= backends, one.name
            if claim.protocol == "sustained":
                assert "--burst-only" not in arguments
