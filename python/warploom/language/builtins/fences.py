"""Fences between the generic proxy and the asynchronous one."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

from warploom.errors import IllegalCombination

#: State spaces that ``fence.proxy.async`` may be restricted to.
SPACES = ("global", "shared::cta", "shared::cluster")


def fence_proxy_async(space: str | None = None) -> Any:
    """Order earlier accesses of threads to memory before later accesses of TMA or the tensor core.

    Between stores of threads to shared memory and an asynchronous read of it, for instance.

    Parameters
    ----------
    space : str, optional
        One of :data:`SPACES`: only accesses to that memory are ordered.

    Returns
    -------
    Call
        ``fence.proxy.async`` (PTX ISA, "membar / fence").

    Raises
    ------
    IllegalCombination
        If there is no such space.

    Examples
    --------
    .. code-block:: python

        target = wl.create_tma_descriptor(B, (128,))  # before T.device_entry()
        tile[t] = A[t]
        wl.fence_proxy_async("shared::cta")
        wl.sync_threads()
        if t == 0:
            T.ptx["cp.async.bulk.tensor.1d.global.shared::cta.bulk_group"](
                T.address_of(target), 0, tile.ptr_to([0])
            )
            wl.tma_store_arrive()
            wl.tma_store_wait()
        # B == A
    """
    if space is not None and space not in SPACES:
        raise IllegalCombination(
            f"fence_proxy_async of {space!r}; the space must be one of "
            f"{', '.join(map(repr, SPACES))}, or be left out."
        )
    return T.ptx["fence.proxy.async" + (f".{space}" if space else "")]()
