"""Builtins that complete MMAs of Blackwell's tensor core."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

from warploom.errors import IllegalCombination
from warploom.language.builtins.mbarriers import barrier_pointer
from warploom.language.builtins.operands import constant, word


def tcgen05_mma_arrive(mbar: Any, cta_group: int = 1, cta_mask: Any = None) -> Any:
    """Arrive at an mbarrier when all tcgen05 work that this thread has issued is complete.

    Parameters
    ----------
    mbar : Buffer, TensorLoad or pointer
        The mbarrier, of this CTA.
    cta_group : int
        CTAs that multiply together, 1 or 2.
    cta_mask : int or Expr, optional
        CTAs of the cluster, a bit each, whose mbarriers at the same place get the arrival.

    Returns
    -------
    Call
        ``tcgen05.commit`` (PTX ISA, "tcgen05.commit"), of sm_100a.

    Raises
    ------
    IllegalCombination
        If ``mbar`` is no mbarrier, or the group or the mask does not exist.

    Examples
    --------
    .. code-block:: python

        done = wl.alloc_barrier(1)
        if t == 0:
            # tcgen05.mma, one or several
            wl.tcgen05_mma_arrive(done)
        wl.mbarrier_wait_parity(done, 0)
    """
    address = barrier_pointer(mbar)
    group = constant("cta_group", cta_group, range(1, 3))
    name = f"tcgen05.commit.cta_group::{group}.mbarrier::arrive::one.shared::cluster"
    if cta_mask is None:
        return T.ptx[f"{name}.b64"](address)
    if cta_mask == 0:
        raise IllegalCombination("cta_mask is 0; it must name at least one CTA.")
    return T.ptx[f"{name}.multicast::cluster.b64"](address, word("cta_mask", cta_mask, "uint16"))
