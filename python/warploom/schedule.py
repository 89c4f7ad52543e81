"""Scheduling primitives on ``tvm.s_tir.Schedule``.

A decision is an annotation of the block with the sum. Traces with such decisions replay, mutate
and go into databases as any other, and functions that carry them become tile programs when TVM
compiles them::

    sch = s_tir.Schedule(matmul)
    warploom.schedule.gemm_async(sch, "matmul", tile=(128, 256, 64), stages=4)
    executable = tvm.compile(sch.mod, warploom.cuda_target("h200"))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm.s_tir import Schedule

from warploom.decide.config import Config
from warploom.errors import IllegalCombination
from warploom.gemm.annotations import annotate
from warploom.gemm.recognition import recognise

__all__ = ["gemm_async"]

_PARTS = {"tile": ("tile_m", "tile_n", "tile_k"), "cluster": ("cluster_m", "cluster_n")}


def gemm_async(
    sch: Schedule,
    block: Any,
    *,
    tile: Sequence[Any] | None = None,
    cluster: Sequence[Any] | None = None,
    func_name: str = "main",
    **config: Any,
) -> None:
    """Compute a GEMM with the asynchronous tensor core.

    Parameters
    ----------
    sch : Schedule
        Of a function that :func:`warploom.gemm.recognise` takes, otherwise unscheduled.
    block : SBlockRV or str
        The block with the sum, or its name.
    tile : (int, int, int), optional
        Rows, columns and depth of the tile of a CTA.
    cluster : (int, int), optional
        CTAs of a cluster along rows and columns.
    func_name : str
        The function of ``sch.mod``.
    **config : int, bool or str, optional
        Other attributes of :class:`warploom.decide.Config`. All values, also those of ``tile``
        and ``cluster``, may be results of ``sch.sample_categorical``. A missing decision has the
        default of :class:`~warploom.decide.Config`.

    Raises
    ------
    IllegalCombination
        If there is no choice of a name, the block is not the one with the sum, or all values are
        known and no kernel can have them.
    Decline
        If the function is no GEMM.

    Examples
    --------
    >>> sch = tvm.s_tir.Schedule(matmul)  # doctest: +SKIP
    >>> gemm_async(sch, "matmul", tile=(128, 256, 64), stages=4, cluster=(2, 1))  # doctest: +SKIP
    >>> executable = tvm.compile(sch.mod, warploom.cuda_target("h200"))  # doctest: +SKIP
    """
    gemm = recognise(sch.mod[func_name])
    if isinstance(block, str):
        block = sch.get_sblock(block, func_name)
    name = sch.get(block).name_hint
    if name != gemm.anchor:
        raise IllegalCombination(
            f"block {name!r} has no sum of products; the one that has is {gemm.anchor!r}."
        )
    chosen = dict(config)
    for key, values in (("tile", tile), ("cluster", cluster)):
        if values is not None:
            chosen |= dict(zip(_PARTS[key], values, strict=True))
    Config.check_names(chosen)
    if all(isinstance(value, int | str) for value in chosen.values()):
        wanted = Config.of(chosen)
        wanted.check(gemm.problem)
        chosen = chosen or wanted.values()
    annotate(sch, block, chosen)
