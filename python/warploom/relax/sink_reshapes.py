"""Reshapes go behind the operators that follow them, where they meet their inverses and vanish.

PyTorch's linear layers reshape ``[batch, tokens, elements]`` to rows, multiply, and reshape back,
so that a reshape is between each matmul and its activation or residual. A function that TVM fuses
ends there: activations and residuals would be kernels of their own.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import Op

from warploom.relax.dimension_groups import Group, groups
from warploom.relax.elementwise import BROADCAST, UNARY
from warploom.relax.visiting import bound, operator_name, visited
from warploom.tile import ir

#: Operators along the last dimension, with the name of the attribute that says so.
_ALONG_LAST = {
    "relax.nn.softmax": "axis", "relax.nn.layer_norm": "axes", "relax.nn.rms_norm": "axes",
    **dict.fromkeys(("relax.max", "relax.min", "relax.sum", "relax.mean"), "axis"),
}  # fmt: skip
#: Those of them that leave one element of each row.
_REDUCTIONS = ("relax.max", "relax.min", "relax.sum", "relax.mean")


def SinkReshapes() -> tvm.transform.Pass:
    """A pass that reshapes behind element-wise operators, norms, softmax and matmuls.

    Only where the reshape merges or splits dimensions that the operator does not tell apart.
    Reshapes that change nothing then are left out. To be run before ``LegalizeOps``.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.SinkReshapes")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return visited(mod, _Sinker(mod, _uses(mod)), clean=True)

    return run


@relax.expr_functor.mutator
class _Sinker(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule, uses: dict[relax.Var, int]) -> None:
        super().__init__(mod)
        self.uses = uses
        #: Whether what is computed leaves the function: Relax moves data for a reshape then.
        self.leaves = False
        #: Splits that were made of what was reshaped, by the variables of splits before.
        self.splits: dict[relax.Expr, relax.Expr] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        self.leaves = not isinstance(binding.var, relax.DataflowVar)
        super().visit_var_binding_(binding)

    def visit_tuple_getitem_(self, item: relax.TupleGetItem) -> relax.Expr:
        item = super().visit_tuple_getitem_(item)
        shape = _extents(item)
        split = bound(self, item.tuple_value)
        if shape is None or self.leaves or not _is_split_along_last(split):
            return item
        parts = self.splits.get(item.tuple_value)
        if parts is None:
            source = self._reshaped(split.args[0])
            if source is None or not _keeps_last(_extents(source), _extents(split.args[0]), 1):
                return item
            axis, sections = len(_extents(source)) - 1, split.attrs.indices_or_sections
            count = int(sections) if isinstance(sections, tirx.IntImm) else list(map(int, sections))
            parts = self.builder_.emit(relax.op.split(source, count, axis))
            self.splits[item.tuple_value] = parts
        part = self.builder_.emit(relax.TupleGetItem(parts, item.index))
        return self._reshape(part, relax.ShapeExpr(shape))

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        uses = [self.uses.get(one, 0) for one in call.args]
        call = super().visit_call_(call)
        name = operator_name(call)
        if name == "relax.reshape":
            return self._reshape(call.args[0], call.ty.shape)
        shape = _extents(call)
        if shape is None or self.leaves:
            return call
        if name in UNARY or name in BROADCAST:
            made = self._elementwise(call, shape, uses)
        elif name == "relax.matmul":
            made = self._matmul(call)
        elif name in _ALONG_LAST and _is_along_last(call, _ALONG_LAST[name]):
            made = self._along_last(call)
        else:
            made = None
        if made is None:
            return call
        made = self.builder_.emit(made)
        return self._reshape(made, shape)

    def _reshape(self, source: relax.Expr, shape: Any) -> relax.Expr:
        """A reshape of what is no reshape, or that itself."""
        while (before := self._reshaped(source)) is not None:
            source = before
        extents = list(shape.values) if isinstance(shape, relax.ShapeExpr) else shape
        if tvm_ffi.structural_equal(_extents(source), extents):
            return source
        return self.builder_.normalize(relax.op.reshape(source, shape))

    def _reshaped(self, expr: relax.Expr) -> relax.Expr | None:
        """What a reshape reshapes, if its shape is known."""
        call = bound(self, expr)
        if not isinstance(call, relax.Call) or call.op != Op.get("relax.reshape"):
            return None
        return call.args[0] if None not in (_extents(call), _extents(call.args[0])) else None

    def _elementwise(
        self, call: relax.Call, shape: list[Any], uses: list[int]
    ) -> relax.Expr | None:
        """The operator of what an operand was before its reshape, and of the others so, too.

        Of several such operands the one that the fewest read: what only this operator reads had
        better be computed with it, and a residual is in memory anyway.
        """
        tensors = [one for one in call.args if isinstance(one.ty, relax.TensorType)]
        fewest = sorted(range(len(call.args)), key=lambda number: uses[number])
        for operand in (call.args[number] for number in fewest):
            if not isinstance(operand.ty, relax.TensorType):
                continue
            source = self._reshaped(operand)
            if source is None or not tvm_ffi.structural_equal(_extents(operand), shape):
                continue
            if len(tensors) > 1 and not isinstance(bound(self, source), relax.Call):
                continue  # nothing computes it: the others would be reshaped for nothing
            shapes = [_viewed(_extents(one), _extents(source), shape) for one in tensors]
            if any(wanted is None for wanted in shapes):
                continue
            alone = [count == 1 for one, count in zip(call.args, uses, strict=True)
                     if isinstance(one.ty, relax.TensorType)]  # fmt: skip
            made = [
                self._viewed(one, wanted, mine)
                for one, wanted, mine in zip(tensors, shapes, alone, strict=True)
            ]
            rest = [one for one in call.args if not isinstance(one.ty, relax.TensorType)]
            return relax.Call(call.op, [*made, *rest], call.attrs, call.ty_args)
        return None

    def _viewed(self, expr: relax.Expr, wanted: list[Any], alone: bool) -> relax.Expr:
        """An operand of another shape; of a matmul that nothing else reads, its rows have it."""
        made = self._product_of_reshaped(expr, wanted) if alone else None
        if made is not None:
            return made
        return self._emitted(self._reshape(expr, relax.ShapeExpr(wanted)))

    def _product_of_reshaped(self, expr: relax.Expr, wanted: list[Any]) -> relax.Expr | None:
        """What a reshape makes of a matmul with a bias, where the reshape is before the matmul.

        So a residual of another shape is an epilogue: the pixels to which attention is added.
        None if something else reads the matmul, or if the reshape changes more than rows.
        """
        call, own = bound(self, expr), _extents(expr)
        if own is None or not _keeps_last(own, wanted, 1):
            return None
        name = operator_name(call)
        if name == "relax.matmul" and len(_extents(call.args[1]) or ()) == 2:
            left, right = call.args
            shape = relax.ShapeExpr([*wanted[:-1], _extents(right)[0]])
            left = self._emitted(self._reshape(left, shape))
            return self.builder_.emit(relax.op.matmul(left, right, out_dtype=call.attrs.out_dtype))
        if name != "relax.add":
            return None
        for product, bias in (call.args, reversed(call.args)):
            vector = _extents(bias)
            if vector is None or not all(ir.is_constant(extent, 1) for extent in vector[:-1]):
                continue
            if not tvm_ffi.structural_equal(_extents(product), own) or self._count(product) != 1:
                continue
            made = self._product_of_reshaped(product, wanted)
            if made is not None:
                bias = self._emitted(self._reshape(bias, relax.ShapeExpr(vector[-1:])))
                return self.builder_.emit(relax.op.add(made, bias))
        return None

    def _count(self, expr: relax.Expr) -> int:
        """How many calls read a variable of the function as it was; 0 of those made since."""
        return self.uses.get(expr, 0) if isinstance(expr, relax.Var) else 0

    def _emitted(self, expr: relax.Expr) -> relax.Expr:
        return self.builder_.emit(expr) if isinstance(expr, relax.Call) else expr

    def _along_last(self, call: relax.Call) -> relax.Expr | None:
        """A norm or a softmax of what its operand was before a reshape that keeps its rows."""
        source = self._reshaped(call.args[0])
        if source is None or not _keeps_last(_extents(source), _extents(call.args[0]), 1):
            return None
        rest = list(call.args)[1:]
        if call.op.name in _REDUCTIONS:
            return relax.Call(call.op, [source], relax.op.max(source, -1, True).attrs)
        if call.op == Op.get("relax.nn.softmax"):
            return relax.op.nn.softmax(source, axis=-1)
        attrs = call.attrs
        if call.op == Op.get("relax.nn.rms_norm"):
            return relax.op.nn.rms_norm(source, *rest, axes=[-1], epsilon=float(attrs.epsilon))
        return relax.op.nn.layer_norm(
            source, *rest, axes=[-1], epsilon=float(attrs.epsilon), center=bool(attrs.center),
            scale=bool(attrs.scale),
        )  # fmt: skip

    def _matmul(self, call: relax.Call) -> relax.Expr | None:
        """A matmul of what its operands were before reshapes that leave its matrices alone."""
        left, right = call.args
        source = self._reshaped(left)
        if source is None:
            return self._matmul_of_reshaped(call)
        own, given, other = _extents(source), _extents(left), _extents(right)
        if other is None or len(own) < 2:
            return None
        if len(other) == 2:
            if not _keeps_last(own, given, 1):
                return self._matmul_of_rows(call, source)
            return relax.op.matmul(source, right, out_dtype=call.attrs.out_dtype)
        if not _keeps_last(own, given, 2) or not _same_batches(given, other):
            return self._matmul_of_reshaped(call)
        second = self._emitted(self._reshape(right, relax.ShapeExpr([*own[:-2], *other[-2:]])))
        return relax.op.matmul(source, second, out_dtype=call.attrs.out_dtype)

    def _matmul_of_rows(self, call: relax.Call, source: relax.Expr) -> relax.Expr | None:
        """A matmul of rows, where what is reshaped to its operand could as well be rows.

        The prompts ``[1, n, k]`` and the tokens ``[b, 1, k]`` of a model then have one function.
        """
        left, right = call.args
        *outer, last = _extents(left)
        rows = [extent for extent in outer if not ir.is_constant(extent, 1)]
        if len(outer) < 2 or len(rows) > 1:
            return None
        shape = relax.ShapeExpr([*(rows or outer[:1]), last])
        return relax.op.matmul(
            self._emitted(self._reshape(source, shape)), right, out_dtype=call.attrs.out_dtype
        )

    def _matmul_of_reshaped(self, call: relax.Call) -> relax.Expr | None:
        """A batch of matmuls of what its second operand was before a reshape of the batch."""
        left, right = call.args
        source = self._reshaped(right)
        if source is None:
            return None
        own, given, other = _extents(source), _extents(right), _extents(left)
        if other is None or len(given) == 2 or not _same_batches(given, other):
            return None
        if not _keeps_last(own, given, 2):
            return None
        first = self._emitted(self._reshape(left, relax.ShapeExpr([*own[:-2], *other[-2:]])))
        return relax.op.matmul(first, source, out_dtype=call.attrs.out_dtype)


def _extents(expr: relax.Expr) -> list[Any] | None:
    extents = getattr(getattr(expr.ty, "shape", None), "values", None)
    return None if extents is None else list(extents)


def _same_batches(one: list[Any], other: list[Any]) -> bool:
    """Whether matmuls of operands of these shapes broadcast nothing."""
    return tvm_ffi.structural_equal(one[:-2], other[:-2])


def _uses(mod: tvm.IRModule) -> dict[relax.Var, int]:
    """How many calls read each variable."""
    counts: dict[relax.Var, int] = {}

    def visit(expr: relax.Expr) -> None:
        for one in expr.args if isinstance(expr, relax.Call) else ():
            if isinstance(one, relax.Var):
                counts[one] = counts.get(one, 0) + 1

    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            relax.analysis.post_order_visit(func, visit)
    return counts


def _is_split_along_last(expr: relax.Expr) -> bool:
    if not isinstance(expr, relax.Call) or expr.op != Op.get("relax.split"):
        return False
    count = len(_extents(expr.args[0]) or ())
    return bool(count) and int(expr.attrs.axis) % count == count - 1


def _viewed(own: list[Any] | None, source: list[Any], shape: list[Any]) -> list[Any] | None:
    """The shape of an operand of a result of the shape ``source``, which had the other shape.

    None if there is none: if dimensions are reshaped together that the operand is broadcast along
    some of.
    """
    if own is None or len(own) > len(shape):
        return None
    if tvm_ffi.structural_equal(own, shape):
        return source
    one = tirx.const(1, "int64")
    whole = [*[one] * (len(shape) - len(own)), *own]
    wanted: list[Any] = []
    for before, after in groups(source, shape) or _of_rows(source, shape):
        mine = [whole[d] for d in after]
        if tvm_ffi.structural_equal(mine, [shape[d] for d in after]):
            wanted += [source[d] for d in before]
        elif all(ir.is_constant(extent, 1) for extent in mine):
            wanted += [one] * len(before)
        else:
            return None
    # A vector stays one, and a scalar, too.
    while len(wanted) > len(own) and ir.is_constant(wanted[0], 1):
        wanted = wanted[1:]
    return wanted


def _of_rows(old: list[Any], new: list[Any]) -> list[Group]:
    """Groups of two shapes of the same elements: all dimensions, or all before the last."""
    last = int(bool(old) and bool(new) and tvm_ffi.structural_equal(old[-1], new[-1]))
    ends = [len(one) - last for one in (old, new)]
    found = [(range(ends[0]), range(ends[1]))]
    return [*found, *[(range(ends[0], ends[0] + 1), range(ends[1], ends[1] + 1))] * last]


def _keeps_last(old: list[Any], new: list[Any], count: int) -> bool:
    """Whether a reshape leaves the last dimensions as they are."""
    enough = min(len(old), len(new)) >= count
    return enough and tvm_ffi.structural_equal(old[-count:], new[-count:])


def _is_along_last(call: relax.Call, name: str) -> bool:
    value, count = getattr(call.attrs, name), len(_extents(call.args[0]) or ())
    if value is None or not count or not getattr(call.attrs, "keepdims", True):
        return False
    axes = [int(value)] if name == "axis" and isinstance(value, (int, tirx.IntImm)) else list(value)
    return [int(axis) % count for axis in axes] == [count - 1]
