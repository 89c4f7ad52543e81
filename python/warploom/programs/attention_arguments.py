"""Which heads, masks, biases and soft caps attention programs take."""

from __future__ import annotations

import math

from warploom.errors import IllegalCombination

#: Elements of a head: a thread then holds 128 of the sums of 64 rows, and no more fit beside the
#: logits and weights of a step.
_MOST_ELEMENTS = 256
#: Words for ``causal=``, as relax.op.nn.attention has them.
_CAUSAL = ("TopLeft", "BottomRight")
#: Letters of ``bias=``, in the order of its dimensions.
BIAS = "bhq"


def check_heads(head_dim: int, value_dim: int, heads: int, kv_heads: int) -> None:
    """Raise unless there is a kernel for such heads.

    Raises
    ------
    IllegalCombination
        The message names the size and what is allowed.
    """
    for name, elements in (("head_dim", head_dim), ("value_dim", value_dim)):
        if elements % 8 or not 0 < elements <= _MOST_ELEMENTS:
            raise IllegalCombination(
                f"{name} is {elements}; TMA and the registers of a tile take multiples of 8 up to "
                f"{_MOST_ELEMENTS}, so pad the heads."
            )
    if heads % kv_heads:
        raise IllegalCombination(
            f"{heads} heads cannot share {kv_heads} of K and V evenly; kv_heads must divide heads."
        )


def check_mask(causal: bool | str, bias: str | None) -> None:
    """Raise unless there is a kernel for such a mask and bias.

    Raises
    ------
    IllegalCombination
        The message names the argument and what is allowed.
    """
    if causal not in (False, True, *_CAUSAL):
        raise IllegalCombination(
            f"causal is {causal!r}; it can be True, False, {' or '.join(map(repr, _CAUSAL))}."
        )
    if bias is not None and list(bias) != [letter for letter in BIAS if letter in bias]:
        raise IllegalCombination(
            f"bias is {bias!r}; it names dimensions of the bias by letters of {BIAS!r}, in this "
            "order: batch, heads, queries."
        )


def check_soft_cap(soft_cap: float | None) -> None:
    """Raise unless logits can be capped so.

    Raises
    ------
    IllegalCombination
        The message names the cap and what is allowed.
    """
    if soft_cap is not None and not 0 < soft_cap < math.inf:
        raise IllegalCombination(
            f"soft_cap is {soft_cap}; it must be a number above 0, or None for logits without one."
        )
