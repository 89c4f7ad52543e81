"""How much the functions of a model multiply: which part of it the tensor cores get."""

from __future__ import annotations

import math
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import GlobalVar
from tvm.tirx import PrimFunc

from warploom.errors import Decline
from warploom.gemm.equations import loads, narrow, read_equations
from warploom.gemm.memory import static
from warploom.tile import ir


def operations(func: PrimFunc) -> int:
    """Multiplications and additions in the matmuls and convolutions of an S-TIR function.

    These are the sums of products of two elements, squares left out. Sizes that only the launch
    knows count as 1. A function that is no equations, such as a loop, has 0.

    Examples
    --------
    >>> from warploom.meta_schedule.workloads import matmul
    >>> operations(matmul(8, 16, 32))
    8192
    """
    try:
        equations = read_equations(narrow(func))
    except Decline:
        return 0
    return sum(
        2 * math.prod(static(axis.dom.extent) or 1 for axis in equation.block.iter_vars)
        for equation in equations
        if equation.reduction and _multiplies(equation.value)
    )


def _multiplies(value: Any) -> bool:
    """Whether a value has a product of two elements of tensors; a square is none."""
    found = False

    def visit(node: tirx.Mul) -> Any:
        nonlocal found
        both = all(loads(side) for side in (node.a, node.b))
        found = found or (both and not tvm_ffi.structural_equal(node.a, node.b))
        return node

    ir.map_nodes(value, {tirx.Mul: visit}, {})
    return found


def calls(mod: tvm.IRModule) -> dict[str, int]:
    """How often the Relax functions of a module call each function, by its name."""
    counts: dict[str, int] = {}

    def visit(expr: relax.Expr) -> None:
        if not isinstance(expr, relax.Call):
            return
        for called in (expr.op, *expr.args[:1]):
            if isinstance(called, GlobalVar):
                counts[called.name_hint] = counts.get(called.name_hint, 0) + 1

    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            relax.analysis.post_order_visit(func, visit)
    return counts
