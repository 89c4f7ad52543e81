"""Relax models: GEMMs become tensor-core kernels, everything else stays as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx, topi
from tvm.relax.backend import cuda
from tvm.relax.frontend import nn
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

import warploom
from tests.shared import relax_models as models
from tests.shared.reference import assert_rounded
from warploom import cli
from warploom import language as wl
from warploom.errors import StockScheduleWarning
from warploom.relax import pipeline
from warploom.relax.inspect import inspect

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
@pytest.mark.some(1)
def test_models_run(rows: int | str, chosen: str, rng: np.random.Generator) -> None:
    executable = relax.build(_model(rows), _TARGET, relax_pipeline=chosen)
    assert "wgmma" in _sources(executable)
    for count in (5,) if rows == 5 else (1, 20, 100):
        arrays = _arrays(rng, count)
        found = _call(executable, "forward", arrays, tvm.cuda(0))
        # bias, gelu, the first GEMM and the residual: at most as large as the result.
        assert_rounded(found[0], _expected(arrays), roundings=4)


def test_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(pipeline.SWITCH, "0")
    assert "wgmma" not in _sources(relax.build(_model(5), _TARGET))


def test_other_targets_stay_as_they_are(rng: np.random.Generator) -> None:
    arrays = _arrays(rng, 3)
    found = _call(relax.build(_model(3), "llvm"), "forward", arrays, tvm.cpu())
    np.testing.assert_allclose(found[0], _expected(arrays), rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize(("arch", "more"), [("sm_80", 1), ("sm_90", 1), ("sm_90a", 35)])
def test_passes_of_other_gpus_stay_as_they_are(arch: str, more: int) -> None:
    target = tvm.target.Target({"kind": "cuda", "arch": arch})
    names = [one.info.name for one in cuda.legalize_passes(target)]
    stock = [one.info.name for one in cuda.legalize_passes.stock(target)]
    assert len(names) == len(stock) + more
    assert names[-1] == stock[-1] and "warploom.CallTilePrograms" in names
    for mine in ("warploom.FuseOperands", "warploom.FuseProducts"):
        assert (mine in names) == (arch == "sm_90a")


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
    assert_rounded(found, wanted)


class _Quantised(nn.Module):
    """A projection with weights of 4 bits in words, and a scale for each 32 of them."""

    def __init__(self, k: int, n: int) -> None:
        self.k, self.n = k, n
        self.words = nn.Parameter((n, k // 8), "uint32")
        self.scales = nn.Parameter((n, k // 32), "float16")

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        def decode(words: te.Tensor, scales: te.Tensor) -> te.Tensor:
            def weight(j: Any, r: Any) -> Any:
                field = words[j, r // 8] >> (r % 8 * 4).astype("uint32") & tirx.const(15, "uint32")
                centred = field.astype("float16") - tirx.const(7, "float16")
                return centred * scales[j, r // 32]

            return te.compute((self.n, self.k), weight, "decode")

        weights = nn.op.tensor_expr_op(decode, "decode", [self.words, self.scales])
        return nn.op.matmul(x, nn.op.permute_dims(weights))


class _QuantisedBlock(nn.Module):
    def __init__(self) -> None:
        self.up, self.down = _Quantised(256, 128), _Quantised(128, 256)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.down(nn.op.silu(self.up(x))) + x


def _weights(words: np.ndarray, scales: np.ndarray) -> np.ndarray:
    fields = (words[:, :, None] >> np.arange(0, 32, 4).astype(np.uint32) & 15).astype(np.float64)
    return (fields.reshape(len(words), -1) - 7) * np.repeat(scales.astype(np.float64), 32, 1)


@pytest.mark.in_turn(3)
def test_quantised_weights_are_dequantised_in_the_gemm(rng: np.random.Generator) -> None:
    spec = {"forward": {"x": nn.spec.Tensor([1, "m", 256], "float16")}}
    executable = relax.build(_QuantisedBlock().export_tvm(spec)[0], _TARGET)
    assert "wgmma" in _sources(executable)
    assert "decode_kernel" not in _sources(executable)
    for rows in (1, 20):
        x = rng.standard_normal((1, rows, 256)).astype(np.float16)
        parts = [
            part
            for n, k in ((128, 256), (256, 128))
            for part in (
                rng.integers(0, 2**32, (n, k // 8), np.uint32),
                (0.02 * rng.standard_normal((n, k // 32))).astype(np.float16),
            )
        ]
        found = _call(executable, "forward", [x, *parts], tvm.cuda(0))
        h = x[0].astype(np.float64) @ _weights(*parts[:2]).T
        wanted = h / (1 + np.exp(-h)) @ _weights(*parts[2:]).T + x[0]
        assert_rounded(found[0], wanted, roundings=4)


def test_operands_that_others_use_too_stay_apart() -> None:
    class Twice(_QuantisedBlock):
        def forward(self, x: nn.Tensor) -> nn.Tensor:
            def double(one: te.Tensor) -> te.Tensor:
                return te.compute(one.shape, lambda *at: one[at] + one[at], "double")

            twice = nn.op.tensor_expr_op(double, "double", [x])
            return nn.op.matmul(twice, nn.op.permute_dims(twice, [0, 2, 1])) + 0 * self._sum(twice)

        def _sum(self, x: nn.Tensor) -> nn.Tensor:
            return nn.op.matmul(x, nn.op.permute_dims(x, [0, 2, 1]))

    spec = {"forward": {"x": nn.spec.Tensor([1, 64, 256], "float16")}}
    reports = inspect(Twice().export_tvm(spec)[0])
    assert all(not any(one.problem.computed) for one in reports if one.problem)


@pytest.mark.in_turn(3)
def test_reports() -> None:
    spec = {"forward": {"x": nn.spec.Tensor([1, "m", 256], "float16")}}
    reports = {one.name: one for one in inspect(_QuantisedBlock().export_tvm(spec)[0])}
    taken = [str(one) for one in reports.values() if one.problem]
    assert len(taken) == 2 and all("float16 from 4.5 bits" in one for one in taken)
    assert all("tile" in one and "stages" in one for one in taken)
    (called,) = inspect(_Calls)[:1]
    others = {one.name: one for one in inspect(_Calls)}
    assert "it is a tile program of the model" in str(others["double"])
    assert "row by row: vectors of 4 elements" in str(called)


def test_reports_say_why_nothing_is_taken() -> None:
    module = models.exported(_Reversed(), [48, 40], "float16")
    (report,) = inspect(module)
    assert report.rows is None and "nothing is summed" in report.reason
    assert "As rows: " in report.reason and "no vector in memory" in report.reason


class _Reversed(nn.Module):
    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return nn.op.tensor_expr_op(lambda x: topi.flip(x, 1), "reverse", [x])


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "model.json"
    file.write_text(tvm.ir.save_json(_model(5)), encoding="utf-8")
    assert cli.main(["inspect", "relax", str(file), "--configs"]) == 0
    assert "5 x 128 x 64 NT" in capsys.readouterr().out
    script = tmp_path / "model.py"
    script.write_text("model = 1\n", encoding="utf-8")
    assert cli.main(["inspect", "relax", f"{script}:model"]) == 2
    assert "model in" in capsys.readouterr().err


def _convolution(stride: int, size: int, groups: int = 1, filters: int = 24) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 8, 16, 32), "float16"))
    w = relax.Var("w", relax.TensorType((filters, size, size, 32 // groups), "float16"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            made = relax.op.nn.conv2d(
                x, w, strides=stride, padding=size // 2, groups=groups, data_layout="NHWC",
                kernel_layout="OHWI", out_dtype="float32",
            )  # fmt: skip
            result = builder.emit_output(relax.op.nn.relu(builder.emit(made)))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize(("size", "stride"), [(1, 1), (3, 1), (3, 2)])
def test_convolutions_are_gemms(size: int, stride: int, rng: np.random.Generator) -> None:
    mod = _convolution(stride, size)
    (report,) = (one for one in inspect(mod) if one.problem)
    assert (report.problem.m, report.problem.k) == (128 // stride**2, 32 * size * size)
    x = rng.standard_normal((1, 8, 16, 32)).astype(np.float16)
    w = rng.standard_normal((24, size, size, 32)).astype(np.float16)
    found = _call(relax.build(mod, _TARGET), "main", [x, w], tvm.cuda(0))
    edge = size // 2
    padded = np.pad(x.astype(np.float64), ((0, 0), (edge, edge), (edge, edge), (0, 0)))
    wanted = sum(
        padded[:, r : r + 8 : stride, s : s + 16 : stride] @ w[:, r, s].astype(np.float64).T
        for r in range(size)
        for s in range(size)
    )
    assert_rounded(found, np.maximum(wanted, 0))


def test_convolutions_of_groups_are_gemms_of_blocks() -> None:
    (report,) = (one for one in inspect(_convolution(1, 3, groups=8)) if one.problem)
    assert (report.problem.n, report.problem.k) == (24, 9 * 32)


def test_convolutions_of_odd_groups_stay_with_tvm(recwarn: pytest.WarningsRecorder) -> None:
    mod = _convolution(1, 3, groups=4, filters=20)
    assert any("as groups of a convolution do" in one.reason for one in inspect(mod))
    assert "wgmma" not in _sources(relax.build(mod, _TARGET))
    assert not [one for one in recwarn if issubclass(one.category, StockScheduleWarning)]
