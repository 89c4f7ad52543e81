"""TVM pipelines that compile tile programs, alone or beside functions of any other kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm.tirx import PrimFunc, compilation_pipeline

from warploom.gemm.decisions import has_decisions
from warploom.gemm.lower import LowerScheduledGemms
from warploom.language.span import drop_spans
from warploom.rows.generate import MARK
from warploom.transform.launch_together import LaunchTogether
from warploom.transform.lower import lower
from warploom.transform.program import is_tile_program
from warploom.transform.share_tensor_maps import ShareTensorMaps
from warploom.transform.start_early import StartEarly

#: What TVM asks a pipeline for: the passes, and those for host and device code at the end.
Factory = Callable[..., tuple[Any, Any, Any]]


def warploom_pipeline() -> tuple[Any, Any, Any]:
    """``tir_pipeline="warploom"``: tile programs become kernels, then TVM's own TIRx pipeline."""
    passes, host, device = compilation_pipeline.tirx_pipeline()
    ours = [LowerTilePrograms(), passes, ShareTensorMaps(), StartEarly(), LaunchTogether()]
    return tvm.transform.Sequential(ours), host, device


def with_tile_programs(stock: Factory) -> Factory:
    """TVM's default pipeline, which now also takes tile programs and products with decisions.

    Modules without any go through ``stock`` alone, untouched.
    """

    def pipeline(**options: Any) -> tuple[Any, Any, Any]:
        others, host, device = stock(**options)
        ours, _, _ = warploom_pipeline()

        @tvm.transform.module_pass(opt_level=0)
        def route(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
            if any(has_decisions(function) for function in mod.functions.values()):
                mod = LowerScheduledGemms()(mod)
            elif not any(map(_needs_us, mod.functions.values())):
                return others(mod)
            parts: list[dict[Any, Any]] = [{}, {}]
            for variable, function in mod.functions.items():
                parts[_is_tirx(function)][variable] = function
            rest, mine = (tvm.IRModule(part, attrs=mod.attrs) for part in parts)
            merged = ours(mine)
            if parts[0]:
                merged.update(others(rest))
            return merged

        return route, host, device

    return pipeline


def is_ours(function: Any) -> bool:
    """Whether a function is TIRx, or one with decisions that becomes TIRx."""
    return _is_tirx(function) or has_decisions(function)


def _needs_us(function: Any) -> bool:
    return _is_program(function) or (_is_tirx(function) and MARK in (function.attrs or {}))


def _is_s_tir(function: PrimFunc) -> bool:
    return bool((function.attrs or {}).get("s_tir", False))


def _is_tirx(function: Any) -> bool:
    return isinstance(function, PrimFunc) and not _is_s_tir(function)


def _without_spans(function: Any) -> Any:
    return drop_spans(function) if isinstance(function, PrimFunc) else function


def _is_program(function: Any) -> bool:
    return _is_tirx(function) and is_tile_program(function)


def LowerTilePrograms() -> tvm.transform.Pass:
    """A pass that replaces every tile program of a module by its kernel, and drops ``wl.span``.

    Raises
    ------
    Decline
        If no lowering takes a program; the message says why.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.LowerTilePrograms")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        lowered = {
            variable: lower(function) if _is_program(function) else _without_spans(function)
            for variable, function in mod.functions.items()
        }
        return tvm.IRModule(lowered, attrs=mod.attrs)

    return run
