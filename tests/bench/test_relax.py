"""The benchmark of a decoder block, with numpy in the place of the GPU and of PyTorch."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi

from tests.bench.on_host import TORCH, HostTimer, replace_run
from tests.shared import relax_models as models
from warploom.errors import WarploomError
from warploom_bench import decoder_blocks, relax_block
from warploom_bench.decoder import DecoderConfig, decoder_module
from warploom_bench.relax_block import COMPILED, EAGER, OURS, STOCK, STOCK_SM90
from warploom_bench.report import EXIT_RIGHT, EXIT_WRONG

CONFIG = DecoderConfig(**models.SMALL)


class _Tensor(np.ndarray):
    """An array with what the benchmark calls of PyTorch's."""

    def to(self, dtype: Any) -> _Tensor:
        return self.astype(dtype)

    def double(self) -> _Tensor:
        return self.astype(np.float64)

    def fill_(self, value: float) -> None:
        self.fill(value)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> SimpleNamespace:
    """Competitors compute in numpy; ``made`` says which were asked for, ``wrong`` which fail."""
    found = SimpleNamespace(made=[], wrong=(), broken=())
    torch = SimpleNamespace(
        **vars(TORCH),
        Generator=lambda device: SimpleNamespace(manual_seed=lambda seed: None),
        float16=np.float16,
        randn=lambda shape, device, generator: rng.standard_normal(shape).view(_Tensor),
        from_dlpack=lambda one: one,
    )

    def block(name: str) -> Any:
        def run(x: np.ndarray, parameters: Any) -> np.ndarray:
            if name in found.broken:
                raise RuntimeError("no compiler\nat all")
            exact = models.decoder(CONFIG, x, parameters).view(_Tensor)
            return exact * (1.01 if name in found.wrong else 1)

        return run

    def blocks(torch: Any, config: Any, names: list[str], kernels: Any) -> dict[str, Any]:
        found.made = list(names)
        return {name: block(name) for name in names}

    def parameters(*_: Any) -> dict[str, np.ndarray]:
        made = models.decoder_parameters(rng, decoder_module(CONFIG)[1])
        return {name: one.view(_Tensor) for name, one in made.items()}

    monkeypatch.setattr(relax_block, "DecoderConfig", lambda dtype=None, **_: CONFIG)
    monkeypatch.setattr(relax_block, "TorchTimer", HostTimer)
    replace_run(monkeypatch, torch)
    monkeypatch.setattr(relax_block, "blocks", blocks)
    monkeypatch.setattr(relax_block, "torch_block", lambda *_: block(""))
    monkeypatch.setattr(relax_block, "make_parameters", parameters)
    return found


def test_command_writes_both_files(host, tmp_path, capsys):
    arguments = ["--rows", "2", "--rows", "5", "--rounds", "2", "--without", EAGER]
    assert relax_block.main([*arguments, "--burst-only", "--out", str(tmp_path)]) == EXIT_RIGHT
    content = json.loads((tmp_path / "relax.json").read_text())
    assert [one["shape"]["rows"] for one in content["comparisons"]] == [2, 5]
    assert host.made == [OURS, COMPILED, STOCK, STOCK_SM90]
    assert (tmp_path / "relax.md").read_text() in capsys.readouterr().out


def test_graphs_are_what_is_timed(host, monkeypatch):
    captured = []

    def capture(torch: Any, launch: Any, sets: int, executions: int) -> Any:
        assert (sets, executions) == (1, 1)
        captured.append(launch)
        return lambda: launch(0)

    monkeypatch.setattr(relax_block, "capture", capture)
    assert relax_block.main(["--rows", "3", "--rounds", "1", "--burst-only"]) == EXIT_RIGHT
    assert not captured
    options = ["--rows", "3", "--rounds", "1", "--burst-only", "--graphs"]
    assert relax_block.main(options) == EXIT_RIGHT and len(captured) == len(host.made)


def test_weights_of_4_bits_are_unpacked_for_pytorch(rng):
    config = replace(CONFIG, quantised=True)
    found = models.decoder_parameters(rng, decoder_module(config)[1])
    words, scales = found["gate_up.words"].view(_Tensor), found["gate_up.scales"]
    torch = SimpleNamespace(
        arange=lambda *at, device, dtype: np.arange(*at, dtype=dtype), int32=np.int32
    )
    wanted = models.dequantise(found["gate_up.words"], scales)
    made = decoder_blocks._unpacked(torch, words, scales)
    assert made.dtype == np.float16
    np.testing.assert_allclose(made.astype(np.float64), wanted, rtol=2.0**-11)


def test_shapes_say_what_their_weights_are():
    shape = relax_block.BlockShape("g", 16, asdict(replace(CONFIG, quantised=True)))
    assert str(shape) == "16 float16, 4-bit weights"


@pytest.mark.parametrize(("wrong", "status"), [(OURS, EXIT_WRONG), (STOCK, EXIT_RIGHT)])
def test_wrong_results_are_found(host, wrong, status):
    # TVM alone sums in 16 bits, so it may be further off.
    host.wrong = (wrong,)
    assert relax_block.main(["--rows", "3", "--rounds", "1", "--burst-only"]) == status


def test_competitors_that_fail_are_left_out(host, capsys):
    host.broken = (COMPILED, STOCK)
    assert relax_block.main(["--rows", "3", "--rounds", "1", "--burst-only"]) == EXIT_RIGHT
    output = capsys.readouterr()
    assert f"{COMPILED} is left out: no compiler\n{STOCK} is left out: no compiler" in output.err
    assert EAGER in output.out and f"| {COMPILED}" not in output.out
    host.broken = (COMPILED, EAGER, STOCK, STOCK_SM90)
    for broken, reason in ((host.broken, "nothing to compare with"), ((OURS,), "no compiler")):
        host.broken = broken
        with pytest.raises(WarploomError, match="No shape of 1 could be measured"):
            relax_block.main(["--rows", "3", "--rounds", "1"])
        assert f"FAILED: {reason}" in capsys.readouterr().out.replace("There is ", "")


@pytest.mark.gpu
@pytest.mark.slow
def test_both_of_tvm_compute_the_block(rng, tmp_path):
    parameters = models.decoder_parameters(rng, decoder_module(CONFIG)[1])
    x = rng.standard_normal((7, CONFIG.hidden)).astype(np.float16)
    tensors = [tvm.runtime.tensor(one, tvm.cuda(0)) for one in (x, *parameters.values())]
    by_name = dict(zip(parameters, tensors[1:], strict=True))
    exact = models.decoder(CONFIG, x, parameters)
    for switch in (None, "0"):
        config = replace(CONFIG, fused_attention=switch is None)
        path = str(tmp_path / f"{switch}.so")
        decoder_blocks.relax_executable(config, switch).export_library(path)
        run = decoder_blocks.relax_block(config, tvm_ffi.load_module(path))
        found = run(tensors[0], by_name).numpy()
        assert np.abs(found - exact).max() <= 5e-3 * np.abs(exact).max()


def test_operations_are_those_of_layers_and_half_of_the_scores():
    shape = relax_block.BlockShape("g", 10, asdict(CONFIG))
    layers = 512 * 128 + 128 * 256 + 384 * 128 + 128 * 192
    assert shape.operations == 2 * 10 * layers + 4 * 10 * 10 * 4 * 64 // 2
