"""Orders of small weights in words of 32 bits, for :mod:`warploom.programs.gemm_quantised`.

Any order computes the same; they differ in how a thread finds its weights. The fragment of operand
A of ``wgmma`` gives a thread two neighbours of K in every 8, so that in natural order it uses one
byte of each word of 4-bit weights that it loads. In the order of fragments all that a thread loads
is its own, 16 bytes at a time, and neighbours lie 16 bits apart, as the halves of a word want them.
Weights do not change, so it costs nothing to store them like that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

#: Neighbours of K that a thread has in 8, threads that share these 8, words of a 16-byte load.
_PAIR, _THREADS, _VECTOR = 2, 4, 4


def natural(z: Any, bits: int) -> tuple[Any, Any]:
    """Weight z of a row: its word, and its lowest bit there; the first weight is lowest."""
    each = 32 // bits
    return z // each, z % each * bits


def fragments(z: Any, bits: int) -> tuple[Any, Any]:
    """As :func:`natural`; K is a multiple of ``512 / bits``.

    A block of ``512 / bits`` weights has 4 words for each of 4 threads. Word w of thread t has
    its weights of ``128 / bits`` neighbours, pair after pair, the first of each pair in the low
    half and the second in the high half.
    """
    each = 32 // bits
    word_span = each * _THREADS
    block = word_span * _VECTOR
    thread, part = z % 8 // _PAIR, z % block // word_span
    word = z // block * (_THREADS * _VECTOR) + thread * _VECTOR + part
    pair, which = z % word_span // 8, z % _PAIR
    return word, which * 16 + pair * bits


#: Name -> order.
WEIGHT_ORDERS: dict[str, Callable[[Any, int], tuple[Any, Any]]] = {
    "natural": natural, "fragments": fragments
}  # fmt: skip


def weights_of_block(bits: int, order: str) -> int:
    """Weights of a row that are stored together: K of a step is a multiple.

    Examples
    --------
    >>> weights_of_block(4, "fragments")
    128
    """
    return 512 // bits if order == "fragments" else 32 // bits


def pack_weights(weights: np.ndarray, bits: int = 4, order: str = "fragments") -> np.ndarray:
    """The words of a matrix of weights.

    Parameters
    ----------
    weights : ndarray of int
        ``(n, k)``, from ``-2**(bits - 1)`` to ``2**(bits - 1) - 1``.
    bits : int
        4 or 8.
    order : str
        A key of :data:`WEIGHT_ORDERS`.

    Returns
    -------
    ndarray of uint32
        ``(n, k * bits / 32)``; every weight is stored as weight + ``2**(bits - 1)``.

    Raises
    ------
    ValueError
        If a weight has more bits, or the order does not divide a row into whole blocks.

    Examples
    --------
    >>> weights = np.random.default_rng(0).integers(-8, 8, (64, 128))
    >>> programs.pack_weights(weights, bits=4).shape
    (64, 16)
    """
    n, k = weights.shape
    half = 1 << bits - 1
    if weights.min(initial=0) < -half or weights.max(initial=0) >= half:
        raise ValueError(f"Weights of {bits} bits are {-half} to {half - 1}; scale them first.")
    block = weights_of_block(bits, order)
    if k % block:
        raise ValueError(
            f"Rows have {k} weights; the order {order!r} of {bits}-bit weights wants multiples of "
            f"{block}, so pad them."
        )
    each = 32 // bits
    word, shift = WEIGHT_ORDERS[order](np.arange(k), bits)
    # Which weight has the lowest bits of the first word, which the next, and so on.
    position = np.empty(k, np.intp)
    position[word * each + shift // bits] = np.arange(k)
    fields = (weights.astype(np.int16) + half).astype(np.uint8)[:, position]
    fields = fields.reshape(n, k // each, each)
    words = np.zeros((n, k // each), np.uint32)
    for field in range(each):
        words |= fields[:, :, field].astype(np.uint32) << np.uint32(field * bits)
    return words
