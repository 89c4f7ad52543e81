"""Operands of fewer dimensions get those of 1 that broadcasting gives them.

TVM's ``ConvertLayout`` turns a tensor to NHWC together with what is added to it, unless that has
dimensions of its own, such as the scale ``[channels, 1, 1]`` of a layer: the tensor is then turned
back to NCHW for it.
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.ir import Op

from warploom.relax.elementwise import BINARY
from warploom.relax.visiting import visited

#: Dimensions from which on a tensor has a layout.
_LAYOUT = 3


def AlignBroadcasts() -> tvm.transform.Pass:
    """A pass after which operands of binary operators have equally many dimensions.

    Only where one of them has three or more. Scalars stay as they are.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.AlignBroadcasts")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return visited(mod, _Aligner(mod))

    return run


@relax.expr_functor.mutator
class _Aligner(relax.PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if not isinstance(call.op, Op) or call.op.name not in BINARY:
            return call
        counts = [getattr(argument.ty, "ndim", -1) for argument in call.args]
        widest, least = max(counts), min(counts)
        if widest < _LAYOUT or not 0 < least < widest:
            return call
        arguments = list(call.args)
        narrow = counts.index(least)
        shape = arguments[narrow].ty.shape
        if not isinstance(shape, relax.ShapeExpr):
            return call
        whole = [*[1] * (widest - least), *shape.values]
        arguments[narrow] = self.builder_.emit(relax.op.reshape(arguments[narrow], whole))
        return relax.Call(call.op, arguments, call.attrs, call.ty_args)
