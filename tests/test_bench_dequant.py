"""The benchmark of small weights from command line to files, with numpy in the place of the GPU."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import tvm

from bench_on_host import TORCH, Result, on_host
from warploom.bench import dequant
from warploom.bench.dequant import DequantShape, Operands, parse_changes
from warploom.bench.gemm import EXIT_RIGHT, EXIT_SLOW, EXIT_WRONG, exit_status
from warploom.errors import WarploomError
from warploom.programs import pack_weights

SHAPE = DequantShape("g", 3, 16, 128, target=1e-9)


def make_operands(torch, shape, order, seed):
    """Operands whose words are those of the weights; three sets."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((shape.m, shape.k))
    integers = rng.integers(-8, 8, (shape.n, shape.k))
    scale = rng.uniform(0.01, 0.1, (shape.k // shape.scale_group, shape.n))
    weights = integers * np.repeat(scale.T, shape.scale_group, axis=1)
    words = pack_weights(integers, shape.bits, order)
    c = np.full((shape.m, shape.n), np.nan).view(Result)
    return [Operands(x, words, scale, weights, c.copy()) for _ in range(3)]


def relative_error(o):
    exact = o.x @ o.weights.T
    return float(np.linalg.norm(o.c - exact) / np.linalg.norm(exact))


def product(o):
    np.matmul(o.x, o.weights.T, out=o.c)


def product_of_other_weights(o):
    np.matmul(o.x, -o.weights.T, out=o.c)


@pytest.fixture
def host(monkeypatch):
    """Records what is compiled: (order, changes)."""
    compiled = []

    def our_product(shape, order, changes=None):
        compiled.append((order, changes))
        return product

    torch = SimpleNamespace(
        **vars(TORCH), matmul=np.matmul,
        backends=SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace())),
    )  # fmt: skip
    on_host(monkeypatch, torch)
    monkeypatch.setattr(dequant, "import_torch", lambda: torch)
    monkeypatch.setattr(dequant, "our_product", our_product)
    monkeypatch.setattr(dequant, "make_operands", make_operands)
    monkeypatch.setattr(dequant, "relative_error", relative_error)
    return SimpleNamespace(torch=torch, compiled=compiled)


def test_right_wrong_and_slow_are_told_apart(monkeypatch, host):
    right = dequant.compare(host.torch, SHAPE, rounds=2)
    assert exit_status([right]) == EXIT_RIGHT
    assert [entry.name for entry in right.entries] == ["warploom", "cuBLAS, float16"]
    assert right.protocols == ("burst", "sustained")
    impossible = DequantShape("g", 3, 16, 128, target=1e9)
    slow = dequant.compare(host.torch, impossible, rounds=2, burst_only=True)
    assert exit_status([slow]) == EXIT_SLOW
    monkeypatch.setattr(dequant, "our_product", lambda *_: product_of_other_weights)
    assert exit_status([dequant.compare(host.torch, SHAPE, rounds=2)]) == EXIT_WRONG


def test_command_writes_both_files(host, tmp_path, capsys):
    arguments = ["--m", "2", "--m", "5", "--layer", "16x128", "--order", "natural", "--rounds", "2"]
    arguments += ["--variant", "tile=16x64x128,stages=2", "--burst-only", "--out", str(tmp_path)]
    assert dequant.main(arguments) == EXIT_RIGHT
    content = json.loads((tmp_path / "dequant.json").read_text())
    shapes = [c["shape"] for c in content["comparisons"]]
    assert [(s["m"], s["n"], s["k"], s["group"]) for s in shapes] == [
        (2, 16, 128, "M = 2"), (5, 16, 128, "M = 5")
    ]  # fmt: skip
    variant = {"tile": (16, 64, 128), "stages": 2}
    assert host.compiled == [("natural", None), ("natural", variant)] * 2
    assert (tmp_path / "dequant.md").read_text() in capsys.readouterr().out


@pytest.mark.gpu
def test_our_product_is_that_of_the_operands(rng):
    shape = DequantShape("g", 5, 136, 512)
    integers = rng.integers(-8, 8, (shape.n, shape.k))
    scale = rng.uniform(0.01, 0.1, (shape.k // shape.scale_group, shape.n)).astype(np.float16)
    x = rng.standard_normal((shape.m, shape.k)).astype(np.float16)
    weights = (integers * np.repeat(scale.T, shape.scale_group, axis=1)).astype(np.float16)
    c = np.full((shape.m, shape.n), np.nan, np.float16)
    arrays = (x, pack_weights(integers), scale, weights, c)
    tensors = [tvm.runtime.tensor(array, tvm.cuda(0)) for array in arrays]
    for changes in (None, {"tile": (16, 64, 128), "stages": 2}):
        dequant.our_product(shape, "fragments", changes)(Operands(*tensors))
        got = Operands(x, None, None, weights.astype(float), tensors[-1].numpy().astype(float))
        assert relative_error(got) < dequant.RELATIVE_ERROR["float16"]


def test_shapes_without_options_are_layers_and_one_has_a_target():
    options = SimpleNamespace(m=None, layer=None, bits=4, group=128, dtype="float16")
    shapes = dequant.shapes(options)
    assert {(s.n, s.k) for s in shapes} == set(dequant.LAYERS)
    assert {s.m for s in shapes} == {1, 16, 32, 64}
    targets = [(s.m, s.n, s.k, s.target) for s in shapes if s.target is not None]
    assert targets == [(16, 8192, 8192, 1.5)]
    assert {s.weight_bytes for s in shapes if s.n == s.k == 4096} == {2**23 + 2**18}


def test_changes_are_arguments_of_the_program():
    text = "tile=16x64x256,stages=6,stream_k=true,persistent=false,exchange=cluster"
    expected = {
        "tile": (16, 64, 256), "stages": 6, "stream_k": True, "persistent": False,
        "exchange": "cluster",
    }  # fmt: skip
    assert parse_changes(text) == expected


@pytest.mark.parametrize("text", ["", "stages", "stages=x", "tile=16x", "stages=-1", "=4", "a=1,"])
def test_impossible_changes_are_refused(text):
    with pytest.raises(WarploomError, match="changes nothing; write NAME=INTEGER"):
        parse_changes(text)
