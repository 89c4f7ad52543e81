"""Reports in parts: both sides of a race, folded repeats, and the page that shows them."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
from tvm.script import tirx as T

from tests.shared.paths import ROOT
from warploom import emulator
from warploom.emulator.binding import EmulatorError
from warploom.emulator.findings import Finding, findings_of, fold, summary
from warploom.emulator.html_report import html_page, html_report

RACE = (
    "data race in kernel k: PTX line {} (tvm_kernels.cu:82, script kernel.py:{} b[i] = s[127 - i]"
    "): "
    "ld.shared.f32 of CTA (0, 0, 0) warp 2 lane 0 reads shared 0x4fc (s + 0xfc), which PTX line {} "
    "(tvm_kernels.cu:80, script kernel.py:{} s[i] = a[i]): st.shared.f32 of CTA (0, 0, 0) warp 1 "
    "lane 0 writes, and nothing orders the two. Fix: order them with a barrier"
)


@T.prim_func
def too_soon(a: T.Buffer((2, 128), "float32"), b: T.Buffer((2, 128), "float32")):
    T.device_entry()
    T.cta_id([1])
    thread = T.thread_id([128])
    buffer = T.alloc_buffer((128,), "float32", scope="shared")
    for tile in T.serial(2):
        buffer[thread] = a[tile, thread]
        T.cuda.cta_sync()
        b[tile, thread] = buffer[127 - thread]


def test_both_sides_of_a_race() -> None:
    (finding,) = findings_of([{"kind": "data race", "text": RACE.format(59, 37, 64, 35)}])
    reads, writes = finding.sides
    assert (finding.kind, finding.kernel, finding.count) == ("data race", "k", 1)
    assert finding.fix == "order them with a barrier"
    assert (reads.file, reads.line, reads.source) == ("kernel.py", 37, "b[i] = s[127 - i]")
    assert (reads.does, reads.thread) == ("reads", "CTA (0, 0, 0) warp 2 lane 0")
    assert (writes.does, writes.line, writes.ptx_line) == ("writes", 35, 64)
    assert (writes.instruction, writes.cuda) == ("st.shared.f32", "tvm_kernels.cu:80")


def test_races_of_the_same_lines_are_one_finding() -> None:
    reports = [
        {"kind": "data race", "text": RACE.format(*lines)}
        for lines in ((59, 37, 64, 35), (68, 37, 72, 35), (64, 35, 59, 37), (59, 37, 64, 36))
    ]
    message = reports[0]["text"] + " (and 3 other findings)"
    reports.append({"kind": "data race", "text": message})  # the launch that failed
    found = findings_of(reports)
    assert [one.count for one in found] == [3, 1]
    said = summary(message, found)
    assert said.endswith("(found 3 times; and 1 other findings: data race)")
    assert summary(reports[0]["text"], found) == reports[0]["text"]


def test_warps_that_wait_for_the_same_are_named_together() -> None:
    entry = "  CTA (0, 0, 0) warp {} waits for b, supplied by\n      PTX line 7"
    lines = [entry.format(warp) for warp in (4, 5, 6)]
    other = "  CTA (0, 0, 0) warp 0 waits for c"
    text = "\n".join(["deadlock:", other, *lines])
    folded = fold(text)
    assert folded == f"deadlock:\n{other}\n" + lines[0].replace("warp 4", "warps 4 to 6")
    assert fold(folded) == folded
    apart = "\n".join(f"  CTA (0, 0, 0) warp {warp} waits" for warp in (1, 3))
    assert fold(apart) == "  CTA (0, 0, 0) warps 1, 3 waits"


@pytest.mark.gpu
def test_an_error_has_its_findings_and_sources(tmp_path) -> None:
    ones = np.ones((2, 128), np.float32)
    with pytest.raises(EmulatorError) as caught:
        emulator.run(too_soon, [ones, ones])
    error = pickle.loads(pickle.dumps(caught.value))
    (finding,) = error.findings
    assert finding.kind == "data race" and finding.count > 1
    error.write_html(tmp_path / "race.html")
    page = (tmp_path / "race.html").read_text()
    here = re.findall(r"<div class=wl-here>.*?</span>(.*?)</div>", page)
    assert [line.strip() for line in here] == [
        "b[tile, thread] = buffer[127 - thread]", "buffer[thread] = a[tile, thread]",
    ]  # fmt: skip
    assert "T.cuda.cta_sync()" in page and error._repr_html_() in page


def test_a_page_quotes_only_lines_that_are_still_there(tmp_path) -> None:
    script = tmp_path / "kernel.py"
    script.write_text("\n" * 34 + "s[i] = a[i]\n\nother <text>\n")
    finding = Finding("data race", RACE.format(59, 37, 64, 35))
    page = html_page([finding], {"kernel.py": str(script)})
    assert "other &lt;text&gt;" in page  # around the line that has not changed
    assert page.count("b[i] = s[127 - i]") == 2  # as the report quotes it, and the report
    assert "nothing wrong" in html_report([])
    assert "illegal" in html_report([Finding("error", "illegal <argument>")])


@pytest.mark.gpu
@pytest.mark.in_turn(4)
def test_the_command_writes_a_page(tmp_path) -> None:
    script, page = tmp_path / "script.py", tmp_path / "new" / "page.html"
    script.write_text(
        "import numpy as np\nfrom warploom import emulator\n"
        "from tests.emulator.test_findings import too_soon\n"
        "ones = np.ones((2, 128), np.float32)\n"
        "try:\n    emulator.run(too_soon, [ones, ones])\n"
        "except emulator.EmulatorError:\n    print('caught')\n"
    )
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    main = "import sys; from warploom.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", main, "emulate", "--html", str(page), str(script)],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "caught" in done.stdout and "1 finding" in done.stdout
    assert "wl-here" in page.read_text()
