"""Blocks within blocks become one block, where a function multiplies by weights that it looks up.

Libraries write the product of one token with its experts' weights as a block for each expert, whose
index names the weights, and a block for each element in it. As one block it is a function of rows,
see :mod:`warploom.rows.apart`.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx import ForKind, PrimFunc

from warploom.errors import Decline
from warploom.fallback import attempted
from warploom.rows import row_kernel
from warploom.rows.apart import multiplies_gathered
from warploom.rows.problem import read_rows
from warploom.tile import ir

_LOOPS = (ForKind.SERIAL, ForKind.THREAD_BINDING)


def FlattenNests() -> tvm.transform.Pass:
    """A pass that flattens functions that only multiply rows with matrices that are looked up.

    Others, and functions that are scheduled, stay as they are. To be run before functions are
    fused.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.FlattenNests")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        changed = {}
        for variable, func in mod.functions.items():
            attrs = getattr(func, "attrs", None) or {}
            plain = isinstance(func, PrimFunc) and attrs.get("s_tir", False)
            if not plain or attrs.get("tirx.is_scheduled", False):
                continue
            made = attempted(variable.name_hint, lambda func=func: _gathered(func))
            if made is not None:
                changed[variable] = made
        if not changed:
            return mod
        return tvm.IRModule({**dict(mod.functions.items()), **changed}, attrs=mod.attrs)

    return run


def _gathered(func: PrimFunc) -> PrimFunc | None:
    """The flat function, if its rows are multiplied with matrices that are looked up."""
    made = flattened(func)
    function = read_rows(made)
    if not multiplies_gathered(function):
        return None
    row_kernel(function)
    return made


def flattened(func: PrimFunc) -> PrimFunc:
    """A function that is a single nest of loops and blocks, as loops around one block.

    Raises
    ------
    Decline
        If it is something else, or has one block only.
    """
    root = func.body
    if not isinstance(root, SBlockRealize) or root.block.alloc_buffers:
        raise Decline("the function has no root block, or buffers of its own.")
    loops, axes, values = [], [], []
    statement: Any = root.block.body
    inner: SBlock | None = None
    blocks = 0
    while isinstance(statement, (tirx.For, SBlockRealize)):
        if isinstance(statement, tirx.For):
            if statement.kind not in _LOOPS or not ir.is_constant(statement.min, 0):
                raise Decline(f"loop {statement.loop_var.name} is not serial, from 0.")
            loops.append((statement.loop_var, statement.extent))
            statement = statement.body
            continue
        inner = statement.block
        _check_block(statement, last=blocks > 0)
        axes += inner.iter_vars
        values += statement.iter_values
        blocks += 1
        statement = inner.body
    if inner is None or blocks < 2 or not isinstance(statement, tirx.BufferStore):
        raise Decline("the function is no single nest of blocks around one store.")
    block = SBlock(axes, inner.reads, inner.writes, inner.name_hint, statement, inner.init)
    made: Any = SBlockRealize(values, True, block)
    for variable, extent in reversed(loops):
        made = tirx.For(variable, 0, extent, ForKind.SERIAL, made)
    whole = SBlock([], [], [], "root", made)
    return PrimFunc(func.params, SBlockRealize([], True, whole), func.ret_type, func.attrs)


def _check_block(realize: SBlockRealize, last: bool) -> None:
    block = realize.block
    plain = not block.alloc_buffers and not block.match_buffers
    plain = plain and (last or block.init is None) and ir.is_constant(realize.predicate, 1)
    if not plain:
        raise Decline(f"block {block.name_hint} has buffers, a start or a predicate of its own.")
