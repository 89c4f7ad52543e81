"""Where the heads of tokens lie in a tensor: the operands of attention as models have them.

A linear layer that computes q, k and v together leaves them in one tensor, and models have tokens
or heads first, or the batch behind the tokens. TMA loads rows of a head from each of these, so that
nothing need be copied before an attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from warploom.errors import IllegalCombination

#: Dimensions before the elements of a head: batch, tokens, heads.
_LETTERS = "bth"


@dataclass(frozen=True)
class HeadsInMemory:
    """Which heads of a tensor of four dimensions, and their order; elements are the last one.

    Attributes
    ----------
    order : str
        The other dimensions, by their letters: batch, tokens, heads.
    heads : int or None
        Heads of the tensor; None for those that the operand has.
    first, step : int
        Head ``h`` of the operand is head ``first + h * step`` of the tensor.

    Examples
    --------
    Keys behind 16 heads of queries, before as many of values:

    >>> HeadsInMemory("bth", 48, first=16).shape(1, 197, 16, 64)
    (1, 197, 48, 64)
    """

    order: str = "bth"
    heads: int | None = None
    first: int = 0
    step: int = 1

    def __post_init__(self) -> None:
        if sorted(self.order) != sorted(_LETTERS):
            raise IllegalCombination(
                f"order is {self.order!r}; it has each of the letters of {_LETTERS!r} once: batch, "
                "tokens, heads."
            )
        if self.first < 0 or self.step < 1:
            raise IllegalCombination(
                f"first is {self.first} and step {self.step}; they must be at least 0 and 1."
            )

    def shape(self, batch: Any, tokens: Any, heads: int, elements: int) -> tuple[Any, ...]:
        """The shape of the tensor.

        Parameters
        ----------
        batch, tokens : int or Var
        heads : int
            Of the operand.
        elements : int
            Of a head.

        Raises
        ------
        IllegalCombination
            If the tensor has too few heads.
        """
        whole = heads if self.heads is None else self.heads
        if self.first + (heads - 1) * self.step >= whole:
            raise IllegalCombination(
                f"head {heads - 1} of an operand is head {self.first + (heads - 1) * self.step} of "
                f"a tensor that has {whole}."
            )
        sizes = {"b": batch, "t": tokens, "h": whole}
        return (*(sizes[letter] for letter in self.order), elements)

    def rows(self, of: Any, b: Any, h: Any, start: Any, count: int, elements: int) -> Any:
        """The region of some rows of one head of the operand, of a buffer with this shape."""
        head = h if (self.first, self.step) == (0, 1) else self.first + h * self.step
        places = {"b": b, "h": head, "t": slice(start, start + count)}
        return of[(*(places[letter] for letter in self.order), slice(0, elements))]


#: Tokens before heads, and heads before tokens.
TOKENS_FIRST, HEADS_FIRST = HeadsInMemory("bth"), HeadsInMemory("bht")
