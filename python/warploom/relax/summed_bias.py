"""Several tensors that are added to the logits of an attention, as one bias.

A Swin transformer adds the positions within a window, and, where windows are shifted, a mask of
each window of an image: for that it splits the batch into images and windows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import relax
from tvm.tirx import IntImm

#: Dimensions of logits: batch, heads, queries, keys; and those behind the batch.
_DIMENSIONS, _LATER = 4, 3


@dataclass(frozen=True)
class Term:
    """A tensor that is added, and the shape of the sum."""

    tensor: relax.Expr
    shape: Any


class SummedBias:
    """Makes one bias of what is added to logits.

    Parameters
    ----------
    emit : callable
        Binds an expression to a variable.
    """

    def __init__(self, emit: Callable[[relax.Expr], relax.Expr]) -> None:
        self.emit = emit

    def of(self, terms: list[Term], product: relax.Call) -> relax.Expr | None:
        """The sum of all terms: it is added to logits of the product's shape, perhaps by turns.

        Returns
        -------
        Expr or None
            None if the logits were reshaped in another way than into parts of the batch.
        """
        shape = _extents(product.ty.shape)
        if len(terms) == 1 and tvm_ffi.structural_equal(_extents(terms[0].shape), shape):
            return terms[0].tensor
        if shape is None:
            return None
        viewed = [self._viewed(term, shape) for term in terms]
        if any(one is None for one in viewed):
            return None
        batches = {int(one.ty.shape.values[0]) for one in viewed} - {1}
        if len(batches) > 1:
            return None
        if len({str(one.ty.dtype) for one in viewed}) > 1:
            viewed = [self.emit(relax.op.astype(one, "float32")) for one in viewed]
        total, *rest = viewed
        for one in rest:
            total = self.emit(relax.op.add(total, one))
        return total

    def _viewed(self, term: Term, shape: list[Any]) -> relax.Expr | None:
        """A term with four dimensions, the first of which is the batch that has it in turn."""
        added, own = _extents(term.shape), _extents(term.tensor.ty.shape)
        if added is None or own is None or len(added) < _DIMENSIONS:
            return None
        if not all(isinstance(one, IntImm) for one in (*added, *own)):
            return None
        if not tvm_ffi.structural_equal(added[-_LATER:], shape[-_LATER:]):
            return None
        added, own = ([int(one) for one in extents] for extents in (added, own))
        own = [*[1] * (len(added) - len(own)), *own]
        outer, batches = own[:-_LATER], added[:-_LATER]
        turns = math.prod(outer)
        # Only the first dimensions of the batch may be broadcast.
        if turns != math.prod(batches[len(batches) - sum(one > 1 for one in outer) :]):
            return None
        own = [turns, *own[-_LATER:]]
        return self.emit(relax.op.reshape(term.tensor, own))


def _extents(shape: Any) -> list[Any] | None:
    values = getattr(shape, "values", None)
    return None if values is None else list(values)
