"""Copies of threads that an mbarrier waits for."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

from warploom.language.builtins.mbarriers import barrier_pointer


def cp_async_barrier_noinc(barrier: Any) -> Any:
    """Arrive at an mbarrier when all ``cp.async`` that this thread has issued are complete.

    The arrival is one of those that the mbarrier was initialised for.

    Parameters
    ----------
    barrier : Buffer, TensorLoad or pointer
        The mbarrier, of this CTA.

    Returns
    -------
    Call
        ``cp.async.mbarrier.arrive.noinc`` (PTX ISA, "cp.async.mbarrier.arrive").

    Raises
    ------
    IllegalCombination
        If ``barrier`` is no mbarrier.
    """
    return T.ptx["cp.async.mbarrier.arrive.noinc.shared::cta.b64"](barrier_pointer(barrier))
