"""TVM pipelines that compile tile programs, alone or beside functions of any other kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm.tirx import PrimFunc, compilation_pipeline

from warploom.compiler.ahead import current, reusing
from warploom.compiler.jobs import jobs
from warploom.compiler.parts import builds_model
from warploom.compiler.progress import counted
from warploom.compiler.side_by_side import side_by_side
from warploom.errors import WarploomWarning
from warploom.fallback import original_of, stock_schedule, tell, without_original
from warploom.gemm.annotations import has_decisions
from warploom.gemm.lower import lower_gemm
from warploom.language.lints import warn_of_mistakes
from warploom.language.printing import is_on
from warploom.lower.emit.prints import by_threads, without_prints
from warploom.lower.host.check_addresses import CheckAddresses
from warploom.lower.host.cooperative_launch import LaunchTogether
from warploom.lower.host.host_memory import KeepScalarsOnHost
from warploom.lower.host.kernels import is_kernel
from warploom.lower.host.merge_kernels import EqualKernels, MergeEqualKernels
from warploom.lower.host.own_device import AskOwnDevice
from warploom.lower.host.programmatic_launch import ProgrammaticLaunch
from warploom.lower.host.share_tensor_maps import ShareTensorMaps
from warploom.lower.lowerings import lower
from warploom.lower.warn_of_lowering import first_span
from warploom.ops.dispatch import our_programs, uses_warploom
from warploom.tile.kinds import MARK, is_program, is_tirx
from warploom.tile.spans import drop_spans
from warploom.warn import remember_author

#: The parts of a pipeline of TVM: the passes, and those for host and device code at the end.
Factory = Callable[..., tuple[Any, Any, Any]]

#: Models of fewer functions of ours are lowered as a whole.
_SEVERAL = 4

#: Passes over host functions of kernels by hand and of tile programs.
_OF_HOST = tvm.transform.Sequential([AskOwnDevice(), KeepScalarsOnHost(), CheckAddresses()])


def warploom_pipeline() -> tuple[Any, Any, Any]:
    """``tir_pipeline="warploom"``: tile programs become kernels, then TVM's own TIRx pipeline."""
    ours, host, device = _without_merging()

    @tvm.transform.module_pass(opt_level=0)
    def merged(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return _merged(ours(mod))

    return merged, host, lambda: side_by_side(device())


def _without_merging() -> tuple[Any, Any, Any]:
    passes, host, device = compilation_pipeline.tirx_pipeline()

    @tvm.transform.module_pass(opt_level=0)
    def with_our_schedules(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        with our_programs():
            return passes(mod)

    ours = [LowerTilePrograms(), with_our_schedules, ShareTensorMaps(), ProgrammaticLaunch()]
    return tvm.transform.Sequential([*ours, LaunchTogether(), _OF_HOST]), host, device


def _merged(mod: tvm.IRModule) -> tvm.IRModule:
    """The module; equal kernels of a model are one."""
    # Whoever compiles functions of his own finds a kernel of each.
    return MergeEqualKernels()(mod) if builds_model() else mod


def with_our_schedules_first(stock: Factory) -> Factory:
    """TVM's pipeline for TIRx, with our op schedules first in functions that use warploom."""

    def pipeline(**options: Any) -> tuple[Any, Any, Any]:
        passes, host, device = stock(**options)

        @tvm.transform.module_pass(opt_level=0)
        def route(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
            mod = _prints_as_code(mod)
            parts: list[dict[Any, Any]] = [{}, {}]
            for variable, function in mod.functions.items():
                parts[uses_warploom(function)][variable] = function
            rest, mine = parts
            if not mine:
                return passes(mod)
            with our_programs():
                merged = _OF_HOST(passes(tvm.IRModule(mine, attrs=mod.attrs)))
            if rest:
                merged.update(passes(tvm.IRModule(rest, attrs=mod.attrs)))
            return merged

        return route, host, device

    return pipeline


def with_tile_programs(stock: Factory) -> Factory:
    """TVM's default pipeline, which now also takes tile programs and GEMMs with decisions.

    Modules without any go through ``stock`` alone, untouched.
    """

    def pipeline(**options: Any) -> tuple[Any, Any, Any]:
        passes, host, device = stock(**options)
        ours, _, _ = _without_merging()

        @tvm.transform.module_pass(opt_level=0)
        def route(mod: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
            scheduled = any(map(has_decisions, mod.functions.values()))
            if not (scheduled or any(map(_needs_us, mod.functions.values()))):
                return passes(mod)
            if _may_compile_ahead(mod, context):
                return _one_by_one(mod, passes, ours, side_by_side(device()))
            if scheduled:
                mod = LowerScheduledGemms()(mod)
            parts: list[dict[Any, Any]] = [{}, {}]
            for variable, function in mod.functions.items():
                parts[is_tirx(function)][variable] = without_original(function)
            rest, mine = (tvm.IRModule(part, attrs=mod.attrs) for part in parts)
            lowered = ours(mine)
            if parts[0]:
                lowered.update(passes(rest))
            return _merged(lowered)

        return route, host, lambda: reusing(side_by_side(device()))

    return pipeline


def _may_compile_ahead(mod: tvm.IRModule, context: tvm.transform.PassContext) -> bool:
    """Whether a module is a model with several kernels of ours, and no pass is watched."""
    several = sum(map(is_ours, mod.functions.values())) >= _SEVERAL
    if not (several and builds_model() and jobs() > 1) or context.instruments:
        return False
    # TVM names the kernels of a module so that no two names are equal: here each is a module.
    names = [variable.name_hint for variable in mod.functions]
    starts = tuple(f"{name}_kernel" for name in names)
    return not any(name.startswith(starts) for name in names)


def _one_by_one(mod: tvm.IRModule, passes: Any, ours: Any, last: Any) -> tvm.IRModule:
    """A model as the pipeline leaves it, function by function: each is compiled meanwhile.

    Parameters
    ----------
    passes, ours : Pass
        TVM's passes, and those for tile programs.
    last : Pass
        TVM's passes over kernels behind the pipeline.
    """
    kernels, kept, rest = EqualKernels(), {}, {}
    mine = {var: func for var, func in mod.functions.items() if is_ours(func)}
    for variable, function in counted("Lowering", mine):
        one = tvm.IRModule({variable: function}, attrs=mod.attrs)
        if has_decisions(function):
            one = LowerScheduledGemms()(one)
        if not is_tirx(one[variable]):  # TVM has it back
            rest[variable] = one[variable]
            continue
        lowered = ours(tvm.IRModule({variable: without_original(one[variable])}, attrs=mod.attrs))
        for name, each in lowered.functions.items():
            if kernels.keeps(each):
                kept[name] = each
                if is_kernel(each):
                    _compile_ahead(name, each, last)
    rest |= {v: without_original(f) for v, f in mod.functions.items() if v not in mine}
    if rest:
        others = passes(tvm.IRModule(rest, attrs=mod.attrs)).functions.items()
        kept |= {name: each for name, each in others if kernels.keeps(each)}
    return kernels.launched(kept, mod.attrs)


def _compile_ahead(variable: Any, kernel: PrimFunc, last: Any) -> None:
    """Finish a kernel and give it to the compiler, as TVM's build does it later for others."""
    finished = last(tvm.IRModule({variable: kernel}))
    target = kernel.attrs["target"]
    build = tvm_ffi.get_global_func(f"target.build.{target.kind.name}")
    current().start(variable.name_hint, kernel, finished[variable], lambda: build(finished, target))


def is_ours(function: Any) -> bool:
    """Whether a function is TIRx, or one with decisions that becomes TIRx."""
    return is_tirx(function) or has_decisions(function)


def _needs_us(function: Any) -> bool:
    return is_program(function) or (is_tirx(function) and MARK in (function.attrs or {}))


def _without_spans(function: Any) -> Any:
    return drop_spans(function) if isinstance(function, PrimFunc) else function


def _with_prints(function: Any) -> Any:
    """A function whose print statements are code, or nothing where they are switched off."""
    if not isinstance(function, PrimFunc):
        return function
    return by_threads(function) if is_on() else without_prints(function)


def _prints_as_code(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with the print statements of its functions as code; itself if it has none."""
    changed = {variable: _with_prints(function) for variable, function in mod.functions.items()}
    if all(new.same_as(mod[variable]) for variable, new in changed.items()):
        return mod
    return tvm.IRModule(changed, attrs=mod.attrs)


def LowerScheduledGemms() -> tvm.transform.Pass:
    """A pass that turns annotated functions of a module into kernels.

    Where that is impossible, a warning says why, and the function gets TVM's own schedule: slower,
    with the same result.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.LowerScheduledGemms")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        changed = {}
        gemms = {var: func for var, func in mod.functions.items() if has_decisions(func)}
        for variable, function in counted("Lowering GEMMs", gemms):
            try:
                changed[variable] = lower_gemm(function)
            except WarploomWarning:  # a search wants none
                raise
            except Exception as error:  # of any kind: TVM can build the function
                tell(variable.name_hint, error)
                changed[variable] = stock_schedule(original_of(function))
        return tvm.IRModule({**dict(mod.functions.items()), **changed}, attrs=mod.attrs)

    return run


def LowerTilePrograms() -> tvm.transform.Pass:
    """A pass that replaces every tile program of a module by its kernel, and drops ``wl.span``.

    Raises
    ------
    Decline
        If no lowering takes a program; the message says why.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.LowerTilePrograms")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        lowered = {}
        for variable, function in counted("Lowering", dict(mod.functions.items())):
            if isinstance(function, PrimFunc):
                symbol = (function.attrs or {}).get("global_symbol", variable.name_hint)
                remember_author(str(symbol), first_span(function))
            if is_program(function):
                # First the errors that refuse or decline, which are then the whole message.
                lowered[variable] = _with_prints(lower(function))
                warn_of_mistakes(function)
            else:
                lowered[variable] = _with_prints(_without_spans(function))
        return tvm.IRModule(lowered, attrs=mod.attrs)

    return run
