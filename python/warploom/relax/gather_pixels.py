"""Convolutions whose pixels TMA cannot load become a gather of rows and a matmul.

The three channels of a picture are no multiple of 16 bytes, and the squares of a patch embedding
are further apart than TMA steps. A row for each pixel of the result then holds what its filters
see, zeros outside of the image and behind the last term; filters are padded likewise. Squares
that neither overlap nor leave gaps are a permutation.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, te, tirx

from warploom.decide.machine import Machine
from warploom.decide.machines import machine_for
from warploom.gemm.tf32 import allows_tf32
from warploom.relax.convolution import Convolution
from warploom.relax.layout_cost import gathered_row, saved_time


def GatherPixels(tf32: bool = False) -> tvm.transform.Pass:
    """A pass that makes matmuls of convolutions that TMA cannot load, where that pays.

    Results must have their channels last. To be run before ``LegalizeOps``.

    Parameters
    ----------
    tf32 : bool
        Whether float32 operands may be multiplied as tf32 in all functions.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.GatherPixels")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        machine = machine_for()
        gatherer = _Gatherer(mod, machine)
        for gv, func in mod.functions.items():
            if isinstance(func, relax.Function):
                gatherer.tf32 = tf32 or allows_tf32(func)
                gatherer.builder_.update_func(gv, gatherer.visit_expr(func))
        return gatherer.builder_.get()

    return run


@relax.expr_functor.mutator
class _Gatherer(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule, machine: Machine) -> None:
        super().__init__(mod)
        self.machine, self.tf32 = machine, False

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        found = Convolution.of(call)
        if found is None or not found.may_be_gemm(self.tf32) or not found.is_gathered:
            return call
        is_first = found.data == f"NC{found.moves}"
        if found.stored != found.last or not (is_first or found.data == found.last):
            return call
        # TVM has no convolution that changes the layout: such a one was decided to be gathered.
        if not is_first and saved_time(found, self.machine) <= 0:
            return call
        image, weights = call.args
        rows = self._squares(found, image) if _is_tiled(found) else self._gathered(found, image)
        order = f"OI{found.moves}" if is_first else f"O{found.moves}I"
        weights = self._emit_permuted(weights, [found.kernel.index(letter) for letter in order])
        row = gathered_row(found)
        weights = self.builder_.emit(relax.op.reshape(weights, (found.filters, row.runs, row.run)))
        if row.padded > row.run:
            rest = (0, 0, 0, 0, 0, row.padded - row.run)
            weights = self.builder_.emit(relax.op.nn.pad(weights, rest))
        weights = self.builder_.emit(relax.op.reshape(weights, (found.filters, row.columns)))
        weights = self.builder_.emit(relax.op.permute_dims(weights))
        return relax.op.matmul(rows, weights, out_dtype=str(call.ty.dtype))

    def _emit_permuted(self, tensor: relax.Expr, order: list[int]) -> relax.Expr:
        if order == sorted(order):
            return tensor
        return self.builder_.emit(relax.op.permute_dims(tensor, order))

    def _squares(self, found: Convolution, image: relax.Expr) -> relax.Expr:
        """The rows as a permutation of the image."""
        places = list(zip(found.result, found.taps, strict=True))
        split = {"N": [found.images], "C": [found.channels]}
        split |= {letter: list(place) for letter, place in zip(found.moves, places, strict=True)}
        image = self.builder_.emit(
            relax.op.reshape(image, [part for letter in found.data for part in split[letter]])
        )
        # Where the parts of each dimension are: squares, then what is in them.
        first, at = {}, 0
        for letter in found.data:
            first[letter] = at
            at += len(split[letter])
        squares = [first[letter] for letter in found.moves]
        inside = [first[letter] + (letter != "C") for letter in found.data if letter != "N"]
        image = self.builder_.emit(relax.op.permute_dims(image, [0, *squares, *inside]))
        shape = [found.images, *found.result, found.terms]
        return self.builder_.emit(relax.op.reshape(image, shape))

    def _gathered(self, found: Convolution, image: relax.Expr) -> relax.Expr:
        """The rows, element by element."""

        def columns(x: te.Tensor) -> te.Tensor:
            shape = (x.shape[0], *found.result, gathered_row(found).columns)
            return te.compute(shape, lambda *at: _element(found, x, at), "columns")

        return self.builder_.emit(
            self.builder_.call_te(columns, image, primfunc_name_hint="gather_pixels")
        )


def _is_tiled(found: Convolution) -> bool:
    """Whether the filters see squares that tile the image."""
    steps = [(e, t, s) for e, t, s in zip(found.size, found.taps, found.strides, strict=True)]
    fits = all(tap == step and extent % step == 0 for extent, tap, step in steps)
    whole = fits and not any((*found.before, *found.after)) and set(found.dilation) == {1}
    return whole and gathered_row(found).columns == found.terms


def _element(found: Convolution, x: te.Tensor, at: tuple[Any, ...]) -> Any:
    """What column ``at[-1]`` of the row of a pixel is: taps and channels in the data's order."""
    image, *pixel, column = at
    row = gathered_row(found)
    run, place = (column // row.padded, column % row.padded) if row.runs > 1 else (0, column)
    inside = [place < row.run] if row.padded > row.run else []
    channels_last = found.data == found.last
    extents = [*found.taps, found.channels] if channels_last else [found.channels, *found.taps]
    count = (2 if channels_last else 1) if row.runs > 1 else len(extents)
    parts = _digits(run, extents[:-count]) + _digits(place, extents[-count:])
    channel = parts.pop() if channels_last else parts.pop(0)
    where = {"N": image, "C": channel}
    for d, (letter, tap) in enumerate(zip(found.moves, parts, strict=True)):
        own = pixel[d] * found.strides[d] + tap * found.dilation[d] - found.before[d]
        if found.before[d]:
            inside.append(own >= 0)
        if found.before[d] or found.after[d]:
            inside.append(own < found.size[d])
        where[letter] = own
    value = x[tuple(where[letter] for letter in found.data)]
    zero = tirx.const(0, found.dtype)
    return tirx.if_then_else(tirx.all(*inside), value, zero) if inside else value


def _digits(number: Any, extents: list[int]) -> list[Any]:
    """A number in a system of several bases, the last digit the fastest; the first may exceed."""
    found = []
    for extent in reversed(extents[1:]):
        found.append(number % extent)
        number = number // extent
    return [number, *reversed(found)] if extents else []
