"""Weights that nothing writes while a model runs are marked, and only those."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, te, tirx
from tvm.ir import Call, IRModule
from tvm.relax.frontend import nn
from tvm.s_tir import Schedule
from tvm.script import relax as R

import warploom
from tests.shared.packed_weights import Packed
from tests.shared.relax_models import dequantise
from warploom import emulator
from warploom.decide import Config
from warploom.gemm import recognise
from warploom.gemm.annotations import annotate
from warploom.gemm.gemv import gemv_kernel
from warploom.gemm.gemv.kernel import CONSTANT
from warploom.lower.emit.next_kernel import wait_for_last
from warploom.relax import matmul_rule
from warploom.relax.constant_weights import MarkConstantWeights
from warploom.relax.lower_rows import LowerRows
from warploom_bench.decoder import QuantisedLinear

M, N, K = 4, 64, 512
#: Columns of the layers of a model.
WIDE = 128
CASE = Packed(M, N, K)
CONFIG = Config(8, 16, 128, 2, consumers=1, swap_ab=True, persistent=False, specialise=False,
                gemv=True)  # fmt: skip
Body = Callable[[relax.BlockBuilder, Any, Any, Any, Any], Any]


def plus_one(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *at: x[at] + tirx.const(1, x.dtype), "plus_one")


def model(body: Body) -> IRModule:
    """A function of x and of a tuple of words and scales, behind the pass."""
    func = CASE.function().func
    sch = Schedule(func)
    annotate(sch, sch.get_sblock(recognise(func).anchor), CONFIG.values())
    bb = relax.BlockBuilder()
    gemv = bb.add_func(sch.mod["main"].without_attr("global_symbol"), "gemv")
    x = relax.Var("x", R.Tensor((M, K), "float16"))
    words, scales = R.Tensor((N, K // 8), "uint32"), R.Tensor((N, K // 32), "float16")
    params = relax.Var("params", R.Tuple(words, scales))
    with bb.function("main", [x, params]):
        w, s = bb.emit(relax.TupleGetItem(params, 0)), bb.emit(relax.TupleGetItem(params, 1))
        bb.emit_func_output(body(bb, gemv, x, w, s))
    return MarkConstantWeights()(LowerRows()(bb.get()))


def product(bb: relax.BlockBuilder, gemv: Any, x: Any, w: Any, s: Any) -> Any:
    return bb.emit(relax.call_tir(gemv, [x, w, s], R.Tensor((M, N), "float16")))


def marked(mod: IRModule) -> list[int]:
    return [int(one) for one in (mod["gemv"].attrs or {}).get(CONSTANT, ())]


def calls_of(mod: IRModule) -> list[str]:
    found = []
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Call) and value.op == tvm.ir.Op.get("relax.call_tir"):
                found.append(value.args[0].name_hint)
    return found


def test_parameters_are_constant_behind_a_kernel_that_waits_as_a_whole() -> None:
    def body(bb: relax.BlockBuilder, gemv: Any, x: Any, w: Any, s: Any) -> Any:
        for _ in range(2):
            x = bb.emit_te(plus_one, x)
        return product(bb, gemv, x, w, s)

    mod = model(body)
    assert marked(mod) == [1, 2]
    first, second, _ = calls_of(mod)
    assert first != second
    assert (waits(mod[first]), waits(mod[second])) == (0, 1)


def waits(func: Any) -> int:
    """How often a kernel waits for the one before it."""
    count = 0

    def visit(call: Call) -> None:
        nonlocal count
        count += tvm_ffi.structural_equal(call, wait_for_last().value)

    tvm_ffi.structural_walk(func.body, (Call, visit))
    return count


def of_first_gemv(bb: relax.BlockBuilder, gemv: Any, x: Any, w: Any, s: Any) -> Any:
    return product(bb, gemv, x, w, s)


def of_computed_scales(bb: relax.BlockBuilder, gemv: Any, x: Any, w: Any, s: Any) -> Any:
    return product(bb, gemv, bb.emit_te(plus_one, x), w, bb.emit_te(plus_one, s))


def of_written_words(bb: relax.BlockBuilder, gemv: Any, x: Any, w: Any, s: Any) -> Any:
    x = bb.emit_te(plus_one, x)
    bb.emit(relax.call_pure_packed("writes", w, ty_args=[R.Tensor((N, K // 8), "uint32")]))
    return product(bb, gemv, x, w, s)


def of_two_calls(bb: relax.BlockBuilder, gemv: Any, x: Any, w: Any, s: Any) -> Any:
    y = product(bb, gemv, bb.emit_te(plus_one, x), w, s)
    other = product(bb, gemv, x, w, bb.emit_te(plus_one, s))
    return bb.emit(relax.Tuple([y, other]))


@pytest.mark.parametrize(
    ("body", "wanted"),
    [(of_first_gemv, []), (of_computed_scales, [1]), (of_written_words, []), (of_two_calls, [1])],
)
def test_what_may_be_written_is_not(body: Body, wanted: list[int]) -> None:
    assert marked(model(body)) == wanted


def test_constant_weights_are_loaded_before_the_wait(rng: np.random.Generator) -> None:
    function = CASE.function()
    early = recognise(function.func.with_attr(CONSTANT, [1, 2]))
    for gemm, is_early in (
        (early, True), (recognise(function.func), False),
        (recognise(function.func.with_attr(CONSTANT, [1])), False),
    ):
        kernel = gemv_kernel(gemm, CONFIG).with_attr("global_symbol", "main")
        lines = str(kernel).splitlines()
        wait = next(i for i, line in enumerate(lines) if '"wait"' in line)
        reads = {name: next(i for i, line in enumerate(lines) if f"address_of({name}[" in line)
                 for name in ("W", "S", "X")}  # fmt: skip
        assert (reads["W"] < wait, reads["S"] < wait, reads["X"] < wait) == (
            is_early, is_early, False
        )
    arguments = function.arguments(rng)
    kernel = gemv_kernel(early, CONFIG).with_attr("global_symbol", "main")
    function.assert_right(emulator.run(kernel, arguments).outputs[-1:], arguments)


class Layers(nn.Module):
    """A row function, a quantised linear layer, and another one with a residual."""

    def __init__(self) -> None:
        self.up = QuantisedLinear(K, WIDE, "float16")
        self.down = QuantisedLinear(WIDE, WIDE, "float16")

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        y = self.up(x * 2.0)
        return self.down(y) + y


@pytest.mark.gpu
def test_a_model_is_right_with_few_rows_and_with_more(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    more = Config(16, 64, 64, 2, consumers=1, swap_ab=True)
    monkeypatch.setattr(matmul_rule, "decisions_of", lambda *_: [(8, CONFIG), (None, more)])
    mod = Layers().export_tvm({"forward": {"x": nn.spec.Tensor([1, "m", K], "float16")}})[0]
    shapes = [[int(one) for one in param.ty.shape] for param in mod["forward"].params[1:]]
    words = [rng.integers(0, 2**32, shape, np.uint32) for shape in shapes[::2]]
    scales = [rng.uniform(0.1, 0.3, shape) * shape[1] ** -0.5 for shape in shapes[1::2]]
    scales = [one.astype(np.float16) for one in scales]
    machine = relax.VirtualMachine(relax.build(mod, warploom.cuda_target("h200")), tvm.cuda(0))
    for rows in (3, 19):
        x = rng.standard_normal((1, rows, K)).astype(np.float16)
        arrays = [x, words[0], scales[0], words[1], scales[1]]
        tensors = [tvm.runtime.tensor(one, tvm.cuda(0)) for one in arrays]
        found = machine["forward"](*tensors).numpy().astype(np.float64)
        wide = 2 * x.astype(np.float64) @ dequantise(words[0], scales[0]).T
        wanted = wide @ dequantise(words[1], scales[1]).T + wide
        assert np.abs(found - wanted).max() < 4e-3 * np.abs(wanted).max()
