"""Where a thread is in its CTA: lane, warp, warpgroup; and one that is chosen.

All count from the linear index of the thread in the CTA.
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

from warploom.errors import IllegalCombination
from warploom.language.builtins.operands import constant, describe, known
from warploom.language.builtins.shuffles import from_lane

WARP = 32
WARPS_OF_GROUP = 4
#: Threads of a CTA (CUDA Programming Guide, "Technical Specifications").
MAX_THREADS = 1024
#: Threads of which one is elected.
_GROUPS = (1, 2, 4, 8, 16, *range(0, MAX_THREADS + 1, WARP))


def get_lane_idx(warp_size: int | None = None) -> Any:
    """The index of the thread in its warp, int32.

    Parameters
    ----------
    warp_size : int, optional
        Threads of a warp, in this count: a power of two up to 1024, 32 by default.

    Raises
    ------
    IllegalCombination
        If it is something else.

    Examples
    --------
    .. code-block:: python

        B[t] = T.Cast("float32", wl.get_lane_idx())
        # B == t % 32
    """
    return T.truncmod(T.cuda.thread_rank(), _power("warp_size", warp_size, WARP))


def get_warp_idx(warp_size: int | None = None) -> Any:
    """The index of the warp in the CTA, int32.

    Parameters
    ----------
    warp_size : int, optional
        As for :func:`get_lane_idx`.

    Raises
    ------
    IllegalCombination
        If it is something else.

    Examples
    --------
    .. code-block:: python

        B[t] = T.Cast("float32", wl.get_warp_idx())
        # B == t // 32
    """
    return T.truncdiv(T.cuda.thread_rank(), _power("warp_size", warp_size, WARP))


def get_warp_idx_sync(warp_size: int | None = None) -> Any:
    """As :func:`get_warp_idx`, broadcast from the first lane.

    The compiler then knows that it is the same in all threads of a warp, all of which must
    execute this together.

    Parameters
    ----------
    warp_size : int, optional
        As for :func:`get_lane_idx`, and at least 32.

    Raises
    ------
    IllegalCombination
        If it is something else.

    Examples
    --------
    .. code-block:: python

        B[t] = T.Cast("float32", wl.get_warp_idx_sync())
        # B == t // 32
    """
    if _power("warp_size", warp_size, WARP) < WARP:
        raise IllegalCombination(
            f"warp_size is {warp_size}; the index is broadcast in a warp, so it must be at least "
            f"{WARP}."
        )
    return from_lane(get_warp_idx(warp_size), 0)


def get_warp_group_idx(warp_size: int | None = None, warps_per_group: int | None = None) -> Any:
    """The index of the warpgroup in the CTA, int32.

    Parameters
    ----------
    warp_size : int, optional
        As for :func:`get_lane_idx`.
    warps_per_group : int, optional
        1 to 32, 4 by default.

    Raises
    ------
    IllegalCombination
        If one of them is something else.

    Examples
    --------
    .. code-block:: python

        B[t] = T.Cast("float32", wl.get_warp_group_idx(warps_per_group=2))
        # B == t // 64
    """
    count = WARPS_OF_GROUP if warps_per_group is None else warps_per_group
    warps = constant("warps_per_group", count, range(1, WARP + 1))
    return T.truncdiv(T.cuda.thread_rank(), _power("warp_size", warp_size, WARP) * warps)


def shuffle_elect(thread_extent: int) -> Any:
    """Whether this thread is the one of its group that was elected, bool.

    All threads of a warp must execute this together.

    Parameters
    ----------
    thread_extent : int
        Threads of a group: 1, 2, 4, 8, 16, or a multiple of 32 up to 1024. 0 elects one thread of
        the CTA.

    Returns
    -------
    Expr
        ``elect.sync`` in the first warp of each group; the first lane of groups that are smaller
        than a warp.

    Raises
    ------
    IllegalCombination
        If it is something else.

    Examples
    --------
    .. code-block:: python

        B[t] = T.if_then_else(wl.shuffle_elect(16), A[t], T.float32(0))
        # B == np.where(t % 16 == 0, A, 0)
    """
    threads = known(thread_extent)
    if threads not in _GROUPS:
        raise IllegalCombination(
            f"thread_extent is {describe(thread_extent)}; it must be a constant: 1, 2, 4, 8, 16, a "
            f"multiple of {WARP} up to {MAX_THREADS}, or 0 for the CTA."
        )
    if 0 < threads < WARP:
        return get_lane_idx(threads) == 0
    elected = T.cuda.elect_sync() != T.uint32(0)
    if threads == WARP:
        return elected
    warp = get_warp_idx()
    if threads:
        warp = T.truncmod(warp, threads // WARP)
    return T.And(from_lane(warp, 0) == 0, elected)


def _power(name: str, value: int | None, default: int) -> int:
    number = default if value is None else constant(name, value, range(1, MAX_THREADS + 1))
    if number & (number - 1):
        raise IllegalCombination(f"{name} is {number}; it must be a power of two.")
    return number
