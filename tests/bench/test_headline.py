"""The numbers of the first page are made from a run, and only from it."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree

import pytest

from tests.shared.paths import ROOT
from warploom.errors import WarploomError
from warploom_bench import headline
from warploom_bench.claims import load
from warploom_bench.headline import BEGIN, END, LINES, chart, table, with_table

PROTOCOLS = ("burst", "alone", "behind a copy")


def comparison(number, causal):
    """Ours is 1.25 times as fast as the faster library, and half as fast for the last shape."""
    ours = 8e-6 if number < 2 else 20e-6
    times = {"default": ours * 1.1, "tuned": ours, "cublaslt": 12e-6, "cublaslt-best": 10e-6}
    shape = {"group": "decode", "m": 16, "n": number, "k": 64, "causal": causal}
    return {
        "shape": shape, "text": f"shape {number}", "operations": 1e6, "bytes": 100,
        "entries": [
            {"name": name, "seconds": {key: [us, 9 * us, us] for key in PROTOCOLS}, "error": 0.0}
            for name, us in times.items()
        ],
    }  # fmt: skip


@pytest.fixture
def goals(tmp_path):
    """A folder as ``bench goals`` leaves it, with all rows that the page shows."""
    facts = {
        "date": "2001-02-03 04:05:06", "gpu": {"name": "A GPU"}, "versions": {"torch": "9.9"},
        "copy_bytes_per_second": 1e12, "command": "x",
    }  # fmt: skip
    for row in {line.row for line in LINES}:
        folder = tmp_path / "goals" / row
        folder.mkdir(parents=True)
        content = {
            "environment": facts,
            "comparisons": [comparison(i, causal) for i in range(3) for causal in (False, True)],
        }
        (folder / "run.json").write_text(json.dumps(content))
    return tmp_path / "goals"


def test_page_and_chart_are_made_of_the_run(goals, tmp_path, capsys):
    kept, page, picture = (tmp_path / name for name in ("kept.json", "page.md", "chart.svg"))
    page.write_text(f"before\n{BEGIN}\nold 9.999\n{END}\nafter\n")
    assert headline.main(["--collect", str(goals), "--out", str(kept)]) == 0
    again = ["--run", str(kept), "--page", str(page), "--chart", str(picture)]
    assert headline.main(again) == 0
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\nOne A GPU, PyTorch 9.9, 2001-02-03")
    assert text.endswith(f"{END}\nafter\n") and "old" not in text
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(LINES) <= 12 and table(headline.read(kept)) in capsys.readouterr().out
    means = {line.label: line.cells(headline.read(kept)["results"]) for line in LINES}
    shapes, mean, worst = means["bfloat16, public suite, shipped records"]
    assert (shapes, worst) == (6, pytest.approx(0.5))
    assert mean == pytest.approx((1.25 * 1.25 * 0.5) ** (1 / 3))
    assert means["float16, public suite, default config"][1] == pytest.approx(mean / 1.1)
    drawn = ElementTree.fromstring(picture.read_text())
    names = [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {line.label for line in LINES} <= set(names)


def test_the_first_page_shows_the_run_that_is_committed():
    run = headline.read()
    page = (ROOT / "README.md").read_text()
    assert with_table(page, run) == page, "write it with `warploom bench headline --page README.md`"
    assert (ROOT / "tutorials" / "guide" / "measured.svg").read_text() == chart(run)


def test_every_line_names_a_row_of_the_goals():
    assert {line.row for line in LINES} <= {row.name for row in load()}


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(WarploomError, match="has no results"):
        headline.collect(tmp_path)
    with pytest.raises(WarploomError, match="measured: begin"):
        with_table("no marks", {})


def test_rows_without_results_are_left_out(goals):
    run = headline.collect(goals)
    del run["results"]["attention"]
    assert "attention" not in table(run) and "attention" not in chart(run)
    assert re.search(r"grouped GEMM.*\| 6 ", table(run))
