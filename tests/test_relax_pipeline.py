"""Relax models: products become tensor-core kernels, everything else stays as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.frontend import nn
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

import warploom
from warploom import language as wl
from warploom.relax import pipeline

_TARGET = warploom.cuda_target("h200")


class _Block(nn.Module):
    """A projection with activation, and one back with a residual."""

    def __init__(self) -> None:
        self.up = nn.Linear(64, 128, bias=True)
        self.down = nn.Linear(128, 64, bias=False)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.down(nn.op.gelu(self.up(x))) + x


def _model(rows: int | str) -> tvm.IRModule:
    block = _Block()
    block.to("float16")
    return block.export_tvm({"forward": {"x": nn.spec.Tensor([1, rows, 64], "float16")}})[0]


def _sources(executable: Any) -> str:
    def walk(module: Any) -> str:
        own = module.inspect_source() if module.kind == "cuda" else ""
        return own + "".join(map(walk, module.imports))

    return walk(executable.mod)


def _call(executable: Any, name: str, arrays: list[np.ndarray], device: Any) -> np.ndarray:
    machine = relax.VirtualMachine(executable, device)
    return machine[name](*(tvm.runtime.tensor(one, device) for one in arrays)).numpy()


def _arrays(rng: np.random.Generator, rows: int) -> list[np.ndarray]:
    shapes = (1, rows, 64), (128, 64), (128,), (64, 128)
    return [(0.3 * rng.standard_normal(shape)).astype(np.float16) for shape in shapes]


def _expected(arrays: list[np.ndarray]) -> np.ndarray:
    from math import erf

    x, up, bias, down = (one.astype(np.float64) for one in arrays)
    h = x[0] @ up.T + bias
    h *= 0.5 + 0.5 * np.vectorize(erf)(h * 0.5**0.5)
    return h @ down.T + x[0]


@pytest.mark.parametrize("chosen", ["default", "warploom"])
@pytest.mark.parametrize("rows", [5, "m"])
def test_models_run(rows: int | str, chosen: str, rng: np.random.Generator) -> None:
    executable = relax.build(_model(rows), _TARGET, relax_pipeline=chosen)
    assert "wgmma" in _sources(executable)
    for count in (5,) if rows == 5 else (1, 20, 100):
        arrays = _arrays(rng, count)
        found = _call(executable, "forward", arrays, tvm.cuda(0))
        np.testing.assert_allclose(found[0], _expected(arrays), rtol=1e-2, atol=1e-2)


def test_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(pipeline.SWITCH, "0")
    assert "wgmma" not in _sources(relax.build(_model(5), _TARGET))


def test_other_targets_stay_as_they_are(rng: np.random.Generator) -> None:
    arrays = _arrays(rng, 3)
    found = _call(relax.build(_model(3), "llvm"), "forward", arrays, tvm.cpu())
    np.testing.assert_allclose(found[0], _expected(arrays), rtol=3e-2, atol=3e-2)


@I.ir_module
class _Calls:
    """A tile program that Relax calls, beside an operator that it fuses itself."""

    @T.prim_func(private=True)
    def double(A: T.Buffer((64, 64), "float16"), B: T.Buffer((64, 64), "float16"),
               C: T.Buffer((64, 64), "float32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((64, 32), "float16", scope="shared")
        B_s = T.alloc_buffer((64, 32), "float16", scope="shared")
        acc = T.alloc_buffer((64, 64), "float32", scope="accumulator")
        for k in wl.pipelined(2, 2):
            Tx.cta.copy_async(A_s, A[0:64, k * 32 : k * 32 + 32])
            Tx.cta.copy_async(B_s, B[0:64, k * 32 : k * 32 + 32])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
        Tx.cta.copy(C, acc)

    @R.function
    def main(x: R.Tensor((64, 64), "float16"), w: R.Tensor((64, 64), "float16")):
        cls = _Calls
        with R.dataflow():
            y = R.call_tir(cls.double, (x, w), out_ty=R.Tensor((64, 64), "float32"))
            z = R.add(y, y)
            R.output(z)
        return z


def test_tile_programs_are_called(rng: np.random.Generator) -> None:
    x, w = (rng.standard_normal((64, 64)).astype(np.float16) for _ in range(2))
    found = _call(relax.build(_Calls, _TARGET), "main", [x, w], tvm.cuda(0))
    wanted = 2 * x.astype(np.float64) @ w.astype(np.float64).T
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)
