"""How far a computed tensor is from its reference, as a whole and element by element.

A norm alone forgives: in a float8 GEMM of 4096 cubed, a block of 16 x 16 wrong elements changes the
norm of the error by less than rounding does. So the worst element has a bound of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

#: Bound of :attr:`Deviation.element` relative to that of :attr:`Deviation.relative`. An error is a
#: sum of many roundings, about normally distributed: of 10^9 elements none is 8 deviations off.
ELEMENT_FACTOR = 8.0
#: Keeps rows of zeros from dividing by zero.
_TINY = 1e-30


@dataclass(frozen=True)
class Deviation:
    """The deviation of all elements of a result.

    Attributes
    ----------
    relative : float
        ``|C - R| / |R|`` (Frobenius norms); NaN if an element was not written.
    element : float
        The largest ``|c - r| / (|r| + s)`` of all elements, with ``s`` the root mean square of the
        reference's row (last dimension); NaN if an element was not written.
    place : tuple of int
        Index of that element.
    """

    relative: float
    element: float
    place: tuple[int, ...] = ()

    def is_within(self, allowed: float) -> bool:
        """Whether the norm and every element are right, for a bound of :attr:`relative`."""
        return self.relative <= allowed and self.element <= ELEMENT_FACTOR * allowed

    def __str__(self) -> str:
        return f"{self.relative:.1e}, worst element {self.element:.1e} at {self.place}"


def deviation(result: Any, reference: Any) -> Deviation:
    """Compare all elements of a result with a reference in higher precision.

    Parameters
    ----------
    found, reference : torch.Tensor or ndarray
        Of the same shape and dtype, the dtype of the reference.

    Example
    -------
    >>> deviation(np.array([[3.0, 4.5]]), np.array([[3.0, 4.0]])).place
    (0, 1)
    """
    difference = abs(result - reference)
    row = ((reference * reference).mean(-1) ** 0.5)[..., None]
    ratio = difference / (abs(reference) + row + _TINY)
    worst = int(ratio.argmax())  # of NaN, too
    place = tuple(int(i) for i in np.unravel_index(worst, tuple(ratio.shape)))
    relative = _norm(difference) / max(_norm(reference), _TINY)
    return Deviation(relative, float(ratio.reshape(-1)[worst]), place)


def worst_of(*deviations: Deviation) -> Deviation:
    """The deviation with the largest worst element; one that is NaN is larger than all others."""
    return max(
        deviations,
        key=lambda deviation: math.inf if math.isnan(deviation.element) else deviation.element,
    )


def _norm(tensor: Any) -> float:
    return float((tensor * tensor).sum()) ** 0.5
