"""The form in which op schedules are handed to :mod:`warploom.plugin`, which registers them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """One variant of a tile primitive for CUDA targets.

    Attributes
    ----------
    op : str
        Name of the tile primitive, e.g. ``"gemm_async"``.
    variant : str
        Name for ``dispatch=``.
    priority : int
        Variants of higher priority are tried first; stock's are at 0 to 20.
    when : tuple of (name, predicate)
        All must hold; a predicate takes ``(call, context)`` and returns ``bool`` or
        ``(bool, reason)``.
    impl : callable
        Takes ``(call, context)`` and returns a ``PrimFunc``, or declines with ``fail(reason)``.
    """

    op: str
    variant: str
    priority: int
    when: tuple[tuple[str, Callable], ...]
    impl: Callable
