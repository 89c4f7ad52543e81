"""Mbarriers: waits for a parity, arrivals here and in other CTAs, bytes to expect.

An mbarrier is a 64-bit word in shared memory: a buffer of scope ``mbarrier`` or of dtype uint64,
an element of one, or a pointer to one. :mod:`warploom.language.mbarrier` says how phases and
parities follow each other; it serves tile programs, where the thread that executes a statement is
not said.

Sources: PTX ISA, "mbarrier.arrive", "mbarrier.expect_tx", "mbarrier.test_wait/try_wait", "mapa".
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

from warploom.errors import IllegalCombination
from warploom.language.builtins.device_code import assembly
from warploom.language.builtins.operands import is_place, known, parity_of, place, pointer, word
from warploom.target.tma import TMA
from warploom.tile.mbarriers import WAIT_WITH_HINT

#: CTAs that a cluster may have where the kernel asks for it (CUDA Programming Guide, "Clusters").
_MAX_RANK = 15


def barrier_pointer(mbarrier: Any) -> Any:
    """The address of an mbarrier.

    Raises
    ------
    IllegalCombination
        If it is a place in a buffer that is not uint64, or no place at all.
    """
    if is_place(mbarrier):
        buffer, _ = place("mbarrier", mbarrier)
        if str(buffer.dtype) != "uint64":
            raise IllegalCombination(
                f"mbarrier is an element of {buffer.name}, which is {buffer.dtype}; mbarriers are "
                "uint64 in shared memory."
            )
    return pointer("mbarrier", mbarrier)


def mbarrier_wait_parity(mbarrier: Any, parity: Any, ticks: Any = None) -> Any:
    """Wait until the phase of that parity is complete.

    Parameters
    ----------
    mbarrier : Buffer, TensorLoad or pointer
    parity : int, bool or Expr
        0 or 1, also as False or True or as a condition. For 1 a fresh mbarrier is complete at once.
    ticks : int or Expr, optional
        The suspend-time hint: nanoseconds that a thread may sleep before it looks again, at most
        2^32 - 1. TVM's is 10000000.

    Returns
    -------
    Call
        A loop around ``mbarrier.try_wait.parity``.

    Raises
    ------
    IllegalCombination
        If the parity is a constant other than 0 and 1, ``mbarrier`` is none, or ``ticks`` is no
        such number.

    Examples
    --------
    .. code-block:: python

        tile[t] = A[t]
        full = wl.alloc_barrier(128)
        wl.mbarrier_arrive(full)
        wl.mbarrier_wait_parity(full, 0, ticks=1000)
        B[t] = tile[127 - t]
        # B == A[::-1]
    """
    address = barrier_pointer(mbarrier)
    phase = parity_of(parity)
    if ticks is None:
        return T.cuda.mbarrier_wait(address, phase)
    code = (
        "{ .reg .pred done; WAIT: "
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1, %2; "
        "@done bra.uni DONE; bra.uni WAIT; DONE: }"
    )
    parameters = [
        ("unsigned int", T.cuda.cvta_generic_to_shared(address)),
        ("unsigned int", phase),
        ("unsigned int", word("ticks", ticks)),
    ]
    return assembly(WAIT_WITH_HINT, code, parameters, [("r", f"v{i}") for i in range(3)])


def mbarrier_arrive(mbarrier: Any, cta_id: Any = None) -> Any:
    """One arrival of this thread.

    Parameters
    ----------
    mbarrier : Buffer, TensorLoad or pointer
        The mbarrier of this CTA.
    cta_id : int or Expr, optional
        Rank of a CTA in the cluster: it is the mbarrier at the same place in that CTA's memory.

    Returns
    -------
    Call
        ``mbarrier.arrive``.

    Raises
    ------
    IllegalCombination
        If ``mbarrier`` is none, or no cluster has the rank.

    Examples
    --------
    .. code-block:: python

        tile[t] = A[t]
        full = wl.alloc_barrier(128)
        wl.mbarrier_arrive(full)
        wl.mbarrier_wait_parity(full, 0)
        B[t] = tile[127 - t]
        # B == A[::-1]
    """
    if cta_id is not None:
        return ptx_arrive_cluster_barrier(mbarrier, cta_id)
    return T.ptx.mbarrier.arrive.shared.b64(barrier_pointer(mbarrier), T.uint32(1))


def ptx_arrive_cluster_barrier(mbarrier: Any, cta_id: Any) -> Any:
    """One arrival at the mbarrier at the same place in another CTA of the cluster.

    Parameters
    ----------
    mbarrier : Buffer, TensorLoad or pointer
        The mbarrier of this CTA.
    cta_id : int or Expr
        Rank of the other CTA in the cluster.

    Returns
    -------
    Call
        ``mapa`` and ``mbarrier.arrive.release.cluster``.

    Raises
    ------
    IllegalCombination
        If ``mbarrier`` is none, or no cluster has the rank.

    Examples
    --------
    .. code-block:: python

        # the cluster has one CTA here, of rank 0
        tile[t] = A[t]
        full = wl.alloc_barrier(128)
        wl.ptx_arrive_cluster_barrier(full, 0)
        wl.mbarrier_wait_parity(full, 0)
        B[t] = tile[127 - t]
        # B == A[::-1]
    """
    address = T.cuda.cvta_generic_to_shared(barrier_pointer(mbarrier))
    if known(cta_id) is not None and not 0 <= known(cta_id) <= _MAX_RANK:
        raise IllegalCombination(
            f"cta_id is {cta_id}; ranks of CTAs in a cluster are 0 to {_MAX_RANK}."
        )
    code = (
        "{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1; "
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote]; }"
    )
    parameters = [("unsigned int", address), ("unsigned int", word("cta_id", cta_id))]
    return assembly("arrive_in_cluster", code, parameters, [("r", "v0"), ("r", "v1")])


def mbarrier_expect_tx(mbarrier: Any, tx: Any) -> Any:
    """Let the current phase also wait for ``tx`` bytes; this is no arrival.

    Parameters
    ----------
    mbarrier : Buffer, TensorLoad or pointer
    tx : int or Expr
        Bytes, at most 1048575.

    Returns
    -------
    Call
        ``mbarrier.expect_tx``.

    Raises
    ------
    IllegalCombination
        If ``mbarrier`` is none, or a constant number of bytes is out of range.

    Examples
    --------
    .. code-block:: python

        source = wl.create_tma_descriptor(A, (128,))  # before T.device_entry()
        full = wl.alloc_barrier(1)
        if t == 0:
            wl.mbarrier_expect_tx(full, 512)
            wl.tma_load(source, full, tile, 0)
            wl.mbarrier_arrive(full)
        wl.mbarrier_wait_parity(full, 0)
        B[t] = tile[t]
        # B == A
    """
    address = barrier_pointer(mbarrier)
    if known(tx) is not None and not 0 <= known(tx) <= TMA.transaction_bytes:
        raise IllegalCombination(
            f"tx is {tx} bytes; an mbarrier expects 0 to {TMA.transaction_bytes}."
        )
    return T.ptx["mbarrier.expect_tx.relaxed.cta.shared::cta.b64"](address, word("tx", tx))


def barrier_wait(mbarrier: Any, parity: Any, ticks: Any = None) -> Any:
    """As :func:`mbarrier_wait_parity`.

    Examples
    --------
    .. code-block:: python

        tile[t] = A[t]
        full = wl.alloc_barrier(128)
        wl.mbarrier_arrive(full)
        wl.barrier_wait(full, 0)
        B[t] = tile[127 - t]
        # B == A[::-1]
    """
    return mbarrier_wait_parity(mbarrier, parity, ticks)


def barrier_arrive(mbarrier: Any) -> Any:
    """As :func:`mbarrier_arrive` at the mbarrier of this CTA.

    Examples
    --------
    .. code-block:: python

        tile[t] = A[t]
        full = wl.alloc_barrier(128)
        wl.barrier_arrive(full)
        wl.mbarrier_wait_parity(full, 0)
        B[t] = tile[127 - t]
        # B == A[::-1]
    """
    return mbarrier_arrive(mbarrier)
