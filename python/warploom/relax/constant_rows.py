"""``take(tensor, 3)`` becomes a slice, which whatever uses it reads where it is.

PyTorch exports ``weights[3]`` as a ``take`` by a constant. The same weights indexed by a tensor of
the device are rows that are gathered: those stay.
"""

from __future__ import annotations

import math

import tvm
from tvm import relax
from tvm.ir.expr import GenericConst
from tvm.tirx import IntImm

from warploom.relax.visiting import visited


def SliceConstantRows() -> tvm.transform.Pass:
    """A pass that slices where a tensor is indexed by a constant, and drops what nothing reads."""

    @tvm.transform.module_pass(opt_level=0, name="warploom.SliceConstantRows")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return visited(mod, _Slicer(mod), clean=True)

    return run


@relax.expr_functor.mutator
class _Slicer(relax.PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if getattr(call.op, "name", "") != "relax.take":
            return call
        tensor, index = call.args
        shape = getattr(getattr(tensor.ty, "shape", None), "values", None)
        if shape is None or not isinstance(index, GenericConst):
            return call
        if math.prod(index.value.shape) != 1:
            return call
        axis = 0 if call.attrs.axis is None else int(call.attrs.axis) % len(shape)
        if (call.attrs.axis is None and len(shape) > 1) or not isinstance(shape[axis], IntImm):
            return call
        place = int(index.value.numpy().reshape(()))
        if not 0 <= place < int(shape[axis]):
            return call  # what modes of the operator are for
        part = self.builder_.emit(relax.op.strided_slice(tensor, [axis], [place], [place + 1]))
        return relax.op.squeeze(part, [axis]) if not index.value.shape else _of(part, call)


def _of(part: relax.Expr, call: relax.Call) -> relax.Expr:
    """A slice with the shape of a call's result: the index may have any number of dimensions."""
    same = len(part.ty.shape.values) == len(call.ty.shape.values)
    return part if same else relax.op.reshape(part, call.ty.shape)
