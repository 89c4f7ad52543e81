"""Loops of which the CUDA compiler writes out all iterations, not TVM.

A third of an attention kernel's source was copies of one statement, for one register each. TVM's
passes and the compiler's front end now read such a statement once.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr
from tvm.tirx import ForKind, Stmt, Var

from warploom.tile import ir

#: TVM's annotation for ``#pragma unroll``.
PRAGMA = "pragma_unroll"
#: Size of a loop, in expressions, up to which the compiler writes it out. A longer statement has
#: conditions and indices that depend on the register: TVM simplifies those of each iteration, with
#: the ranges of all variables, and the machine code is the shorter for it. Far below the size from
#: which NVRTC leaves loops alone, whose registers would then be in local memory: NVRTC 13.5 was
#: seen to write out 24,000 instructions.
_MOST = 8192
#: Expressions that a function counts for, such as an exponential or a conversion.
_OF_CALL = 12


def written_out(var: Var, extent: int, body: ir.Body) -> Stmt:
    """``for var in range(extent)``, all iterations one after the other in the kernel.

    Long loops, and those of one iteration, are written out by TVM.

    Parameters
    ----------
    var : Var
        Counts the iterations from 0 on; int32.
    extent : int
        Their number.
    body : iterable of Stmt

    Examples
    --------
    >>> written_out(register, 64, [tirx.BufferStore(sums, zero, [register])])
    """
    together = ir.seq(body)
    if extent == 1 or extent * _size(together) > _MOST:
        return ir.loop(var, extent, [together], kind=ForKind.UNROLLED)
    return ir.loop(var, extent, [together], {PRAGMA: True})


def _size(statement: Stmt) -> int:
    """How many expressions a statement has, about as many as instructions or more."""
    total = 0

    def expression(node: Any) -> None:
        nonlocal total
        total += _OF_CALL if isinstance(node, Call) else 1

    def inner(loop: tirx.For) -> None:
        nonlocal total
        total += (int(loop.extent) - 1) * _size(loop.body)

    tvm_ffi.structural_walk(statement, [(Expr, expression), (tirx.For, inner)])
    return total
