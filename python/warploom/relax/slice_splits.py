"""Parts of different widths that a tensor is split into are slices of it, each for its readers.

TVM makes one function of a split. Its results have different extents, so it is no row function; and
it copies all parts, where a reader could take a slice as it reads. Queries, keys and values of one
matmul, or the two inputs of a latent attention, are such parts.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.ir import Op
from tvm.tirx import IntImm

from warploom.relax.visiting import bound, visited


def SliceSplits() -> tvm.transform.Pass:
    """A pass that slices what ``R.split`` cuts into parts of different, known widths.

    To be run before ``LegalizeOps``, behind passes that read a split as it is. Parts of one width
    stay one function, which reads its operand once.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.SliceSplits")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return visited(mod, _Slicer(mod), clean=True)

    return run


@relax.expr_functor.mutator
class _Slicer(relax.PyExprMutator):
    def visit_tuple_getitem_(self, item: relax.TupleGetItem) -> relax.Expr:
        item = super().visit_tuple_getitem_(item)
        split = bound(self, item.tuple_value)
        if not isinstance(split, relax.Call) or split.op != Op.get("relax.split"):
            return item
        axis = _axis(split)
        widths = [_width(part, axis) for part in split.ty.fields]
        if None in widths or len(set(widths)) == 1:
            return item
        first = sum(widths[: item.index])
        end = first + widths[item.index]
        return relax.op.strided_slice(split.args[0], [axis], [first], [end])


def _axis(split: relax.Call) -> int:
    return int(split.attrs.axis) % len(split.ty.fields[0].shape.values)


def _width(part: Any, axis: int) -> int | None:
    """How wide a part is, if that is known."""
    extent = part.shape.values[axis]
    return int(extent) if isinstance(extent, IntImm) else None
