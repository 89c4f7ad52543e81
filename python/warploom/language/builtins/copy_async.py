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

    Examples
    --------
    .. code-block:: python

        full = wl.alloc_barrier(128)
        T.ptx["cp.async.ca.shared.global"](tile.ptr_to([t]), A.ptr_to([t]), 4)
        wl.cp_async_barrier_noinc(full)
        wl.mbarrier_wait_parity(full, 0)
        B[t] = tile[127 - t]
        # B == A[::-1]
    """
    return T.ptx["cp.async.mbarrier.arrive.noinc.shared::cta.b64"](barrier_pointer(barrier))
