"""The kind of a function of a module, which decides the pipeline that compiles it."""

from __future__ import annotations

from typing import Any

import tvm
from tvm.tirx import PrimFunc

from warploom.tile.read import is_tile_program

#: Attribute of kernels of the package without a tile statement, by which pipelines tell them.
MARK = "warploom.kernel"


def is_s_tir(function: PrimFunc) -> bool:
    """Whether a function consists of blocks and loops (S-TIR)."""
    return bool((function.attrs or {}).get("s_tir", False))


def is_tirx(function: Any) -> bool:
    """Whether a function of a module is TIRx: a tile program, or a kernel by hand."""
    return isinstance(function, PrimFunc) and not is_s_tir(function)


def is_program(function: Any) -> bool:
    """Whether a function of a module is a tile program."""
    return is_tirx(function) and is_tile_program(function)


def pipeline_of(mod: tvm.IRModule) -> dict[str, str]:
    """The option of ``tvm.compile`` that names a module's pipeline; none stands for TVM's default.

    The default lowers functions of blocks and loops, and tile programs beside them. A module that
    is TIRx alone needs a pipeline for TIRx.
    """
    functions = [func for func in mod.functions.values() if isinstance(func, PrimFunc)]
    if any(map(is_s_tir, functions)):
        return {}
    return {"tir_pipeline": "warploom" if any(map(is_tile_program, functions)) else "tirx"}
