"""The reference interpreter: the semantics of a tile program, in numpy.

:mod:`program` runs a program: :mod:`statements` executes its statements, :mod:`nests` elementwise
nests, :mod:`primitives` tile primitives; :mod:`running` computes values and :mod:`storage` holds
buffers. Of programs that passes have given to warpgroups, :mod:`warpgroups` executes the
statements, :mod:`tiles` gives the tiles their scopes again, and :mod:`instructions` are those by
which CTAs wait for each other, as :mod:`waits` lets them. What is allowed is in
:mod:`warploom.language.rules`.
"""

from __future__ import annotations

from warploom.language.interpreter.program import interpret

__all__ = ["interpret"]
