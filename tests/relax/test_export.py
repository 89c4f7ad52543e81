"""Compiled models in other processes and in CUDA graphs."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.frontend import nn

import warploom
from tests.shared import relax_models as models
from tests.shared.sampling import sampled
from warploom import emulator
from warploom.runtime.emulator_libraries import find_libraries
from warploom_bench.decoder import DecoderConfig, decoder_module

_TARGET = warploom.cuda_target("h200")
_CONFIG = DecoderConfig(**models.SMALL)

#: TVM's wheel loads none of its other libraries in this mode; a program does, as TVM would.
_RUNTIME_ONLY = """
import sys
from pathlib import Path

import numpy as np
import tvm
from tvm.base import _LOADED_LIBS
from tvm.runtime.vm import VirtualMachine
from tvm_ffi.libinfo import load_lib_ctypes

folder = Path(_LOADED_LIBS["tvm_runtime"]._name).resolve().parent
for name in ("tvm_runtime_cuda", "tvm_runtime_extra"):
    load_lib_ctypes("tvm", name, "RTLD_LOCAL", extra_lib_paths=[folder])
assert tvm._RUNTIME_ONLY and set(_LOADED_LIBS) == {"tvm_runtime"}
assert not any(name.startswith(("warploom", "tvm.relax")) for name in sys.modules)
device = tvm.cuda(0)
machine = VirtualMachine(tvm.runtime.load_module(LIBRARY), device)
arrays = np.load(ARRAYS)
inputs = [tvm.runtime.tensor(arrays[name], device) for name in arrays.files]
np.save(RESULT, machine["forward"](*inputs).numpy())
"""


class _Layer(nn.Module):
    def __init__(self) -> None:
        self.linear = nn.Linear(_CONFIG.hidden, _CONFIG.hidden, bias=False)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return nn.op.relu(self.linear(x)) + x


def _layer(rng: np.random.Generator) -> tuple:
    """A GEMM with any number of rows, its parameters, and what it computes."""
    size, model = _CONFIG.hidden, _Layer()
    model.to("float16")
    w = (rng.standard_normal((size, size)) * size**-0.5).astype(np.float16)
    module = models.exported(model, ["m", size], "float16")
    return module, {"w": w}, lambda x: np.maximum(x.astype(float) @ w.astype(float).T, 0) + x


def _decoder(rng: np.random.Generator) -> tuple:
    module, shapes = decoder_module(_CONFIG)
    parameters = models.decoder_parameters(rng, shapes)
    return module, parameters, lambda x: models.decoder(_CONFIG, x, parameters)


@pytest.mark.gpu
@pytest.mark.skipif(shutil.which("g++") is None, reason="export_library links with g++")
@pytest.mark.parametrize("model", sampled([_layer, _decoder], 2))
def test_a_process_with_tvms_runtime_alone_runs_a_model(
    model, run_python, tmp_path: Path, rng
) -> None:
    module, parameters, expected = model(rng)
    x = rng.standard_normal((20, _CONFIG.hidden)).astype(np.float16)
    places = {"LIBRARY": "model.so", "ARRAYS": "arrays.npz", "RESULT": "result.npy"}
    places = {name: str(tmp_path / file) for name, file in places.items()}
    relax.build(module, _TARGET).export_library(places["LIBRARY"])
    np.savez(places["ARRAYS"], x, *parameters.values())
    code = "".join(f"{name} = {place!r}\n" for name, place in places.items()) + _RUNTIME_ONLY
    emulated = " ".join(map(str, find_libraries())) if emulator.is_enabled() else None
    result = run_python(
        code, TVM_USE_RUNTIME_LIB="1", TVM_DEVICE_BACKEND_AUTOLOAD="0", LD_PRELOAD=emulated
    )
    assert result.returncode == 0, result.stderr[-3000:]
    wanted = expected(x)
    error = np.abs(np.load(places["RESULT"]) - wanted).max()
    assert error <= 4e-3 * np.abs(wanted).max()


@pytest.mark.in_turn(3)
@pytest.mark.gpu
def test_cuda_graphs_hold_our_kernels(rng: np.random.Generator) -> None:
    module, shapes = decoder_module(_CONFIG, rows=8)
    with tvm.transform.PassContext(config={"relax.backend.use_cuda_graph": True}):
        executable = relax.build(module, _TARGET)
    functions = executable.as_text().split("\n@")
    captured = "".join(one for one in functions if one.startswith("forward_cuda_graph_capture"))
    for name in ("attention", "fused_matmul", "heads", "rms_norm"):
        assert f"call  {name} " in captured
    device = tvm.cuda(0)
    machine = relax.VirtualMachine(executable, device)
    parameters = models.decoder_parameters(rng, shapes)
    weights = [tvm.runtime.tensor(one, device) for one in parameters.values()]
    for _ in range(3):  # the first run captures
        x = rng.standard_normal((8, _CONFIG.hidden)).astype(np.float16)
        found = machine["forward"](tvm.runtime.tensor(x, device), *weights).numpy()
        wanted = models.decoder(_CONFIG, x, parameters)
        assert np.abs(found - wanted).max() <= 4e-3 * np.abs(wanted).max()
