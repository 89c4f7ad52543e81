"""Functions whose kernels cannot be built go back to TVM: with a warning, and the same results."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx
from tvm.relax.frontend import nn
from tvm.s_tir import Schedule

import warploom
from tests.shared import gemm_functions
from warploom import fallback, schedule
from warploom.errors import Decline, StockScheduleWarning, WarploomWarning
from warploom.gemm.annotations import has_decisions
from warploom.runtime.modules import cuda_modules

_TARGET = warploom.cuda_target("h200")


class _Model(nn.Module):
    """A matmul, an attention of two heads, and a softmax: one function of each kind."""

    def __init__(self) -> None:
        self.up = nn.Linear(64, 128, bias=False)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        h = nn.op.reshape(nn.op.silu(self.up(x)), (1, 16, 2, 64))
        mixed = nn.op.scaled_dot_product_attention(h, h, h)
        return nn.op.softmax(nn.op.reshape(mixed, (16, 128)), -1)


def _model() -> tvm.IRModule:
    model = _Model()
    model.to("float16")
    return model.export_tvm({"forward": {"x": nn.spec.Tensor([16, 64], "float16")}})[0]


def _expected(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    h = x.astype(np.float64) @ w.astype(np.float64).T
    h = (h / (1 + np.exp(-h))).reshape(16, 2, 64).transpose(1, 0, 2)
    scores = np.exp(h @ h.transpose(0, 2, 1) / 8)
    mixed = scores / scores.sum(2, keepdims=True) @ h
    y = np.exp(mixed.transpose(1, 0, 2).reshape(16, 128))
    return y / y.sum(1, keepdims=True)


def _kernels(executable: Any) -> dict[str, str]:
    """CUDA source of the kernels by name."""
    sources = (module.inspect_source() for module in cuda_modules(executable.mod))
    parts = [part for text in sources for part in text.split('extern "C" __global__')[1:]]
    return {one.split("_kernel", 1)[0].split()[-1]: one for one in parts}


def _build_and_run(rng: np.random.Generator) -> dict[str, str]:
    executable = relax.build(_model(), _TARGET)
    x, w = (rng.standard_normal(shape).astype(np.float16) for shape in ((16, 64), (128, 64)))
    w *= np.float16(0.3)
    machine = relax.VirtualMachine(executable, tvm.cuda(0))
    found = machine["forward"](*(tvm.runtime.tensor(one, tvm.cuda(0)) for one in (x, w))).numpy()
    wanted = _expected(x, w)
    assert np.abs(found - wanted).max() <= 0.02 * wanted.max()  # TVM sums in float16
    return _kernels(executable)


def _raises(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


#: What no compiler accepts: TVM's passes refuse the first statement, NVRTC the second.
_BAD_CODE = {
    "TVM": lambda: tirx.Evaluate(tirx.Var("nobody_defines_it", "int32") + 1),
    "NVRTC": lambda: tirx.Evaluate(tirx.call_extern("int32", "there_is_no_such_function")),
}


def _bad_code(make: Callable[..., tirx.PrimFunc], by: str) -> Callable[..., tirx.PrimFunc]:
    """What makes a kernel that a later step refuses."""

    def made(*arguments: Any, **options: Any) -> tirx.PrimFunc:
        kernel = make(*arguments, **options)
        call = _BAD_CODE[by]()
        entry = kernel.body
        body = tirx.AttrStmt(
            entry.node, entry.attr_key, entry.value, tirx.SeqStmt([entry.body, call])
        )
        return tirx.PrimFunc(kernel.params, body, kernel.ret_type, kernel.attrs)

    return made


#: Where a build is broken, by what, and how the warning begins and ends.
FAULTS = {
    "recognition": ("warploom.relax.matmul_rule.recognise", _raises(IndexError("7")), "Error: 7"),
    "reading rows": ("warploom.relax.lower_rows.read_rows", _raises(KeyError("x")), "softmax"),
    "row kernel": ("warploom.relax.lower_rows.row_kernel", _raises(RuntimeError("no")), "softmax"),
    "a lowering": ("warploom.pipeline.lower_gemm", _raises(Decline("A does not fit.")),
                   "A does not fit."),
    "a pass": ("warploom.pipeline.lower_gemm", _raises(TypeError("no")), "fault of warploom"),
    "tile program": ("warploom.relax.attention.attention", _raises(ValueError("no")),
                     "attention is"),
    "fused operands": ("warploom.relax.fuse_operands.read_product", _raises(ValueError("no")),
                       "ValueError: no"),
    "fused products": ("warploom.relax.fuse_products.recognise", _raises(ValueError("no")),
                       "ValueError: no"),
}  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.some(3)
def test_whatever_fails_the_model_is_built(
    fault: str, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    place, broken, text = FAULTS[fault]
    monkeypatch.setattr(place, broken)
    with pytest.warns(StockScheduleWarning, match=text):
        _build_and_run(rng)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("kind", "by"),
    [
        ("softmax", "TVM"),
        ("attention", "TVM"),
        ("fused_fused_matmul_silu", "TVM"),
        pytest.param("softmax", "NVRTC", marks=pytest.mark.slow),
    ],
)
@pytest.mark.some(1)
def test_what_a_later_step_refuses_goes_back_alone(
    kind: str, by: str, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """A later step ends a build long after the function was taken."""
    before = _build_and_run(rng)
    if kind == "softmax":
        from warploom.relax import lower_rows as place

        monkeypatch.setattr(place, "row_kernel", _bad_code(place.row_kernel, by))
    else:
        from warploom import pipeline as place

        name = "lower" if kind == "attention" else "lower_gemm"
        monkeypatch.setattr(place, name, _bad_code(getattr(place, name), by))
    with pytest.warns(StockScheduleWarning) as issued:
        after = _build_and_run(rng)
    assert {str(one.message).split()[0] for one in issued} == {kind}
    assert all(one.filename == __file__ for one in issued)
    changed = [name for name in before if before[name] != after.get(name)]
    assert changed and all(name.startswith(kind) for name in changed)


def test_the_warning_can_be_made_an_error(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setattr("warploom.pipeline.lower_gemm", _raises(Decline("A does not fit.")))
    with warnings.catch_warnings():
        warnings.simplefilter("error", WarploomWarning)
        with pytest.raises(StockScheduleWarning, match="A does not fit"):
            _build_and_run(rng)


def test_errors_of_functions_that_are_not_ours_stay_what_they_are(
    recwarn: pytest.WarningsRecorder,
) -> None:
    """A module with a faulty function of the user beside one that was taken."""
    x = te.placeholder((8, 8), "float16", "x")
    y = te.compute((8, 8), lambda i, j: tirx.call_extern("float16", "there_is_none", x[i, j]), "y")
    sch = Schedule(gemm_functions.matmul(64).func)
    schedule.gemm_async(sch, "matmul", tile=(64, 64, 64), stages=2, consumers=1)
    with _TARGET:
        faulty = fallback.stock_schedule(te.create_prim_func([x, y]))
    functions = {"taken": sch.mod["main"], "faulty": faulty}
    mod = tvm.IRModule({k: f.with_attr("global_symbol", k) for k, f in functions.items()})
    with pytest.raises(Exception, match="there_is_none"):
        tvm.compile(mod, _TARGET)
    assert not [one for one in recwarn if issubclass(one.category, WarploomWarning)]


def test_originals_have_no_decisions_and_later_attributes() -> None:
    func = gemm_functions.matmul(64).func
    sch = Schedule(func)
    schedule.gemm_async(sch, "matmul", tile=(64, 64, 64), stages=2, consumers=1)
    taken = sch.mod["main"]
    assert has_decisions(taken) and not has_decisions(fallback.original_of(taken))
    kernel = fallback.with_original(taken.without_attr("s_tir"), func)
    named = kernel.with_attr("global_symbol", "later")
    assert str(fallback.original_of(named).attrs["global_symbol"]) == "later"
    assert fallback.original_of(func) is None and fallback.original_of(tvm.IRModule()) is None
