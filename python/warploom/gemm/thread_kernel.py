"""Kernels that are written thread by thread: parameters of a function, ids, and attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import PrimFunc, Stmt, Var
from tvm.tirx.layout import S, TileLayout

from warploom.decide.problem import ALIGN
from warploom.gemm.equations import simplify
from warploom.target.dtypes import bits_of
from warploom.tile import ir
from warploom.tile.hints import DEVICE_ENTRY
from warploom.tile.kinds import MARK


def framed(func: PrimFunc, table: Mapping[Var, Any], body: list[Stmt]) -> PrimFunc:
    """The kernel of an S-TIR function with some statements.

    Parameters
    ----------
    func : PrimFunc
        Its attributes and its parameters, in the same order, are those of the kernel.
    table : mapping
        What stands for each parameter: see :func:`parameter`.
    body : list of Stmt
        The statements of a thread.
    """
    entry = tirx.AttrStmt(0, DEVICE_ENTRY, tirx.const(True, "bool"), ir.seq(body))
    made = PrimFunc([table[param] for param in func.params], entry, func.ret_type)
    attrs = {**dict((func.attrs or {}).items()), "tirx.is_scheduled": True, MARK: True}
    for key, value in attrs.items():
        if key != "s_tir":
            made = made.with_attr(key, value)
    return made


def ids_of(cta: Var, thread: Var, grid: Any, threads: int, cluster: int = 1) -> list[Stmt]:
    """The statements that number CTAs and their threads; there is one cluster at least."""
    if not isinstance(grid, (int, tirx.IntImm)):
        grid = T.max(grid, 1)
    scopes = (
        tirx.ScopeIdDef([cta], [simplify(grid * cluster)], "kernel", "cta"),
        tirx.ScopeIdDef([thread], [threads], "cta", "thread"),
    )
    return [tirx.ScopeIdDefStmt(scope) for scope in scopes]


def parameter(param: Var) -> Any:
    """The kernel's parameter for one of an S-TIR function."""
    if not ir.is_buffer(param):
        return param  # a size, which shapes of buffers may be in terms of
    shape = list(param.shape)
    # `decl_buffer` gives a tensor without dimensions no layout, which TVM's FlattenBuffer needs.
    layout = "default" if shape else TileLayout(S[()])
    # A view begins somewhere in its memory; only its dtype says where it may.
    view = not ir.is_constant(param.elem_offset, 0)
    return tirx.decl_buffer(
        shape, str(param.dtype), param.name, scope="global", layout=layout,
        data_alignment=bits_of(str(param.dtype)) // 8 if view else ALIGN,
        elem_offset=param.elem_offset if view else None, offset_factor=1 if view else 0,
    )  # fmt: skip
