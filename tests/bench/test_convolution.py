"""The benchmark of convolutions, with numpy in the place of the GPU and of PyTorch."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tvm

from tests.bench.on_host import TORCH, Result, on_host
from tests.shared import relax_models as models
from tests.shared.reference import assert_rounded
from warploom_bench import convolution
from warploom_bench.convolution import Operands
from warploom_bench.convolution_shapes import ConvolutionShape, StageShape
from warploom_bench.report import EXIT_RIGHT, EXIT_WRONG
from warploom_bench.resnet import ResnetConfig


class _Tensor(Result):
    """An array with what the benchmark calls of PyTorch's."""

    def float(self) -> _Tensor:
        return self.astype(np.float64)

    def norm(self) -> float:
        return float(np.linalg.norm(self))

    def to(self, dtype: Any) -> _Tensor:
        return self.astype(dtype)

    def numel(self) -> int:
        return self.size

    def element_size(self) -> int:
        return self.itemsize

    def clone(self) -> _Tensor:
        return self.copy()


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> SimpleNamespace:
    """Competitors compute in numpy; those whose names are in ``wrong`` wrongly."""
    found = SimpleNamespace(wrong=set())

    def stage(config: ResnetConfig, name: str) -> Any:
        def run(o: Operands) -> None:
            made = models.resnet_stage(config, o.x, o.parameters)
            o.result = (made * (1.1 if name in found.wrong else 1)).view(_Tensor)

        return run

    def single(stride: int, padding: int, name: str) -> Any:
        def run(o: Operands) -> None:
            made = models.convolution(o.x, o.parameters["weight"], stride, padding)
            o.result = (made * (1.1 if name in found.wrong else 1)).view(_Tensor)

        return run

    torch = SimpleNamespace(
        **vars(TORCH),
        Generator=lambda device: SimpleNamespace(manual_seed=lambda seed: None),
        float16=np.float16,
        randn=lambda shape, device, generator: rng.standard_normal(shape).view(_Tensor),
        full=lambda shape, value, device, dtype: np.full(shape, value, dtype).view(_Tensor),
        backends=SimpleNamespace(cudnn=SimpleNamespace()),
    )
    on_host(monkeypatch, torch)
    monkeypatch.setattr(convolution, "ROTATING_BYTES", 1)
    monkeypatch.setattr(convolution, "our_stage", lambda _, config: stage(config, "ours"))
    monkeypatch.setattr(convolution, "library_stage", lambda _, config: stage(config, "library"))
    monkeypatch.setattr(
        convolution, "our_convolution", lambda s: single(s.stride, s.padding, "ours")
    )
    monkeypatch.setattr(
        convolution, "library_convolution", lambda _, s, p: single(s, p, "library")
    )
    return found


def test_command_writes_both_files(host, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(convolution, "LAYERS", ((6, 8, 16, 3, 2),))
    monkeypatch.setattr(convolution, "STAGES", ((4, 16, 8, 2, 2),))
    arguments = ["--images", "2", "--rounds", "2", "--burst-only", "--out", str(tmp_path)]
    assert convolution.main(arguments) == EXIT_RIGHT
    single, stage = json.loads((tmp_path / "convolution.json").read_text())["comparisons"]
    assert (single["shape"]["size"], stage["shape"]["sizes"]["blocks"]) == (6, 2)
    assert (tmp_path / "convolution.md").read_text() in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--layer", "5,8,8,1,1"], ["--stages-only"]])
def test_wrong_results_are_found(host, arguments, monkeypatch, capsys):
    monkeypatch.setattr(convolution, "STAGES", ((4, 16, 8, 1, 1),))
    host.wrong = {"ours"}
    arguments = ["--images", "1", "--rounds", "1", "--burst-only", *arguments]
    assert convolution.main(arguments) == EXIT_WRONG
    with pytest.raises(SystemExit):
        convolution.main(["--layer", "5,8"])
    assert "'5,8' is no SIZE,C,K,TAPS,STRIDE" in capsys.readouterr().err


def test_operations_are_those_of_the_layers() -> None:
    shape = ConvolutionShape("g", 32, 56, 128, 128, 3, 2)
    assert (shape.side, shape.operations) == (28, 2 * 32 * 28 * 28 * 128 * 9 * 128)
    config = ResnetConfig(blocks=1)
    assert config.operations == 2 * 32 * 56 * 56 * 64 * (64 + 9 * 64 + 256 + 256)
    assert StageShape("stages", {"blocks": 1}).config == config


@pytest.mark.gpu
@pytest.mark.parametrize(("taps", "stride"), [(3, 2), (1, 1)])
def test_our_convolution_is_that_of_the_operands(taps, stride, rng):
    shape = ConvolutionShape("g", 2, 7, 32, 24, taps, stride)
    x = rng.standard_normal((2, 7, 7, 32)).astype(np.float16)
    weight = rng.standard_normal((24, taps, taps, 32)).astype(np.float16)
    c = np.full((2, shape.side, shape.side, 24), np.nan, np.float16)
    x_t, w_t, c_t = (tvm.runtime.tensor(one, tvm.cuda(0)) for one in (x, weight, c))
    operands = Operands(x_t, {"weight": w_t}, c_t)
    convolution.our_convolution(shape)(operands)
    wanted = models.convolution(x, weight, stride, shape.padding)
    assert_rounded(operands.result.numpy(), wanted)
