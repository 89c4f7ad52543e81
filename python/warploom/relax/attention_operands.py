"""Operands of attention where a model has them: what its views are of, and which heads of that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from tvm import relax

from warploom.errors import IllegalCombination
from warploom.programs.heads_in_memory import HeadsInMemory
from warploom.relax.strided_views import Atom, StridedView, equal, plain, product, strided_view

#: The order of dimensions of operands of ``relax.op.nn.attention``: batch, tokens, heads, elements.
_LETTERS = "bth"
#: A dimension of one element.
_ONE = Atom(1, 0)


@dataclass(frozen=True)
class Placed:
    """An operand of an attention.

    Attributes
    ----------
    tensor : Expr
        The tensor that it is in, of any number of dimensions.
    heads : HeadsInMemory
    shape : tuple
        Of the operand: batch, tokens, heads, elements. Heads are those in memory, each of which
        ``repeats`` heads of the model share.
    """

    tensor: relax.Expr
    heads: HeadsInMemory
    shape: tuple[Any, ...]

    @property
    def in_memory(self) -> tuple[Any, ...]:
        """The shape of the tensor, as a kernel reads it."""
        batch, tokens, heads, elements = self.shape
        return self.heads.shape(batch, tokens, heads, elements)

    def as_model_has_it(self, tensor: relax.Expr, emit: Callable[..., relax.Expr]) -> relax.Expr:
        """The operand, of a tensor with the shape in memory."""
        axis, heads = self.heads.order.index("h"), self.heads
        if heads.heads not in (None, self.shape[2]):
            end = heads.first + (self.shape[2] - 1) * heads.step + 1
            tensor = emit(
                relax.op.strided_slice(tensor, [axis], [heads.first], [end], [heads.step])
            )
        order = [heads.order.index(letter) for letter in _LETTERS]
        return tensor if order == [0, 1, 2] else emit(relax.op.permute_dims(tensor, [*order, 3]))


def placed(lookup: Callable[[relax.Expr], relax.Expr], expr: relax.Expr) -> Placed:
    """Where an operand ``[batch, tokens, heads, elements]`` lies.

    Parameters
    ----------
    lookup : callable
        What a variable is bound to.
    expr : Expr
    """
    view = strided_view(lookup, expr)
    found = _in_orders(view)
    if found is None:
        return as_it_is(expr)
    heads, shape = found
    return Placed(view.source, heads, shape)


def as_it_is(expr: relax.Expr) -> Placed:
    """An operand that is read where the model has it."""
    return Placed(expr, HeadsInMemory(), tuple(map(plain, expr.ty.shape.values)))


def _in_orders(view: StridedView) -> tuple[HeadsInMemory, tuple[Any, ...]] | None:
    """The heads of a view, and its shape; None if TMA loads no rows of them."""
    *outer, elements = view.dimensions
    if not isinstance(view.offset, int) or len(elements) != 1:
        return None
    if not (isinstance(elements[0].extent, int) and equal(elements[0].stride, 1)):
        return None
    named = dict(zip(_LETTERS, outer, strict=True))
    *heads, last = named["h"] or (_ONE,)
    if heads and equal(last.stride, 0):  # each of them for several heads of the model
        named["h"] = tuple(heads)
    if any(len(atoms) > 1 for atoms in named.values()):
        return None
    single = {letter: atoms[0] if atoms else _ONE for letter, atoms in named.items()}
    if not isinstance(single["h"].extent, int):
        return None
    size: Any = 1
    for extent in view.source.ty.shape.values:
        size = product(size, plain(extent))
    for order in ("bth", "bht", *map("".join, permutations(_LETTERS))):
        made = _in_order(single, order, elements[0].extent, view.offset, size)
        if made is not None:
            shape = (*(single[letter].extent for letter in _LETTERS), elements[0].extent)
            return made, shape
    return None


def _in_order(
    named: dict[str, Atom], order: Sequence[str], elements: int, offset: int, size: Any
) -> HeadsInMemory | None:
    """The heads if dimensions are in an order, from the outermost on; None if they are not."""
    unit: Any = elements
    whole = first = step = 1
    for number, letter in reversed(list(enumerate(order))):
        one = named[letter]
        if letter != "h":
            if one.extent != 1 and not equal(one.stride, unit):
                return None
            unit = product(unit, one.extent)
            continue
        outer = [named[other] for other in order[:number] if named[other].extent != 1]
        around = outer[-1].stride if outer else size
        found = _heads(one, unit, around, offset)
        if found is None:
            return None
        whole, first, step = found
        unit = product(unit, whole)
    if not equal(unit, size):
        return None
    plain = (whole, first, step) == (named["h"].extent, 0, 1)
    try:
        heads = HeadsInMemory("".join(order), None if plain else whole, first, step)
        heads.shape(1, 1, named["h"].extent, elements)
    except IllegalCombination:
        return None
    return heads


def _heads(
    heads: Atom, unit: Any, around: Any, offset: int
) -> tuple[int, int, int] | None:
    """Heads of a tensor, the first and the step, from the stride of what is around them."""
    if not all(isinstance(one, int) for one in (unit, around, heads.stride)):
        # Sizes that the launch knows: the tensor has these heads and no others.
        alone = heads.extent == 1 or equal(heads.stride, unit)
        fits = alone and equal(around, product(unit, heads.extent)) and offset == 0
        return (heads.extent, 0, 1) if fits else None
    step = 1 if heads.extent == 1 else heads.stride // unit
    if offset % unit or around % unit or (heads.extent > 1 and heads.stride != step * unit):
        return None
    return around // unit, offset // unit, max(1, step)
