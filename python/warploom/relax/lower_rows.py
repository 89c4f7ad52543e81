"""Functions that are no GEMMs get kernels of whole vectors, before dlight sees them."""

from __future__ import annotations

from functools import partial
from typing import Any

import tvm
from tvm import relax
from tvm.tirx import PrimFunc

from warploom.errors import Decline
from warploom.fallback import attempted, with_original
from warploom.rows.generate import row_kernel
from warploom.rows.problem import RowFunction, read_rows

#: Why a function that only reshapes gets no kernel.
MOVES_NOTHING = "it only reshapes, for which Relax moves nothing."


def LowerRows() -> tvm.transform.Pass:
    """A pass that replaces functions of rows by their kernels; others it leaves as they are.

    To be run after ``relax.transform.FuseTIR`` and the rules for GEMMs. Functions that only reshape
    are left, too: Relax finds that nothing need be moved for it.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.LowerRows")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        changed = {}
        for variable, func in mod.functions.items():
            if not _is_scheduled(func):
                made = attempted(variable.name_hint, partial(_kernel, func))
                if made is not None:
                    changed[variable] = made
        return tvm.IRModule({**dict(mod.functions.items()), **changed}, attrs=mod.attrs)

    return run


def _kernel(func: PrimFunc) -> PrimFunc:
    return with_original(row_kernel(rows_of(func)), func)


def rows_of(func: PrimFunc) -> RowFunction:
    """Return the row function that a fused function of Relax computes.

    Raises
    ------
    Decline
        If it computes something else, or only reshapes.
    """
    if relax.analysis.has_reshape_pattern(func):
        raise Decline(MOVES_NOTHING)
    return read_rows(func)


def _is_scheduled(func: Any) -> bool:
    """Whether a function is none of S-TIR, or has a schedule."""
    attrs = getattr(func, "attrs", None) or {}
    return not (
        isinstance(func, PrimFunc)
        and attrs.get("s_tir", False)
        and not attrs.get("tirx.is_scheduled", False)
    )
