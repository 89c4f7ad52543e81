"""The benchmark of small weights from command line to files, with numpy in the place of the GPU."""

import importlib.util
import json
from types import SimpleNamespace

import numpy as np
import pytest
import tvm

from tests.bench.on_host import TORCH, HostKernels, Result, on_host
from warploom.errors import WarploomError
from warploom.programs import pack_weights
from warploom_bench import dequant
from warploom_bench.check import deviation
from warploom_bench.dequant import DequantShape, Operands, parse_changes
from warploom_bench.report import EXIT_RIGHT, EXIT_SLOW, EXIT_WRONG, exit_status

SHAPE = DequantShape("g", 3, 16, 128, target=1e-9)


def make_operands(torch, shape, order, seed):
    """Operands of which the words are the weights themselves; three sets."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((shape.m, shape.k))
    weights = rng.uniform(-0.1, 0.1, (shape.n, shape.k))
    c = np.full((shape.m, shape.n), np.nan).view(Result)
    return [Operands(x, weights, None, weights, c.copy()) for _ in range(3)]


def check(o):
    return deviation(np.asarray(o.c), o.x @ o.weights.T)


@pytest.fixture
def host(monkeypatch):
    """``compiled`` records (order, changes); ``sign`` is that of our results."""
    found = SimpleNamespace(compiled=[], sign=1)

    def program(shape, order, changes=""):
        found.compiled.append((order, changes))
        return lambda x, words, scale, c: np.matmul(found.sign * x, words.T, out=c)

    found.torch = SimpleNamespace(
        **vars(TORCH), matmul=np.matmul,
        backends=SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace())),
    )  # fmt: skip
    on_host(monkeypatch, found.torch)
    monkeypatch.setattr(dequant, "program", program)
    monkeypatch.setattr(dequant, "make_operands", make_operands)
    monkeypatch.setattr(dequant, "check", check)
    return found


def compare(host, shape, **options):
    return dequant.compare(
        host.torch, shape, HostKernels(), dequant.our_kernels(shape), rounds=2, **options
    )


def test_right_wrong_and_slow_are_told_apart(monkeypatch, host):
    right = compare(host, SHAPE)
    assert exit_status([right]) == EXIT_RIGHT
    assert [entry.name for entry in right.entries] == ["warploom", "cuBLAS, float16"]
    assert right.protocols == ("burst", "sustained")
    impossible = DequantShape("g", 3, 16, 128, target=1e9)
    slow = compare(host, impossible, burst_only=True)
    assert exit_status([slow]) == EXIT_SLOW
    host.sign = -1
    assert exit_status([compare(host, SHAPE)]) == EXIT_WRONG


def test_command_writes_both_files(host, tmp_path, capsys):
    arguments = ["--m", "2", "--m", "5", "--layer", "16x128", "--order", "natural", "--rounds", "2"]
    arguments += ["--variant", "tile=16x64x128,stages=2", "--burst-only", "--out", str(tmp_path)]
    assert dequant.main(arguments) == EXIT_RIGHT
    content = json.loads((tmp_path / "dequant.json").read_text())
    shapes = [c["shape"] for c in content["comparisons"]]
    assert [(s["m"], s["n"], s["k"], s["group"]) for s in shapes] == [
        (2, 16, 128, "M = 2"), (5, 16, 128, "M = 5")
    ]  # fmt: skip
    assert host.compiled == [("natural", ""), ("natural", "tile=16x64x128,stages=2")] * 2
    assert (tmp_path / "dequant.png").exists() == bool(importlib.util.find_spec("matplotlib"))
    assert (tmp_path / "dequant.md").read_text() in capsys.readouterr().out


@pytest.mark.gpu
def test_our_gemm_is_that_of_the_operands(rng):
    shape = DequantShape("g", 5, 136, 512)
    integers = rng.integers(-8, 8, (shape.n, shape.k))
    scale = rng.uniform(0.01, 0.1, (shape.k // shape.scale_group, shape.n)).astype(np.float16)
    x = rng.standard_normal((shape.m, shape.k)).astype(np.float16)
    weights = (integers * np.repeat(scale.T, shape.scale_group, axis=1)).astype(np.float16)
    c = np.full((shape.m, shape.n), np.nan, np.float16)
    arrays = (x, pack_weights(integers), scale, weights, c)
    tensors = [tvm.runtime.tensor(array, tvm.cuda(0)) for array in arrays]
    for changes in ("", "tile=16x64x128,stages=2"):
        tensors[-1].copyfrom(c)
        main = dequant.program(shape, "fragments", changes)["main"]
        main(*(tensors[number] for number in (0, 1, 2, 4)))
        got = Operands(x, None, None, weights.astype(float), tensors[-1].numpy().astype(float))
        assert check(got).is_within(dequant.RELATIVE_ERROR["float16"])


def test_shapes_without_options_are_layers_and_one_has_a_target():
    options = SimpleNamespace(m=None, layer=None, bits=4, group=128, dtype="float16")
    shapes = dequant.shapes(options)
    assert {(s.n, s.k) for s in shapes} == set(dequant.LAYERS)
    assert {s.m for s in shapes} == {1, 16, 32, 64}
    targets = [(s.m, s.n, s.k, s.target) for s in shapes if s.target is not None]
    assert targets == [(16, 8192, 8192, 1.5)]
    assert {s.weight_bytes for s in shapes if s.n == s.k == 4096} == {2**23 + 2**18}


def test_changes_are_arguments_of_the_program():
    text = "tile=16x64x256,stages=6,stream_k=true,persistent=false,reduce_through=cluster"
    expected = {
        "tile": (16, 64, 256), "stages": 6, "stream_k": True, "persistent": False,
        "reduce_through": "cluster",
    }  # fmt: skip
    assert parse_changes(text) == expected


@pytest.mark.parametrize("text", ["", "stages", "stages=x", "tile=16x", "stages=-1", "=4", "a=1,"])
def test_impossible_changes_are_refused(text):
    with pytest.raises(WarploomError, match="changes nothing; write NAME=INTEGER"):
        parse_changes(text)
