"""The ladder's benchmark: steps compiled and run on the emulator, timed by the host's clock."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tvm

from tests.bench.on_host import TORCH, on_host
from tests.shared.paths import ROOT
from warploom.errors import WarploomError
from warploom_bench import compete, ladder
from warploom_bench.check import deviation
from warploom_bench.operands import Operands
from warploom_bench.report import EXIT_RIGHT, EXIT_WRONG

STEPS = ROOT / "tutorials" / "ladder_hopper"
NAMES = [path.stem for path in sorted(STEPS.glob("v*.py"))]


class Array:
    """A float16 matrix on ``tvm.cuda(0)`` that kernels take through DLPack."""

    def __init__(self, values):
        self.tensor = tvm.runtime.tensor(values.astype("float16"), tvm.cuda(0))

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def numpy(self):
        return self.tensor.numpy().astype(np.float64)

    def fill_(self, value):
        self.tensor.copyfrom(np.full(self.tensor.shape, value, "float16"))


def make_operands(torch, shape, seed):
    rng = np.random.default_rng(seed)
    a, b = (Array(rng.standard_normal((rows, shape.k))) for rows in (shape.m, shape.n))
    return Operands(a, b, None, None, Array(np.full((shape.m, shape.n), np.nan)))


def check(torch, shape, operands):
    return deviation(operands.c.numpy().astype(float), operands.a.numpy() @ operands.b.numpy().T)


def cublas(operands):
    operands.c.tensor.copyfrom((operands.a.numpy() @ operands.b.numpy().T).astype("float16"))


@pytest.fixture
def host(monkeypatch):
    on_host(monkeypatch)
    monkeypatch.setattr(ladder, "import_torch", lambda: TORCH)
    monkeypatch.setattr(ladder, "torch_gemm", lambda torch, shape, sets: cublas)
    monkeypatch.setattr(ladder.ops, "make_operands", make_operands)
    monkeypatch.setattr(ladder.ops, "check", check)
    monkeypatch.setattr(ladder, "_FEW_SETS", 2)
    monkeypatch.setattr(compete, "host_cost", lambda launch, wait, launches: 1e-6)


def some_steps(folder: Path, *numbers: str) -> Path:
    folder.mkdir()
    for number in numbers:
        (source,) = STEPS.glob(f"v{number}_*.py")
        shutil.copy(source, folder)
    return folder


@pytest.mark.gpu
@pytest.mark.parametrize(
    "numbers", [("01", "04"), pytest.param(tuple(n[1:3] for n in NAMES), marks=pytest.mark.long)]
)
def test_steps_are_measured_and_written(host, tmp_path, capsys, numbers):
    folder = some_steps(tmp_path / "steps", *numbers)
    out = tmp_path / "out"
    arguments = [
        "--steps", str(folder), "--size", "256", "--rounds", "1", "--out", str(out)
    ]  # fmt: skip
    assert ladder.main(arguments) == EXIT_RIGHT
    data = json.loads((out / "ladder.json").read_text())
    assert [step["step"][1:3] for step in data["steps"]] == list(numbers)
    assert all(0 < step["error"] < 5e-4 and step["seconds"] > 0 for step in data["steps"])
    shown = (out / "ladder.md").read_text()
    assert ladder.table([ladder.Measured(**step) for step in data["steps"]]) in shown
    assert "of cuBLAS" in capsys.readouterr().out


def test_a_wrong_result_is_reported(host, monkeypatch, tmp_path):
    def product(path, shape):
        return lambda o: o.c.fill_(1)

    monkeypatch.setattr(ladder, "compile_step", product)
    folder = some_steps(tmp_path / "steps", "04")
    arguments = ["--steps", str(folder), "--size", "128", "--rounds", "1"]
    assert ladder.main(arguments) == EXIT_WRONG


def test_the_first_steps_compute_one_tile():
    shapes = [ladder.shape_of(name, 4096) for name in NAMES]
    assert [(s.m, s.n, s.k) for s in shapes[:3]] == [(128, 128, 64), (128, 128, 4096), (4096,) * 3]
    assert len(set(shapes[2:])) == 1 and len(NAMES) == 11


def results(seconds: float) -> dict:
    entry = {"m": 4096, "n": 4096, "k": 4096, "cublas_seconds": 180e-6}
    errors = {"error": 2e-4, "element_error": 1e-3, "allowed_error": 5e-4}
    steps = [
        {"step": name, "seconds": seconds, **errors, **entry}
        for name in NAMES
    ]
    facts = {"date": "2026-01-02 03:04:05", "command": "c", "gpu": {"name": "NVIDIA H200"}}
    return {"environment": facts, "steps": steps}


def test_results_are_pasted_in_the_place_of_earlier_ones(tmp_path):
    shutil.copytree(STEPS, tmp_path / "steps")
    before = {path.name: path.read_text() for path in STEPS.glob("v*.py")}
    for seconds, ratio in ((360e-6, "0.500"), (200e-6, "0.900")):
        (tmp_path / "ladder.json").write_text(json.dumps(results(seconds)))
        arguments = ["--steps", str(tmp_path / "steps"), "--paste", str(tmp_path / "ladder.json")]
        assert ladder.main(arguments) == 0
        for path in (tmp_path / "steps").glob("v*.py"):
            text = path.read_text()
            assert text.count("# **Measured** on an H200 (2026-01-02, `warploom bench") == 1
            assert f"# {ratio} of cuBLAS, for C[4096, 4096] and K = 4096.\n" in text
            compile(text, str(path), "exec")
            # Apart from the paragraph, nothing has changed.
            assert ladder._PARAGRAPH.sub("", text) == ladder._PARAGRAPH.sub("", before[path.name])


def test_bad_folders_and_steps_are_refused(tmp_path):
    with pytest.raises(WarploomError, match="has no steps of a ladder"):
        ladder.main(["--steps", str(tmp_path)])
    (tmp_path / "v01_one_tile.py").write_text("# no result\n")
    with pytest.raises(WarploomError, match="no cell that begins with '## Result'"):
        ladder.paste(results(1e-4), [tmp_path / "v01_one_tile.py"])
