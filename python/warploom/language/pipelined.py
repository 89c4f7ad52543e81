"""``wl.pipelined``: a sequential loop that may be lowered as a pipeline."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

from warploom.tile.choices import require_positive

#: Annotation of a pipelined loop; its value is 1.
PIPELINED = "warploom.pipelined"
#: Annotation with the number of stages, if the author chose one.
STAGES = "warploom.stages"


def pipelined(extent: Any, stages: int | None = None) -> Any:
    """A loop whose loads may run ahead of the work that uses them.

    It means the same as ``T.serial(extent)``. The passes look for the loads of its body, and give
    every tile that is loaded as many copies as the pipeline has stages.

    Parameters
    ----------
    extent : int or integer expression
        Number of iterations, zero included; it may be known on the device only.
    stages : int, optional
        Copies of each tile that is loaded, at least 1. Left out, the passes choose as many as
        shared memory has room for.

    Returns
    -------
    ForFrame
        To be iterated over: ``for k in wl.pipelined(K // BK, stages=4):``.

    Raises
    ------
    IllegalCombination
        If ``stages`` is no integer, or less than 1.

    Examples
    --------
    .. code-block:: python

        for k in wl.pipelined(K // BK, stages=4):
            A_s = wl.load(A, (i, k), (BM, BK))
            B_s = wl.load(B, (j, k), (BN, BK))
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
    """
    annotations: dict[str, int] = {PIPELINED: 1}
    if stages is not None:
        annotations[STAGES] = require_positive("stages", stages)
    return T.serial(extent, annotations=annotations)
