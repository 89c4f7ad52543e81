"""Diagrams of kernels: what they show is what the passes have made."""

from __future__ import annotations

import itertools
import json
from xml.etree import ElementTree

import pytest
from tvm.script import tirx as T

from warploom import cli
from warploom.diagram import read_kernel
from warploom.diagram.parts import Step
from warploom.diagram.steps import steps_of
from warploom.pictures import Rect, svg

PROGRAM = """
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from warploom import language as wl

def gemm(k):
    @T.prim_func
    def gemm(A: T.Buffer((256, k), "float16"), B: T.Buffer((128, k), "float16"),
             C: T.Buffer((256, 128), "float32")):
        T.device_entry()
        wl.hints(persistent=False, consumers=2, specialise=True)
        i = T.cta_id([2])
        A_s = T.alloc_buffer((128, 64), "float16", scope="shared")
        B_s = T.alloc_buffer((128, 64), "float16", scope="shared")
        acc = T.alloc_buffer((128, 128), "float32", scope="accumulator")
        for step in wl.pipelined(k // 64, stages=3):
            Tx.cta.copy_async(A_s, A[i * 128 : i * 128 + 128, step * 64 : step * 64 + 64])
            Tx.cta.copy_async(B_s, B[:, step * 64 : step * 64 + 64])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=step > 0)
        Tx.cta.copy(C[i * 128 : i * 128 + 128, :], acc)
    return gemm
"""


@T.prim_func
def by_hand(A: T.Buffer((128,), "float32")):
    T.device_entry()
    T.cta_id([1])
    thread = T.thread_id([128])
    A[thread] = 1.0


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("diagram") / "kernels.py"
    path.write_text(PROGRAM)
    return path


def read(program, arch, k=512):
    from tvm.tirx import PrimFunc

    from warploom.command_line import load_object

    func, _ = load_object(f"{program}:gemm", (PrimFunc,), (k,))
    return read_kernel(func, arch, compiled=False)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_the_parts_of_a_gemm(program, arch):
    parts = read(program, arch)
    names = [role.name for role in parts.roles]
    assert names == ["load", "compute"] if arch == "sm_90a" else ["load", "multiply", "compute"]
    assert parts.grid == ("2",) and parts.threads == 384 and parts.cluster == 1
    multiplies = names[1]
    rings = {one.name.rpartition("_")[2]: one for one in parts.barriers if one.count == 3}
    assert rings["full"].suppliers == ("load",) and rings["full"].waiters == (multiplies,)
    assert rings["empty"].suppliers == (multiplies,) and rings["empty"].waiters == ("load",)
    producer = next(role for role in parts.roles if role.name == "load")
    assert [step.kind for step in producer.steps] == ["loop", "wait", "signal", "load", "load"]
    assert "8 iterations, 3 stages" in producer.steps[0].text
    assert [role.registers for role in parts.roles if role.name == "compute"] > [producer.registers]
    assert (parts.tensor_memory > 0) == (arch == "sm_100a")


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_the_map_of_shared_memory_has_no_overlap(program, arch):
    parts = read(program, arch)
    stages = [one for one in parts.shared if one.name in ("A_s", "B_s")]
    assert [one.size for one in stages] == [3 * 128 * 64 * 2] * 2
    for first, second in zip(parts.shared, parts.shared[1:], strict=False):
        assert first.offset + first.size <= second.offset
    last = parts.shared[-1]
    assert last.offset + last.size <= parts.shared_bytes <= parts.shared_limit


def test_everything_is_drawn_within_the_picture(program):
    parts = read(program, "sm_100a")
    picture = parts.picture()
    assert all(one.x >= 0 and one.x + one.width <= picture.width for one in picture.of(Rect))
    assert all(0 <= one.y <= picture.height for one in picture.words)
    texts = " ".join(one.text for one in picture.words)
    for name in [*(role.name for role in parts.roles), *(one.name for one in parts.barriers),
                 *(one.name for one in parts.shared)]:  # fmt: skip
        assert name in texts
    arrows = [line for line in picture.lines if line.arrow]
    assert len(arrows) == len(parts.barriers)
    assert parts._repr_html_() == svg(picture)


def test_steps_that_repeat_are_one(program):
    parts = read(program, "sm_90a")
    compute = parts.roles[-1].steps
    assert compute[0] == Step("loop", compute[0].text, 0)
    assert all(a != b for a, b in itertools.pairwise(compute))
    assert steps_of(()) == ()


def test_a_kernel_by_hand_has_no_roles():
    parts = read_kernel(by_hand, compiled=False)
    assert parts.roles == () and parts.threads == 128
    assert "orchestrated" in str(parts)
    assert any("orchestrated" in one.text for one in parts.picture().words)


@pytest.mark.in_turn(2)
def test_the_command(program, tmp_path, capsys):
    place, picture = f"{program}:gemm", tmp_path / "gemm.svg"
    assert cli.main(["inspect", "program", place, "256", "--svg", str(picture), "--decisions"]) == 0
    printed = capsys.readouterr().out
    assert "registers a thread at launch, none spilled" in printed and "ring of A_s, B_s" in printed
    assert ElementTree.parse(picture).getroot() is not None
    assert cli.main(["inspect", "program", place, "256", "--json", "--no-compile"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["roles"][0]["name"] == "load" and found["registers"] is None
    assert cli.main(["inspect", "program", place, "256", "--svg", str(tmp_path / "x.pdf")]) == 2
    assert ".svg or .png" in capsys.readouterr().err
