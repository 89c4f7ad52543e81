"""Regions of buffers, the operands of primitives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm.ir import TensorRegion

from warploom.language.interpreter.running import Running
from warploom.language.interpreter.storage import Storage
from warploom.language.rules.operands import Operand
from warploom.language.values.dtypes import convert


@dataclass(frozen=True)
class Region:
    """Part of a buffer, the operand of a primitive."""

    storage: Storage
    start: tuple[int, ...]
    extent: tuple[int, ...]

    @classmethod
    def of(cls, evaluate: Running, argument: TensorRegion) -> Region:
        storage = evaluate.storage(argument.source)
        start = tuple(evaluate.integer(r.min) for r in argument.region)
        return cls(storage, start, tuple(evaluate.integer(r.extent) for r in argument.region))

    @property
    def operand(self) -> Operand:
        """The operand as the rules see it."""
        storage = self.storage
        return Operand(storage.name, storage.scope, storage.array.dtype.name, self.extent)

    @property
    def dtype(self) -> np.dtype:
        return self.storage.array.dtype

    def read(self) -> np.ndarray:
        return self.storage.read(self.start, self.extent)

    def read_every(self, steps: tuple[int, ...]) -> np.ndarray:
        """Its elements with that distance from each other along each dimension."""
        pairs = list(zip(self.extent, steps, strict=True))
        span = tuple((extent - 1) * step + 1 if extent else 0 for extent, step in pairs)
        return self.storage.read(self.start, span)[tuple(slice(None, None, s) for s in steps)]

    def write(self, values: np.ndarray) -> None:
        converted = convert(values, self.dtype).reshape(self.extent)
        self.storage.write(self.start, self.extent, converted)

    def matrix(self) -> np.ndarray:
        """The values as a matrix, without leading dimensions of extent 1."""
        return self.read().reshape(self.extent[-2:])
