"""Suites, ratios, tables, files and exit statuses of the benchmarks."""

import json
import math
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warploom import emulator
from warploom.errors import WarploomError
from warploom.gemm_shape import GemmShape
from warploom.timing import Statistics
from warploom_bench import __main__ as bench
from warploom_bench import environment, report
from warploom_bench.check import Deviation
from warploom_bench.operands import allowed_error, input_sets
from warploom_bench.report import Comparison, Entry, geometric_mean, markdown_table
from warploom_bench.suite import load_suite, suite_names

ENVIRONMENT = {
    "date": "2001-02-03 04:05:06",
    "command": "python -m warploom_bench gemm",
    "gpu": {"name": "A GPU", "clocks.sm": "1980 MHz"},
    "versions": {"python": "3.12"},
}


def entry(name, seconds, error=1e-4, protocols=("burst", "sustained")):
    times = {p: Statistics((seconds * 0.9, seconds, seconds * 1.2)) for p in protocols}
    return Entry(name, times, Deviation(error, error), 1e-3, host_seconds=5e-6)


def comparison(ours=1e-3, library=1e-3, error=1e-4, target=None, group="g", m=128):
    shape = GemmShape(group, m, 256, 512, "float16", target)
    return Comparison(shape, (entry("warploom", ours, error), entry("cuBLAS", library)))


def table_cells(text):
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_foundation_suite_is_what_the_first_release_promises():
    shapes = {(s.m, s.n, s.k, s.dtype): s.target for s in load_suite("foundation")}
    large = [(4096,) * 3, (8192,) * 3, (4096, 14336, 4096)]
    for dtype in ("float16", "bfloat16"):
        assert all(shapes.pop((*extents, dtype)) >= 0.99 for extents in large)
    assert shapes.pop((16, 8192, 8192, "float16")) >= 0.99
    assert shapes.pop((8192, 8192, 8192, "float8_e4m3fn")) >= 0.95
    assert not shapes


def test_shape_lists_are_read_for_every_dtype(tmp_path):
    file = tmp_path / "shapes.json"
    content = {"about": "text", "squares": [[8, 8, 8], [16, 16, 16]], "thin": [[1, 8, 8]]}
    file.write_text(json.dumps(content | {"dtypes": ["float16"]}))
    shapes = load_suite(str(file), ["float16", "bfloat16"])
    assert len(shapes) == 6 and {s.group for s in shapes} == {"squares", "thin"}
    thin = GemmShape("thin", 1, 8, 8, "float16")
    assert load_suite(str(file), groups=["thin"]) == [thin]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "nowhere"}, "no suite 'nowhere'.*foundation"),
        ({"name": "foundation", "groups": ["tiny"]}, "no group 'tiny'.*few rows, float8, large"),
    ],
)
def test_unknown_suites_and_groups_are_refused(arguments, message):
    with pytest.raises(WarploomError, match=message):
        load_suite(**arguments)


@pytest.mark.parametrize(
    ("fields", "message"),
    [((8, 8, 8, "int4"), "int4.*allowed are float16"), ((0, 8, 8, "float16"), "0 x 8 x 8")],
)
def test_impossible_shapes_are_refused(fields, message):
    with pytest.raises(WarploomError, match=message):
        GemmShape("g", *fields)


@pytest.mark.parametrize("shape", load_suite("foundation"), ids=str)
def test_inputs_of_successive_launches_exceed_the_l2_cache(shape):
    assert input_sets(shape) >= 2 and input_sets(shape) * shape.input_bytes >= 120e6
    assert 0 < allowed_error(shape) < 0.02


@given(values=st.lists(st.floats(0.1, 10), min_size=1, max_size=20), factor=st.floats(0.5, 2))
def test_geometric_mean(values, factor):
    mean = geometric_mean(values)
    assert min(values) * (1 - 1e-9) <= mean <= max(values) * (1 + 1e-9)
    assert geometric_mean([factor * v for v in values]) == pytest.approx(factor * mean)


words = st.text("abcXYZ019 .", max_size=12).map(str.strip)


@given(rows=st.lists(st.tuples(words, words, words), max_size=6))
def test_tables_are_aligned_and_keep_their_cells(rows):
    text = markdown_table(["one", "two", "three"], rows)
    assert len({len(line) for line in text.splitlines()}) == 1
    header, rule, *cells = table_cells(text)
    assert header == ["one", "two", "three"] and set("".join(rule)) == {"-"}
    assert cells == [list(row) for row in rows]


def test_ratio_is_speed_relative_to_the_library():
    fast = comparison(ours=0.5e-3, library=1e-3)
    assert fast.ratio(fast.entries[0], "burst") == pytest.approx(2)
    assert fast.ratio(fast.entries[1], "burst") == 1


def test_report_has_every_figure():
    comparisons = [
        comparison(ours=1e-3, target=0.9),
        comparison(ours=2e-3, target=0.9, m=64),
        comparison(ours=1e-3, error=math.nan, group="h"),
    ]
    text = report.markdown(comparisons, ENVIRONMENT)
    assert "1980 MHz" in text and text.count("## ") == 2
    cells = table_cells(text.split("## sustained")[0])
    rows = {tuple(row[:2]): row for row in cells}
    slow = rows["64x256x512 float16", "warploom"]
    flops = 2 * 64 * 256 * 512 / 2e-3 / 1e12
    assert slow[2:5] == ["2000.0", "1800.0-2400.0", f"{flops:.1f}"]
    assert slow[5:] == ["0.500", "1.0e-04", "1.0e-04", "5.0"]
    wrong = "WRONG nan, worst element nan at ()"
    assert wrong in rows["128x256x512 float16", "warploom"]
    assert ["g", f"{math.sqrt(0.5):.3f}", "0.500", "64x256x512 float16", "1"] in cells
    assert ["h", "1.000", "1.000", "128x256x512 float16", "none"] in cells


def test_files_keep_every_sample(tmp_path):
    comparisons = [comparison(target=0.9)]
    report.write(comparisons, ENVIRONMENT, tmp_path / "new", "gemm-x")
    content = json.loads((tmp_path / "new" / "gemm-x.json").read_text())
    assert content["environment"] == ENVIRONMENT
    (stored,) = content["comparisons"]
    assert GemmShape(**stored["shape"]) == comparisons[0].shape
    samples = stored["entries"][0]["seconds"]["burst"]
    assert tuple(samples) == comparisons[0].entries[0].times["burst"].samples
    assert (tmp_path / "new" / "gemm-x.md").read_text().startswith("- date: 2001")


@pytest.mark.parametrize(
    ("comparisons", "status"),
    [
        ([comparison()], report.EXIT_RIGHT),
        ([comparison(target=0.9)], report.EXIT_RIGHT),
        ([comparison(ours=2e-3)], report.EXIT_RIGHT),
        ([comparison(ours=2e-3, target=0.9), comparison()], report.EXIT_SLOW),
        ([comparison(ours=2e-3, target=0.9), comparison(error=2e-3)], report.EXIT_WRONG),
        ([comparison(error=math.nan)], report.EXIT_WRONG),
    ],
)
def test_exit_status(comparisons, status):
    assert report.exit_status(comparisons) == status


def test_gpu_properties_are_those_of_the_gpu_in_use(monkeypatch):
    asked = []
    for visible in (None, "", "1", "GPU-1f,0"):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        environment.gpu_properties(lambda command: asked.append(list(command)) or "")
    assert [one[3:] for one in asked] == [[], [], ["--id=1"], ["--id=GPU-1f"]]


def test_gpu_properties_come_from_nvidia_smi():
    values = "NVIDIA X, 580.1, 1980 MHz, 1980 MHz, 3201 MHz, 90.1 W, 700.00 W, 31\n"
    found = environment.gpu_properties(lambda command: values)
    assert found["name"] == "NVIDIA X" and found["temperature.gpu"] == "31"

    def missing(command):
        raise FileNotFoundError(command[0])

    def failing(command):
        raise subprocess.CalledProcessError(9, command)

    assert environment.gpu_properties(missing) == environment.gpu_properties(failing) == {}


def test_command_refuses_in_one_line(capsys, monkeypatch):
    monkeypatch.setattr(emulator, "is_enabled", lambda: False)
    assert bench.main(["gemm", "--suite", "nowhere"]) == 3
    assert "no suite 'nowhere'" in capsys.readouterr().err
    assert bench.main(["nothing"]) == 3
    error = capsys.readouterr().err
    assert "unknown benchmark 'nothing'; allowed are goals, headline," in error
    assert suite_names() == ["foundation", "public"]
