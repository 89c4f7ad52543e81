"""How many clusters run at a time, each CTA on a multiprocessor (SM) of its own.

A cluster lies within one GPC, and GPCs have different numbers of SMs, as products disable some. So
SMs stay idle that no cluster fits on. ``cudaOccupancyMaxActiveClusters`` tells how many clusters
fit; where nobody has asked it, the structure of the chip says how many fit at least.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from warploom.target.limits import SM90A, SM100A, Arch

#: A number, or an expression of TVM.
Number = TypeVar("Number")

#: Architecture and SMs -> size of a cluster -> how many run at a time.
#: sm_90a: clusters of 4 and 8 by cudaOccupancyMaxActiveClusters of two H200s (2026-11-22), which
#: have the chip of an H100. The other numbers are the fewest of all ways to spread 132 SMs over 8
#: GPCs that agree with these two.
#: sm_100a is not measured: it is taken for a chip whose GPCs leave no SM idle.
MEASURED: Mapping[tuple[str, int], Mapping[int, int]] = {
    (SM90A.name, 132): {3: 43, 4: 30, 5: 22, 6: 20, 7: 15, 8: 15, 16: 7},
    (SM100A.name, 148): {size: 148 // size for size in (3, 4, 5, 6, 7, 8, 16)},
}


def fewest_clusters(arch: Arch, sms: Number, size: int) -> Number:
    """Clusters of a size that fit on so many SMs, however these are spread over GPCs.

    There are no fewer GPCs than are needed. SMs come in pairs, so that a GPC leaves at most
    ``size - 2`` of them idle, or ``size - 1`` where ``size`` is odd.

    Parameters
    ----------
    sms : int or Expr
        All numbers in this are positive, or the result is 0 or less: nothing may fit.

    Examples
    --------
    >>> fewest_clusters(SM90A, 114, 2), fewest_clusters(SM90A, 114, 4)
    (57, 25)
    """
    idle = size - 2 + size % 2
    gpcs = (sms + (arch.sms_per_gpc - 1)) // arch.sms_per_gpc
    return (sms - gpcs * idle + (size - 1)) // size


def clusters_that_fit(arch: Arch, sms: int, size: int) -> int:
    """Clusters of a size that run at a time on a GPU of so many SMs.

    Examples
    --------
    >>> clusters_that_fit(SM90A, 132, 4)
    30
    """
    if size == 1:
        return sms
    return MEASURED.get((arch.name, sms), {}).get(size, max(1, fewest_clusters(arch, sms, size)))


for (_name, _sms), _sizes in MEASURED.items():
    _arch = next(one for one in (SM90A, SM100A) if one.name == _name)
    assert all(
        fewest_clusters(_arch, _sms, size) <= count <= _sms // size
        for size, count in _sizes.items()
    )
