"""TVM pipelines that compile tile programs, alone or beside functions of any other kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm.tirx import PrimFunc, compilation_pipeline

from warploom.gemm.decisions import has_decisions
from warploom.gemm.lower import LowerScheduledGemms
from warploom.transform.lower import lower
from warploom.transform.program import is_tile_program
from warploom.transform.start_early import StartEarly

#: What TVM asks a pipeline for: the passes, and those for host and device code at the end.
Factory = Callable[..., tuple[Any, Any, Any]]


def warploom_pipeline() -> tuple[Any, Any, Any]:
    """``tir_pipeline="warploom"``: tile programs become kernels, then TVM's own TIRx pipeline."""
    passes, host, device = compilation_pipeline.tirx_pipeline()
    return tvm.transform.Sequential([LowerTilePrograms(), passes, StartEarly()]), host, device


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
            elif not any(_is_ours(function) for function in mod.functions.values()):
                return others(mod)
            parts: list[dict[Any, Any]] = [{}, {}]
            for variable, function in mod.functions.items():
                parts[_is_ours(function) or _is_tirx(function)][variable] = function
            rest, mine = (tvm.IRModule(part, attrs=mod.attrs) for part in parts)
            merged = ours(mine)
            if parts[0]:
                merged.update(others(rest))
            return merged

        return route, host, device

    return pipeline


def _is_ours(function: Any) -> bool:
    return isinstance(function, PrimFunc) and not _is_s_tir(function) and is_tile_program(function)


def _is_s_tir(function: PrimFunc) -> bool:
    return bool((function.attrs or {}).get("s_tir", False))


def _is_tirx(function: Any) -> bool:
    return isinstance(function, PrimFunc) and not _is_s_tir(function)


def LowerTilePrograms() -> tvm.transform.Pass:
    """A pass that replaces every tile program of a module by its kernel.

    Raises
    ------
    Decline
        If no lowering takes a program; the message says why.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.LowerTilePrograms")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        lowered = {
            variable: lower(function) if _is_ours(function) else function
            for variable, function in mod.functions.items()
        }
        return tvm.IRModule(lowered, attrs=mod.attrs)

    return run
