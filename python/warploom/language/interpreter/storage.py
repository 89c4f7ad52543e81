"""Buffers of a running tile program, and the ways in which statements reach into them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from warploom.errors import TileProgramError

#: Scopes of tiles, which belong to one CTA.
SHARED = ("shared", "shared.dyn")
REGISTERS = ("accumulator", "fragment", "tmem")
TILES = SHARED + REGISTERS


@dataclass
class Barrier:
    """One mbarrier.

    Attributes
    ----------
    arrivals : int
        Arrivals that complete a phase; 0 before it is initialised.
    pending : int
        Those that the current phase still waits for.
    bytes : int
        Announced and not yet come.
    phase : int
        Phases that are complete.
    """

    arrivals: int = 0
    pending: int = 0
    bytes: int = 0
    phase: int = 0

    def advance(self) -> None:
        """Begin the next phase if this one is complete."""
        if self.arrivals and not self.pending and not self.bytes:
            self.phase, self.pending = self.phase + 1, self.arrivals


@dataclass(frozen=True)
class Storage:
    """One buffer.

    Attributes
    ----------
    name : str
        For messages.
    scope : str
        ``global``, ``local`` (a scalar), ``mbarrier``, or one of :data:`TILES`.
    array : numpy.ndarray
        Its elements. Those of a global parameter are the caller's; mbarriers are of
        :class:`Barrier`.
    """

    name: str
    scope: str
    array: np.ndarray

    @property
    def is_tile(self) -> bool:
        return self.scope in TILES

    def gather(self, indices: Sequence[np.ndarray], active: np.ndarray) -> np.ndarray:
        """Elements at broadcast index arrays; outside, a global buffer reads as 0.

        ``active`` says which of the elements are used at all.
        """
        outside = self._outside(indices)
        if outside.any():
            if self.scope != "global":
                self._require_inside(indices, outside & active)
            pairs = zip(indices, self.array.shape, strict=True)
            if 0 in self.array.shape:
                shape = np.broadcast_shapes(*(np.shape(i) for i in indices))
                return np.zeros(shape, self.array.dtype)
            indices = [np.clip(i, 0, n - 1) for i, n in pairs]
        values = self.array[tuple(indices)]
        return np.where(outside, self.array.dtype.type(0), values) if outside.any() else values

    def scatter(self, indices: Sequence[np.ndarray], values: np.ndarray) -> None:
        """Store ``values`` at broadcast index arrays, all of which lie inside."""
        self._require_inside(indices, self._outside(indices))
        self.array[tuple(indices)] = values

    def _outside(self, indices: Sequence[np.ndarray]) -> np.ndarray:
        outside = np.False_
        for index, extent in zip(indices, self.array.shape, strict=True):
            outside = outside | (index < 0) | (index >= extent)
        return np.asarray(outside)

    def _require_inside(self, indices: Sequence[np.ndarray], wrong: np.ndarray) -> None:
        if not wrong.any():
            return
        every = np.broadcast_arrays(wrong, *indices)
        first = tuple(np.argwhere(every[0])[0])
        at = [int(index[first]) for index in every[1:]]
        raise TileProgramError(
            f"{self.name}{at} lies outside of {self.name}, which has scope {self.scope} and shape "
            f"{self.array.shape}; only reads of global buffers may."
        )

    def read(self, start: Sequence[int], extent: Sequence[int]) -> np.ndarray:
        """A copy of a region; what reaches over the edges of a global buffer is 0."""
        inner, outer = self._clip(start, extent)
        values = np.zeros(tuple(extent), self.array.dtype)
        values[outer] = self.array[inner]
        return values

    def write(self, start: Sequence[int], extent: Sequence[int], values: np.ndarray) -> None:
        """Store a region; what reaches over the edges of a global buffer is dropped."""
        inner, outer = self._clip(start, extent)
        self.array[inner] = values[outer]

    def _clip(self, start: Sequence[int], extent: Sequence[int]) -> tuple[tuple, tuple]:
        """The part of a region that exists: its slices in the buffer, and in the region."""
        inner, outer = [], []
        for low, count, size in zip(start, extent, self.array.shape, strict=True):
            if self.scope != "global" and (low < 0 or low + count > size):
                region = [f"{s}:{s + e}" for s, e in zip(start, extent, strict=True)]
                raise TileProgramError(
                    f"the region {self.name}[{', '.join(region)}] reaches over the edge of "
                    f"{self.name}, which has scope {self.scope} and shape {self.array.shape}; only "
                    "regions of global buffers may."
                )
            first = min(max(low, 0), size)
            last = max(min(low + count, size), first)
            inner.append(slice(first, last))
            outer.append(slice(first - low, last - low) if last > first else slice(0, 0))
        return tuple(inner), tuple(outer)
