"""Pipelines of one's own: ``with_warploom``, and the drop-in for ``dl.ApplyDefaultSchedule``."""

from __future__ import annotations

import copy
import doctest
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import transform as rt
from tvm.relax.backend import cuda
from tvm.relax.frontend import nn
from tvm.s_tir import dlight as dl
from tvm.target import Target

import warploom.dlight
from tests.emulator.options import options
from tests.shared import small_llama
from tests.shared.reference import assert_rounded
from warploom.errors import WarploomError
from warploom.gemm.annotations import config_of, has_decisions
from warploom.relax import insertion, with_warploom
from warploom.relax.passes import function_passes, operator_passes
from warploom.relax.tile_programs import is_tirx
from warploom.target import cuda_target

_TARGET = cuda_target("h200")
_RULES = (dl.gpu.Matmul, dl.gpu.GEMV, dl.gpu.Reduction, dl.gpu.GeneralReduction, dl.gpu.Fallback)
_ON_OPERATORS = [step.info.name for step in operator_passes()]
_ON_FUNCTIONS = [step.info.name for step in function_passes()]

Pass = tvm.transform.Pass


def _schedule() -> Pass:
    return dl.ApplyDefaultSchedule(*(rule() for rule in _RULES))


def _fuse() -> list[Pass]:
    return [
        rt.LegalizeOps(), rt.AnnotateTIROpPattern(), rt.FoldConstant(), rt.FuseOps(), rt.FuseTIR()
    ]  # fmt: skip


def _finish() -> list[Pass]:
    return [
        rt.RewriteDataflowReshape(), rt.ToNonDataflow(), rt.RemovePurityChecking(),
        rt.CallTIRRewrite(), rt.StaticPlanBlockMemory(), rt.RewriteCUDAGraph(),
        rt.LowerAllocTensor(), rt.KillAfterLastUse(), rt.LowerRuntimeBuiltin(),
        rt.ComputePrimValue(), rt.VMShapeLower(), rt.AttachGlobalSymbol(),
    ]  # fmt: skip


@tvm.transform.module_pass(opt_level=0, name="LowBatchGemvSpecialize")
def _low_batch(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
    """Stands for a pass of MLC-LLM that schedules matmuls of a few rows by itself."""
    return dl.ApplyDefaultSchedule(dl.gpu.LowBatchGEMV(4))(mod)


def _progress(text: str) -> Pass:
    @tvm.transform.module_pass(opt_level=0, name="LogProgress")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return mod.with_attr("progress", text)

    return run


def _as_mlc_llm() -> list[Pass]:
    """The passes of MLC-LLM's public pipeline that TVM has, in its order."""
    return [
        _progress("graph-level optimisations"),
        rt.FuseTransposeMatmul(),
        _progress("lowering to kernels"),
        relax.backend.DispatchSampling(),
        relax.backend.DispatchSortScan(),
        rt.LegalizeOps(),
        rt.AnnotateTIROpPattern(),
        rt.FoldConstant(),
        rt.FuseOps(),
        rt.FuseTIR(),
        _progress("optimising kernels"),
        rt.DeadCodeElimination(),
        _low_batch,
        tvm.transform.Sequential([]),
        dl.ApplyDefaultSchedule(
            dl.gpu.Matmul(),
            dl.gpu.GEMV(),
            dl.gpu.Reduction(),
            dl.gpu.GeneralReduction(),
            dl.gpu.Fallback(),
        ),
        _progress("lowering to bytecode"),
        rt.RewriteDataflowReshape(),
        rt.ToNonDataflow(),
        rt.RemovePurityChecking(),
        rt.CallTIRRewrite(),
        rt.StaticPlanBlockMemory(),
        rt.RewriteCUDAGraph(),
        rt.LowerAllocTensor(),
        rt.KillAfterLastUse(),
        rt.LowerRuntimeBuiltin(),
        rt.VMShapeLower(),
        rt.AttachGlobalSymbol(),
    ]


#: Lists of passes that make a model of fused, scheduled functions, by what is special in them.
_LISTS: dict[str, Callable[[], list[Pass]]] = {
    "TVM's": lambda: [*_fuse(), _schedule()],
    "MLC-LLM's": lambda: _as_mlc_llm()[:15],
    "nested": lambda: [
        tvm.transform.Sequential([*_fuse(), tvm.transform.Sequential([_schedule()])], name="all")
    ],
    "fused apart": lambda: [tvm.transform.Sequential(_fuse()), _schedule()],
    "scheduled twice": lambda: [
        *_fuse(), dl.ApplyDefaultSchedule(dl.gpu.GEMV()), rt.DeadCodeElimination(), _schedule()
    ],
    "folded late": lambda: [
        rt.LegalizeOps(), rt.AnnotateTIROpPattern(), rt.FuseOps(), rt.FuseTIR(), rt.FoldConstant(),
        _schedule(),
    ],
    "scheduled late": lambda: [*_fuse(), rt.RewriteDataflowReshape(), rt.ToNonDataflow(),
                               rt.RemovePurityChecking(), rt.CallTIRRewrite(), _schedule()],
    "our rule by hand": lambda: [
        *_fuse(), dl.ApplyDefaultSchedule(warploom.dlight.Matmul(), dl.gpu.Fallback())
    ],
    "the drop-in": lambda: [
        *_fuse(), warploom.dlight.ApplyDefaultSchedule(dl.gpu.GEMV(), dl.gpu.Fallback())
    ],
    "a target for each": lambda: [
        tvm.tirx.transform.BindTarget(_TARGET), *_fuse(), _schedule()
    ],
}  # fmt: skip


class _Block(nn.Module):
    """A norm, a projection with activation, and one back with a residual."""

    def __init__(self) -> None:
        self.norm = nn.RMSNorm(64, -1, bias=False)
        self.up = nn.Linear(64, 128, bias=True)
        self.down = nn.Linear(128, 64, bias=False)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.down(nn.op.gelu(self.up(self.norm(x)))) + x


def _model(rows: int | str = "m") -> tvm.IRModule:
    block = _Block()
    block.to("float16")
    return block.export_tvm({"forward": {"x": nn.spec.Tensor([1, rows, 64], "float16")}})[0]


def _arrays(rng: np.random.Generator, rows: int) -> list[np.ndarray]:
    shapes = (1, rows, 64), (64,), (128, 64), (128,), (64, 128)
    return [(0.3 * rng.standard_normal(shape)).astype(np.float16) for shape in shapes]


def _expected(arrays: list[np.ndarray]) -> np.ndarray:
    from math import erf

    x, norm, up, bias, down = (each.astype(np.float64) for each in arrays)
    scaled = x[0] / np.sqrt((x[0] ** 2).mean(1, keepdims=True) + 1e-5) * norm
    h = scaled @ up.T + bias
    h *= 0.5 + 0.5 * np.vectorize(erf)(h * 0.5**0.5)
    return h @ down.T + x[0]


def _run(passes: list[Pass], mod: tvm.IRModule, target: Target = _TARGET) -> tvm.IRModule:
    with target:
        return tvm.transform.Sequential(passes)(mod)


def _names(passes: list[Pass]) -> list[str]:
    """Names of all passes, those within a ``Sequential`` of users or of warploom, too."""
    found = []
    for step in passes:
        opaque = not isinstance(step, tvm.transform.Sequential) or step.info.name == "FuseTIR"
        found += [step.info.name] if opaque else _names(step.passes)
    return found


def _taken(mod: tvm.IRModule) -> tuple[list[Any], int]:
    """Configs of the GEMMs that warploom has, and how many row functions."""
    functions = [func for func in mod.functions.values() if isinstance(func, tvm.tirx.PrimFunc)]
    gemms = [config_of(func) for func in functions if has_decisions(func)]
    return sorted(gemms, key=str), sum(map(is_tirx, functions))


@pytest.mark.parametrize("kind", _LISTS)
def test_all_of_warploom_is_in_a_list(kind: str) -> None:
    with_ours = with_warploom(_LISTS[kind]())
    default = _run(list(cuda.legalize_passes(_TARGET)), _model())
    assert _taken(_run(with_ours, _model())) == _taken(default)
    assert len(_taken(default)[0]) == 2 and _taken(default)[1] >= 1
    names = _names(with_ours)
    assert names.count("warploom.FindAttention") == names.count("warploom.FuseRows") == 1


@pytest.mark.parametrize("kind", _LISTS)
def test_a_list_gets_warploom_once(kind: str) -> None:
    once = with_warploom(_LISTS[kind]())
    twice = with_warploom(once)
    assert _names(twice) == _names(once)


@pytest.mark.parametrize("kind", _LISTS)
def test_the_passes_of_a_list_keep_their_order(kind: str) -> None:
    passes = _LISTS[kind]()
    before = copy.copy(passes)
    others = [name for name in _names(with_warploom(passes)) if name not in set(_added())]
    assert others == [name for name in _names(before) if name not in set(_added())]
    assert all(mine.same_as(each) for mine, each in zip(passes, before, strict=True))


def _added() -> list[str]:
    return [*_ON_OPERATORS, *_ON_FUNCTIONS]


def test_levels_and_names_of_nested_lists_stay() -> None:
    inner = tvm.transform.Sequential([*_fuse(), _schedule()], opt_level=1, name="mine")
    (found,) = with_warploom([inner])
    assert (found.info.name, found.info.opt_level) == ("mine", 1)
    with tvm.transform.PassContext(opt_level=0):
        assert not any(_taken(_run([found], _model())))


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_any_level_of_optimisation(level: int) -> None:
    with tvm.transform.PassContext(opt_level=level):
        gemms, _ = _taken(_run(with_warploom(_as_mlc_llm()[:15]), _model()))
    assert len(gemms) == 2


def test_a_pass_of_warploom_can_be_disabled() -> None:
    with tvm.transform.PassContext(disabled_pass=["warploom.ScheduleMatmuls"]):
        gemms, rows = _taken(_run(with_warploom([*_fuse(), _schedule()]), _model()))
    assert not gemms and rows >= 1


def test_a_list_without_a_schedule() -> None:
    passes = with_warploom(_fuse())
    assert _names(passes) == [*_ON_OPERATORS, *_names(_fuse()), *_ON_FUNCTIONS]
    assert len(_taken(_run(passes, _model()))[0]) == 2


def test_a_list_for_a_module_of_functions() -> None:
    legal = _run(_fuse(), _model())
    passes = with_warploom([rt.DeadCodeElimination(), _schedule()])
    assert _names(passes)[1 : 1 + len(_ON_FUNCTIONS)] == _ON_FUNCTIONS
    assert len(_taken(_run(passes, legal))[0]) == 2


def test_lists_that_make_functions_twice_get_passes_twice() -> None:
    passes = with_warploom([*_fuse(), _schedule(), *_fuse(), _schedule()])
    names = _names(passes)
    assert names.count("warploom.LowerRows") == 2 and names.count("warploom.FindAttention") == 1


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100a"])
def test_for_other_gpus_nothing_changes(arch: str) -> None:
    target = Target({"kind": "cuda", "arch": arch})
    stock = _run(_as_mlc_llm()[:15], _model(), target)
    for passes in (
        with_warploom(_as_mlc_llm()[:15]),
        [*_as_mlc_llm()[:14], warploom.dlight.ApplyDefaultSchedule(*(rule() for rule in _RULES))],
    ):
        assert _run(passes, _model(), target).script() == stock.script()


def test_functions_may_name_the_target() -> None:
    passes = with_warploom([*_fuse(), tvm.tirx.transform.BindTarget(_TARGET), _schedule()])
    gemms, rows = _taken(tvm.transform.Sequential(passes)(_model()))
    assert len(gemms) == 2 and rows >= 1


def test_without_a_target_nothing_is_taken() -> None:
    assert not any(_taken(tvm.transform.Sequential(with_warploom(_fuse()))(_model())))


@pytest.mark.parametrize("passes", [[], [rt.FoldConstant()], [relax.get_pipeline("zero")]])
def test_lists_without_a_place_are_refused(passes: list[Pass]) -> None:
    with pytest.raises(WarploomError, match=r"LegalizeOps.*within a function cannot be seen"):
        with_warploom(passes)


def test_options_reach_the_passes() -> None:
    model = _Block()
    model.to("float32")
    mod = model.export_tvm({"forward": {"x": nn.spec.Tensor([1, 64, 64], "float32")}})[0]
    passes = [*_fuse(), _schedule()]
    assert not _taken(_run(with_warploom(passes), mod))[0]
    assert len(_taken(_run(with_warploom(passes, tf32=True), mod))[0]) == 2
    drop_in = warploom.dlight.ApplyDefaultSchedule(dl.gpu.Fallback(), tf32=True)
    assert len(_taken(_run([*_fuse(), drop_in], mod))[0]) == 2


@pytest.mark.parametrize("module", [insertion, warploom.dlight])
def test_examples(module: Any) -> None:
    found = doctest.testmod(module)
    assert found.attempted >= 3 and not found.failed


@pytest.mark.gpu
@pytest.mark.parametrize("kind", _LISTS)
@pytest.mark.some(1)
def test_models_run(kind: str, rng: np.random.Generator) -> None:
    passes = [*with_warploom(_LISTS[kind]()), *_finish()]
    executable = relax.build(_model(), _TARGET, relax_pipeline=tvm.transform.Sequential(passes))
    machine = relax.VirtualMachine(executable, tvm.cuda(0))
    for rows in (1, 2, 17):
        arrays = _arrays(rng, rows)
        found = machine["forward"](*(tvm.runtime.tensor(each, tvm.cuda(0)) for each in arrays))
        # The norm, the bias, gelu, the first GEMM and the residual.
        assert_rounded(found.numpy()[0], _expected(arrays), roundings=6)


@pytest.mark.gpu
@pytest.mark.in_turn(10)
def test_a_llama_through_a_list_as_mlc_llm_has_it(rng: np.random.Generator) -> None:
    mod, shapes = small_llama.small_llama(_TARGET)
    taken = []

    @tvm.transform.module_pass(opt_level=0, name="count")
    def count(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        taken.append(_taken(mod))
        return mod

    passes = with_warploom(_as_mlc_llm())
    at = _names(passes).index("RewriteDataflowReshape")
    pipeline = tvm.transform.Sequential([*passes[:at], count, *passes[at:]])
    executable = relax.build(mod, _TARGET, relax_pipeline=pipeline)
    ((gemms, rows),) = taken
    # QKV, out, gate and up, down, head: functions of prefill, of decode, or of both.
    assert 5 <= len(gemms) <= 2 * 5
    assert rows >= 3
    parameters = small_llama.random_parameters(rng, shapes)
    session = small_llama.Session(executable, parameters, tvm.cuda(0))
    ids = {0: rng.integers(0, small_llama.WORDS, 19), 1: rng.integers(0, small_llama.WORDS, 7)}
    for each, words in ids.items():
        (found,) = session.run("prefill", {each: words}, new=True)
        _close(found, small_llama.reference(parameters, words))
    new = {each: rng.integers(0, small_llama.WORDS, 1) for each in ids}
    # Threads of TVM's decode kernel write the same value to the same place: races, if harmless.
    with options(checks=False):
        decoded = session.run("batch_decode", new)
    for each, found in zip(new, decoded, strict=True):
        _close(found, small_llama.reference(parameters, np.concatenate([ids[each], new[each]])))


def _close(found: np.ndarray, wanted: np.ndarray) -> None:
    assert np.abs(found - wanted).max() <= 1e-2 * np.abs(wanted).max()
