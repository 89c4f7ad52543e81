"""Extents in the signatures of kernels and tile programs."""

from __future__ import annotations

from tvm.tirx import Var


def row_count(m: int | None) -> int | Var:
    """The number of rows of A and C: the given one, or a variable that a call decides.

    One row is left to the call as well: TVM takes the pitch of a dimension of extent 1 for one
    element, and TMA refuses that.
    """
    return Var("m", "int32") if m is None or m == 1 else m
