"""The softmax of attention, block by block of keys, in statements of the language."""

from __future__ import annotations

import math
from typing import Any

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom.language.tiles import alloc_fragment

_LOG2E = math.log2(math.e)
#: Below every logit, and finite: the difference of two infinities is none, and a block may have no
#: key that a row sees.
_LOWEST = -1e30
#: Weights of a row that has seen no key sum to 0; its result is then 0, not NaN.
_LEAST = 1e-30


@T.meta_class
class OnlineSoftmax:
    """Weights of a softmax over columns that come block by block.

    Each row keeps its largest logit and the sum of its weights. Weights are relative to the largest
    logit so far; where a block brings a larger one, what was summed before shrinks. A masked logit
    is minus infinity. All that stands here, an author could write in a program himself.

    Parameters
    ----------
    rows : int
        Rows of the tile of logits.
    scale : float
        Factor of the logits, such as ``1 / sqrt(head_dim)``.

    Attributes
    ----------
    largest, shrink, total : Buffer
        Fragments ``(rows,)`` of float32: the largest logit of a row without its scale, the factor
        of what was summed before the last block, and the sum of the weights.

    Examples
    --------
    .. code-block:: python

        softmax = wl.OnlineSoftmax(BM, scale=1 / math.sqrt(D))
        Tx.cta.zero(acc)
        for s in wl.pipelined(blocks):
            ...
            S = wl.gemm(Q_s, K_s)
            softmax.update(S, acc)
            Tx.cta.gemm_async(acc, wl.cast(S, "float16"), V_s, transB=True, accum=True)
        softmax.divide(acc)
    """

    def __init__(self, rows: int, scale: float = 1.0) -> None:
        self._factor = scale * _LOG2E
        self._scale = scale
        self.largest = alloc_fragment((rows,))
        self.shrink = alloc_fragment((rows,))
        self.total = alloc_fragment((rows,))
        Tx.cta.fill(self.largest, T.float32(_LOWEST))
        Tx.cta.zero(self.total)

    @T.inline
    def weigh(self, S):
        """Logits ``S`` of a block become weights; ``shrink`` is for what was summed before."""
        Tx.cta.copy(self.shrink, self.largest)
        Tx.cta.max(self.largest, S, axes=(1,), accum=True)
        for i in T.serial(S.shape[0]):
            self.shrink[i] = T.exp2((self.shrink[i] - self.largest[i]) * T.float32(self._factor))
            self.total[i] = self.total[i] * self.shrink[i]
        for i, j in T.grid(S.shape[0], S.shape[1]):
            S[i, j] = T.exp2(
                S[i, j] * T.float32(self._factor) - self.largest[i] * T.float32(self._factor)
            )
        Tx.cta.sum(self.total, S, axes=(1,), accum=True)

    @T.inline
    def rescale(self, acc):
        """Shrink sums of weighted values ``acc``, ``(rows, columns)``, before a block is added."""
        for i, j in T.grid(acc.shape[0], acc.shape[1]):
            acc[i, j] = acc[i, j] * self.shrink[i]

    @T.inline
    def update(self, S, acc):
        """:meth:`weigh` the logits of a block, and :meth:`rescale` one accumulator."""
        self.weigh(S)
        self.rescale(acc)

    @T.inline
    def divide(self, acc):
        """Divide sums by those of the weights; a row that has seen no key is 0."""
        for i, j in T.grid(acc.shape[0], acc.shape[1]):
            acc[i, j] = acc[i, j] / T.max(self.total[i], T.float32(_LEAST))

    def log_of_sum(self, row: Any) -> Any:
        """An expression: log of the sum of exp of all scaled logits of a row, natural base.

        It is what parts of a sequence need to be merged, and what the backward pass begins with.
        """
        total = T.max(self.total[row], T.float32(_LEAST))
        return self.largest[row] * T.float32(self._scale) + T.log(total)
