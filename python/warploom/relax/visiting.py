"""Common parts of passes that rewrite calls of Relax functions."""

from __future__ import annotations

import tvm
from tvm import relax


def visited(mod: tvm.IRModule, mutator: relax.PyExprMutator) -> tvm.IRModule:
    """A module, whose Relax functions a mutator that was made for it has visited."""
    for gv, func in mod.functions.items():
        if isinstance(func, relax.Function):
            mutator.builder_.update_func(gv, mutator.visit_expr(func))
    return mutator.builder_.get()
