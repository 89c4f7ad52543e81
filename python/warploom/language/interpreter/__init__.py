"""The reference interpreter: what a tile program means, in numpy.

:mod:`program` executes statements, :mod:`nests` elementwise nests, :mod:`primitives` tile
primitives; :mod:`expressions` computes values, :mod:`storage` holds buffers and :mod:`dtypes`
converts numbers.
"""

from __future__ import annotations

from warploom.language.interpreter.program import interpret

__all__ = ["interpret"]
