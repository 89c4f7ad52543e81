"""Which CTA has stored which element of global memory: two that store different values race."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from warploom.errors import TileProgramError


@dataclass
class Writers:
    """The CTAs of one kernel that have stored elements of one buffer, as one of them sees them.

    Attributes
    ----------
    name : str
        Of the buffer.
    ctas : list of str
        The CTAs, by their numbers.
    number : int
        This CTA.
    kept : list
        The number of the CTA that has stored each element, an array; none before the first store.
    """

    name: str
    ctas: list[str]
    number: int = 0
    kept: list[np.ndarray] = field(default_factory=list)

    def claim(self, array: np.ndarray, places: tuple[Any, ...], values: np.ndarray) -> None:
        """Note that this CTA stores ``values`` at places of a buffer.

        Raises
        ------
        TileProgramError
            If another CTA has stored another value there.
        """
        if not self.kept:
            self.kept.append(np.full(array.shape, -1, np.int32))
        owners = self.kept[0][places]
        others = (owners >= 0) & (owners != self.number)
        if others.any():
            old = array[places]
            same = (old == values) | ((old != old) & (values != values))  # NaN is like NaN
            wrong = np.flatnonzero((others & ~same).ravel())
            if wrong.size:
                self._refuse(owners.ravel()[wrong[0]], array.shape, places, int(wrong[0]))
        self.kept[0][places] = self.number

    def _refuse(self, owner: int, shape: tuple[int, ...], places: tuple, which: int) -> None:
        numbers = np.arange(np.prod(shape, dtype=np.int64)).reshape(shape)[places].ravel()
        at = ", ".join(str(int(i)) for i in np.unravel_index(numbers[which], shape))
        raise TileProgramError(
            f"{self.ctas[self.number]} stores another value to {self.name}[{at}] than "
            f"{self.ctas[owner]} has stored; CTAs have no order, so index {self.name} by all ids "
            "of T.cta_id, or update it with Tx.cta.atomic_add, or wl.atomic_add in a nest."
        )
