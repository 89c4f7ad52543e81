"""Closed queueing networks: warpgroups of an SM that share its pipes."""

from __future__ import annotations


def interleaved(multiply: float, nest: float, warpgroups: int, alone: float = 0.0) -> float:
    """Cycles from step to step of warpgroups that share the tensor cores and the other pipes.

    Each multiplies, then computes with the results, and waits while others do the same: a closed
    queueing network of two stations, by mean-value analysis (Reiser and Lavenberg, 1980). One
    warpgroup takes the sum of both; of many, the busier station works all the time.

    Parameters
    ----------
    multiply, nest : float
        Cycles of one warpgroup that is alone.
    warpgroups : int
        Warpgroups of an SM.
    alone : float
        Cycles in which a warpgroup needs neither.
    """
    total = multiply + nest + alone
    if not total:
        return 0.0
    at_tensor = at_nest = 0.0
    for count in range(1, warpgroups + 1):
        waits = multiply * (1 + at_tensor), nest * (1 + at_nest)
        total = sum(waits) + alone
        at_tensor, at_nest = (count * wait / total for wait in waits)
    return total
