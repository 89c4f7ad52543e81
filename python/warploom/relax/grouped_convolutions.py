"""Convolutions of groups of several channels become GEMMs of blocks of groups.

A block is a convolution of its own (:mod:`warploom.relax.group_blocks`): blocks are the batch of a
GEMM whose rows are pixels. Where one block has all groups, it is a convolution without groups.
Filters get zeros between the groups; those that are constants, once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from warploom.gemm.tf32 import allows_tf32
from warploom.relax.convolution import Convolution
from warploom.relax.group_blocks import GroupBlocks, group_blocks
from warploom.relax.visiting import visited


def BlockGroups(tf32: bool = False) -> tvm.transform.Pass:
    """A pass that makes convolutions of blocks of those with groups of several channels.

    Those of lines and images of 16 bits, whose channels are last. To be run behind
    :func:`warploom.relax.convolutions.LayOutConvolutions`, before constants are computed and before
    ``LegalizeOps``.

    Parameters
    ----------
    tf32 : bool
        Whether float32 operands may be multiplied as tf32 in all functions; without it, in those
        with the attribute ``warploom.tf32``.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.BlockGroups")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return visited(mod, _Blocker(mod, tf32))

    return run


@relax.expr_functor.mutator
class _Blocker(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule, tf32: bool) -> None:
        super().__init__(mod)
        self.allowed, self.tf32 = tf32, tf32

    def visit_function_(self, func: relax.Function) -> relax.Expr:
        self.tf32 = self.allowed or allows_tf32(func)
        return super().visit_function_(func)

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        found = Convolution.of(call)
        if found is None or not found.may_be_blocks(self.tf32):
            return call
        blocks = group_blocks(found)
        if blocks is None or found.data != found.last or found.stored != found.last:
            return call
        weights = self._filters(call.args[1], found, blocks)
        if blocks.count == 1:
            return self._without_groups(call, found, weights)
        shape = [*call.args[0].ty.shape.values[:-1], blocks.count, blocks.channels]
        image = self._emit(relax.op.reshape(call.args[0], shape))
        made = self.builder_.call_te(
            lambda x, w: _convolution(x, w, found, str(call.ty.dtype)), image, weights,
            primfunc_name_hint=f"grouped_conv{len(found.moves)}d",
        )  # fmt: skip
        return relax.op.reshape(self._emit(made), call.ty.shape)

    def _without_groups(
        self, call: relax.Call, found: Convolution, weights: relax.Expr
    ) -> relax.Expr:
        shape = [found.filters, *found.taps, found.channels]
        convolve = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d}[len(found.moves)]
        return convolve(
            call.args[0], self._emit(relax.op.reshape(weights, shape)), strides=found.strides,
            padding=(*found.before, *found.after), dilation=found.dilation, data_layout=found.last,
            kernel_layout=f"O{found.moves}I", out_dtype=str(call.ty.dtype),
        )  # fmt: skip

    def _filters(
        self, weights: relax.Expr, found: Convolution, blocks: GroupBlocks
    ) -> relax.Expr:
        """``[blocks, filters, taps..., channels]`` of each block, zeros between its groups."""
        order = [found.kernel.index(letter) for letter in f"O{found.moves}I"]
        if order != sorted(order):
            weights = self._emit(relax.op.permute_dims(weights, order))
        many, (filters, channels) = blocks.groups, _of_a_group(blocks)
        apart = [blocks.count, many, filters, *found.taps, 1, channels]
        weights = self._emit(relax.op.reshape(weights, apart))
        if many > 1:
            own = np.eye(many, dtype=bool).reshape(many, 1, *[1] * len(found.taps), many, 1)
            zero = relax.const(np.zeros((), found.dtype), found.dtype)
            weights = self._emit(relax.op.where(relax.const(own), weights, zero))
        shape = [blocks.count, blocks.filters, *found.taps, blocks.channels]
        return self._emit(relax.op.reshape(weights, shape))

    def _emit(self, expr: relax.Expr) -> relax.Expr:
        return self.builder_.emit(expr)


def _of_a_group(blocks: GroupBlocks) -> tuple[int, int]:
    return blocks.filters // blocks.groups, blocks.channels // blocks.groups


def _convolution(x: te.Tensor, w: te.Tensor, found: Convolution, dtype: str) -> te.Tensor:
    """``[images, pixels..., blocks, filters]`` of blocks of channels and filters."""
    taps = [te.reduce_axis((0, extent), "tap") for extent in found.taps]
    channel = te.reduce_axis((0, w.shape[-1]), "channel")

    def element(*at: Any) -> Any:
        image, *pixel, block, column = at
        place = [
            pixel[d] * found.strides[d] + tap * found.dilation[d] - found.before[d]
            for d, tap in enumerate(taps)
        ]
        value = x[(image, *place, block, channel)]
        inside = [one >= 0 for one, wide in zip(place, found.before, strict=True) if wide]
        inside += [
            one < size
            for one, size, *wide in zip(place, found.size, found.before, found.after, strict=True)
            if any(wide)
        ]
        if inside:
            value = tirx.if_then_else(tirx.all(*inside), value, tirx.const(0, found.dtype))
        factors = value.astype(dtype), w[(block, column, *taps, channel)].astype(dtype)
        return te.sum(factors[0] * factors[1], [*taps, channel])

    shape = (x.shape[0], *found.result, w.shape[0], w.shape[1])
    return te.compute(shape, element, "convolution")
