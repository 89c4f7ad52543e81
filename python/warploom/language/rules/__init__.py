"""The rules of tile programs, in one place for the interpreter and for every lowering.

:mod:`check` walks a program before anything runs; :mod:`entries` has the rules of the head of a
program. Of the rules themselves, :mod:`scopes` has those of allocations, :mod:`operands` and
:mod:`calls` those of tile primitives, :mod:`nests`, :mod:`iterations` and :mod:`rectangles` those
of element-wise nests, :mod:`ranges` where accesses may go, :mod:`lifetimes` tiles that must be
written before they are read, :mod:`expressions` the allowed expressions; :mod:`known` computes
known integers. The interpreter asks the same functions again with the values that only the run
tells.
"""

from __future__ import annotations

from warploom.language.rules.check import check_program
from warploom.language.rules.known import Known

__all__ = ["Known", "check_program"]
