"""The reference interpreter: the semantics of a tile program, in numpy.

:mod:`program` runs a program: :mod:`statements` executes its statements, :mod:`warpgroups` those of
programs that passes have given to warpgroups, :mod:`nests` elementwise nests, :mod:`primitives`
tile primitives; :mod:`running` computes values and :mod:`storage` holds buffers. What is allowed is
in :mod:`warploom.language.rules`.
"""

from __future__ import annotations

from warploom.language.interpreter.program import interpret

__all__ = ["interpret"]
