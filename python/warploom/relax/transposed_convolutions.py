"""A transposed convolution becomes a convolution whose channels are the pixels that it adds.

With a stride of s, a pixel of the result lies at one of s places between those of the image, and
sums every s-th tap of the filter. A convolution with s filters for each of the model's, one for
each place, computes them all; their channels are then put between the pixels. It multiplies nothing
by zero, and is a GEMM like other convolutions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax

from warploom.relax.attention import DTYPES
from warploom.relax.visiting import known_extents, operator_name, visited

#: By operator: the dimensions that a filter moves along.
_MOVES = {
    "relax.nn.conv1d_transpose": "W", "relax.nn.conv2d_transpose": "HW",
    "relax.nn.conv3d_transpose": "DHW",
}  # fmt: skip
_CONVOLVE = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}
#: Channels of 16 bits that TMA loads.
_UNIT = 8


def TurnTransposedConvolutions() -> tvm.transform.Pass:
    """A pass that makes convolutions of ``conv1d_transpose`` to ``conv3d_transpose``.

    Those of 16 bits, in NCHW, of one group and without dilation, whose channels are a multiple of
    8. To be run before passes that lay convolutions out and compute constants.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.TurnTransposedConvolutions")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return visited(mod, _Turner(mod))

    return run


@relax.expr_functor.mutator
class _Turner(relax.PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        name = operator_name(call)
        if name not in _MOVES or not _is_taken(call, _MOVES[name]):
            return call
        x, weight = call.args
        images = x.ty.shape.values[0]
        _, filters, *taps = known_extents(weight)
        strides = [int(one) for one in call.attrs.strides]
        steps = [-(-tap // stride) for tap, stride in zip(taps, strides, strict=True)]
        wide = self._filters(weight, strides, steps)
        padding = [step - 1 for step in steps]
        convolve = _CONVOLVE[len(taps)]
        made = self._emit(
            convolve(x, wide, padding=padding * 2, out_dtype=call.attrs.out_dtype or None)
        )
        count = len(taps)
        size = list(made.ty.shape.values[2:])
        apart = self._emit(relax.op.reshape(made, [images, *strides, filters, *size]))
        order = [0, 1 + count]
        for axis in range(count):
            order += [2 + count + axis, 1 + axis]
        turned = self._emit(relax.op.permute_dims(apart, order))
        whole = [extent * stride for extent, stride in zip(size, strides, strict=True)]
        between = self._emit(relax.op.reshape(turned, [images, filters, *whole]))
        first = [int(one) for one in call.attrs.padding][:count]
        wanted = call.ty.shape.values[2:]
        ends = [start + extent for start, extent in zip(first, wanted, strict=True)]
        if not any(first) and all(map(_same, ends, whole)):
            return between
        axes = list(range(2, 2 + count))
        return relax.op.strided_slice(between, axes, first, ends)

    def _filters(
        self, weight: relax.Expr, strides: Sequence[int], steps: Sequence[int]
    ) -> relax.Expr:
        """``[places * filters, channels, taps of a place...]``, the last tap first."""
        channels, filters, *taps = known_extents(weight)
        count = len(taps)
        missing = [
            step * stride - tap for step, stride, tap in zip(steps, strides, taps, strict=True)
        ]
        if any(missing):
            weight = self._emit(
                relax.op.nn.pad(weight, [0, 0, 0, 0, *(n for one in missing for n in (0, one))])
            )
        split = [n for pair in zip(steps, strides, strict=True) for n in pair]
        weight = self._emit(relax.op.reshape(weight, [channels, filters, *split]))
        for axis in range(count):
            if steps[axis] > 1:
                weight = self._emit(relax.op.flip(weight, 2 + 2 * axis))
        order = [*(3 + 2 * axis for axis in range(count)), 1, 0]
        order += [2 + 2 * axis for axis in range(count)]
        weight = self._emit(relax.op.permute_dims(weight, order))
        many = filters
        for stride in strides:
            many *= stride
        return self._emit(relax.op.reshape(weight, [many, channels, *steps]))

    def _emit(self, expr: relax.Expr) -> relax.Var:
        return self.builder_.emit(expr)


def _is_taken(call: relax.Call, moves: str) -> bool:
    """Whether a transposed convolution is one that is turned."""
    attrs, count = call.attrs, len(moves)
    shapes = [known_extents(one, skip) for one, skip in zip(call.args, (1, 0), strict=True)]
    if None in shapes or known_extents(call, 1) is None:
        return False
    layouts = (str(attrs.data_layout), str(attrs.out_layout) or f"NC{moves}")
    if layouts != (f"NC{moves}",) * 2 or str(attrs.kernel_layout) != f"IO{moves}":
        return False
    if int(attrs.groups) != 1 or any(int(one) != 1 for one in attrs.dilation):
        return False
    if not {str(one.ty.dtype) for one in call.args} <= DTYPES or shapes[1][0] % _UNIT:
        return False
    # The result has no more pixels than filters reach.
    first = [int(one) for one in attrs.padding][:count]
    strides = [int(one) for one in attrs.strides]
    return all(
        start + extent <= stride * (size + -(-tap // stride) - 1)
        for start, extent, stride, size, tap in zip(
            first, known_extents(call, 1)[1:], strides, shapes[0][1:], shapes[1][2:], strict=True
        )
    )


def _same(one: Any, other: Any) -> bool:
    return int(one) == int(other)
