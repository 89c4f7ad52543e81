"""Buffers of a running tile program, and the ways in which statements reach into them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from warploom.language.interpreter.writers import Writers
from warploom.language.rules.ranges import outside, require_inside, require_region
from warploom.language.rules.scopes import TILES


@dataclass
class Barrier:
    """An mbarrier.

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
    """A buffer.

    Attributes
    ----------
    name : str
        For messages.
    scope : str
        ``global``, ``local`` (a scalar), ``mbarrier``, or one of :data:`TILES`.
    array : numpy.ndarray
        Its elements. Those of a global parameter are the caller's; mbarriers are of
        :class:`Barrier`.
    writers : Writers or None
        The CTAs that have stored elements, where that is watched.
    """

    name: str
    scope: str
    array: np.ndarray
    writers: Writers | None = None

    @property
    def is_tile(self) -> bool:
        return self.scope in TILES

    def gather(
        self, indices: Sequence[np.ndarray], active: np.ndarray, by_memory: bool
    ) -> np.ndarray:
        """Elements at broadcast index arrays.

        Outside, a global buffer reads as 0, and so does a tile at an index read from memory.
        ``active`` says which of the elements are used at all.
        """
        wrong = outside(indices, self.array.shape)
        if wrong.any():
            if self.scope != "global" and not by_memory:
                self._require_inside(indices, wrong & active)
            pairs = zip(indices, self.array.shape, strict=True)
            if 0 in self.array.shape:
                shape = np.broadcast_shapes(*(np.shape(i) for i in indices))
                return np.zeros(shape, self.array.dtype)
            indices = [np.clip(i, 0, n - 1) for i, n in pairs]
        values = self.array[tuple(indices)]
        return np.where(wrong, self.array.dtype.type(0), values) if wrong.any() else values

    def scatter(
        self, indices: Sequence[np.ndarray], values: np.ndarray, active: np.ndarray, by_memory: bool
    ) -> None:
        """Store ``values`` at index arrays, where ``active``.

        Outside of a global buffer nothing is stored, nor outside of a tile at an index read from
        memory.
        """
        wrong = outside(indices, self.array.shape)
        if self.scope != "global" and not by_memory:
            self._require_inside(indices, wrong & active)
        kept = active & ~wrong
        places = tuple(indices) if kept.all() else tuple(index[kept] for index in indices)
        values = values if kept.all() else values[kept]
        if self.writers is not None:
            self.writers.claim(self.array, places, values.astype(self.array.dtype))
        self.array[places] = values

    def update(
        self, indices: Sequence[np.ndarray], values: np.ndarray, active: np.ndarray,
        by_memory: bool, join: np.ufunc,
    ) -> None:  # fmt: skip
        """Combine elements with values, one after the other; places as :meth:`scatter` has them."""
        wrong = outside(indices, self.array.shape)
        if self.scope != "global" and not by_memory:
            self._require_inside(indices, wrong & active)
        kept = active & ~wrong
        places = tuple(index[kept] for index in indices)
        # Sums in float64, rounded once: those of kernels have no certain order.
        own = self.array.dtype
        exact = self.array.astype(own if own.kind in "iu" else np.float64)
        join.at(exact, places, values[kept].astype(exact.dtype))
        self.array[places] = exact[places].astype(self.array.dtype)

    def _require_inside(self, indices: Sequence[np.ndarray], wrong: np.ndarray) -> None:
        require_inside(self.name, self.scope, self.array.shape, indices, wrong)

    def read(self, start: Sequence[int], extent: Sequence[int]) -> np.ndarray:
        """A copy of a region; elements over the edges of a global buffer are 0."""
        inner, outer = self._clip(start, extent)
        values = np.zeros(tuple(extent), self.array.dtype)
        values[outer] = self.array[inner]
        return values

    def write(self, start: Sequence[int], extent: Sequence[int], values: np.ndarray) -> None:
        """Store a region; elements over the edges of a global buffer are dropped."""
        inner, outer = self._clip(start, extent)
        if self.writers is not None:
            self.writers.claim(self.array, inner, values[outer])
        self.array[inner] = values[outer]

    def _clip(self, start: Sequence[int], extent: Sequence[int]) -> tuple[tuple, tuple]:
        """The part of a region that exists: its slices in the buffer, and in the region."""
        require_region(self.name, self.scope, self.array.shape, start, extent)
        inner, outer = [], []
        for low, count, size in zip(start, extent, self.array.shape, strict=True):
            first = min(max(low, 0), size)
            last = max(min(low + count, size), first)
            inner.append(slice(first, last))
            outer.append(slice(first - low, last - low) if last > first else slice(0, 0))
        return tuple(inner), tuple(outer)
