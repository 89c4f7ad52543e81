"""Views and casts that change nothing are left out.

Exporters write broadcasts to the shape that a tensor has, and mixed precision writes casts to
float32 and back around them. Each hides a matmul from its epilogue, or copies a tensor: a weight
that is broadcast to a batch of matmuls is one matmul of all rows.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import Op

from warploom.relax.visiting import bound, operator_name, visited
from warploom.target.dtypes import bits_of
from warploom.tile import ir

#: Operators whose result has elements of their first operand, in some order.
VIEWS = frozenset(
    f"relax.{name}" for name in ("reshape", "expand_dims", "squeeze", "flatten", "permute_dims",
                                 "broadcast_to", "strided_slice", "take", "repeat")
)  # fmt: skip
#: Those of them that move nothing in memory.
_RESHAPES = ("relax.expand_dims", "relax.squeeze", "relax.flatten")
_WIDE, _NARROW = "float32", frozenset(("float16", "bfloat16"))


def DropViews() -> tvm.transform.Pass:
    """A pass after which no view has the type of its operand, and casts are behind views.

    ``expand_dims``, ``squeeze`` and ``flatten`` become ``reshape``. A matmul that broadcasts its
    second operand does so itself. To be run before ``LegalizeOps``.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.DropViews")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return visited(mod, _Dropper(mod), clean=True)

    return run


@relax.expr_functor.mutator
class _Dropper(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        #: Splits of 16 bits, by the variables of those of what was cast.
        self.splits: dict[relax.Expr, relax.Expr] = {}

    def visit_tuple_getitem_(self, item: relax.TupleGetItem) -> relax.Expr:
        item = super().visit_tuple_getitem_(item)
        split = bound(self, item.tuple_value)
        if not isinstance(split, relax.Call) or split.op != Op.get("relax.split"):
            return item
        wide = self._widened(split.args[0])
        if wide is None:
            return item
        parts = self.splits.get(item.tuple_value)
        if parts is None:
            parts = self.builder_.emit(relax.Call(split.op, [wide], split.attrs))
            self.splits[item.tuple_value] = parts
        part = self.builder_.emit(relax.TupleGetItem(parts, item.index))
        return relax.op.astype(part, _WIDE)

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        name = operator_name(call)
        if name == "relax.matmul":
            return self._matmul(call)
        if name == "relax.astype":
            return self._cast(call)
        if name not in VIEWS:
            return call
        if name in _RESHAPES and getattr(call.ty.shape, "values", None) is not None:
            call = self.builder_.normalize(relax.op.reshape(call.args[0], call.ty.shape))
        wide = self._widened(call.args[0])
        if wide is not None:
            rest = list(call.args)[1:]
            view = relax.Call(call.op, [wide, *rest], call.attrs, call.ty_args)
            narrow = self.builder_.emit(self._view(self.builder_.normalize(view)))
            return relax.op.astype(narrow, _WIDE)
        return self._view(call)

    def _view(self, call: relax.Call) -> relax.Expr:
        """A view, or its operand if that is the same tensor; of reshapes the last one."""
        source = call.args[0]
        if call.op == Op.get("relax.reshape"):
            before = bound(self, source)
            while isinstance(before, relax.Call) and before.op == Op.get("relax.reshape"):
                source = before.args[0]
                before = bound(self, source)
            if source is not call.args[0]:
                call = self.builder_.normalize(relax.op.reshape(source, call.ty.shape))
        moves = call.op in (Op.get("relax.permute_dims"), Op.get("relax.take"))
        return source if not moves and _same(source, call) else call

    def _widened(self, expr: relax.Expr) -> relax.Expr | None:
        """What a cast from 16 bits to float32 casts; None if an expression is none."""
        cast = bound(self, expr)
        if not isinstance(cast, relax.Call) or cast.op != Op.get("relax.astype"):
            return None
        source = cast.args[0]
        widens = str(cast.ty.dtype) == _WIDE and str(source.ty.dtype) in _NARROW
        return source if widens else None

    def _cast(self, call: relax.Call) -> relax.Expr:
        source = call.args[0]
        if _same(source, call):
            return source
        before = bound(self, source)
        if isinstance(before, relax.Call) and before.op == Op.get("relax.astype"):
            first = before.args[0]
            if _keeps(str(first.ty.dtype), str(source.ty.dtype)):
                return first if _same(first, call) else relax.op.astype(first, call.ty.dtype)
        return call

    def _matmul(self, call: relax.Call) -> relax.Expr:
        """A matmul whose second operand is not broadcast to the batch of the first."""
        left, right = call.args
        broadcast = bound(self, right)
        if not isinstance(broadcast, relax.Call) or broadcast.op != Op.get("relax.broadcast_to"):
            return call
        source = broadcast.args[0]
        extents, given = (getattr(one.ty.shape, "values", None) for one in (right, source))
        if extents is None or given is None or len(given) < 2:
            return call
        if not tvm_ffi.structural_equal(list(extents[-2:]), list(given[-2:])):
            return call
        if not all(ir.is_constant(extent, 1) for extent in given[:-2]):
            return call
        weight = source
        if len(given) > 2:
            weight = self.builder_.emit(relax.op.reshape(source, list(given[-2:])))
        made = self.builder_.normalize(
            relax.op.matmul(left, weight, out_dtype=call.attrs.out_dtype)
        )
        return made if _same(made, call) else call


def _same(one: relax.Expr, other: relax.Expr) -> bool:
    """Whether two tensors have one type and a known shape."""
    shapes = [getattr(getattr(each.ty, "shape", None), "values", None) for each in (one, other)]
    if any(shape is None for shape in shapes) or one.ty.dtype != other.ty.dtype:
        return False
    return tvm_ffi.structural_equal(list(shapes[0]), list(shapes[1]))


def _keeps(narrow: str, wide: str) -> bool:
    """Whether a type of floating point has all values of another one."""
    known: Any = (_NARROW | {"float32", "float64"}) & {narrow, wide}
    return known == {narrow, wide} and (narrow == wide or bits_of(narrow) < bits_of(wide))
