"""Lets the builder's tile primitives read back what TVM's printer writes.

Two forms do not parse back in TVM 0.27:

- The node of a GEMM without scale factors has the arguments ``(C, A, B, transA, transB, accum)``,
  and the printer writes them in that order; the builder has ``SFA, SFB`` after ``B``, and takes
  two flags for them. Scale factors are tiles and flags are not, which tells the forms apart.
- A call whose source is its destination is printed without the source; ``silu``, ``cast`` and
  copies require it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tvm.ir import TensorRegion
from tvm.tirx import is_buffer_var

#: Primitives that are printed without the source when they work in place, and require it.
IN_PLACE = ("cast", "copy", "copy_async", "silu")
_FLAGS = ("transA", "transB", "accum")


def accept_flags(build: Callable) -> Callable:
    """``build``, the builder's ``gemm_async``, which takes the flags as arguments 4 to 6 too."""

    @functools.wraps(build)
    def gemm_async(c: Any, a: Any, b: Any, *rest: Any, **options: Any) -> Any:
        if rest and not _may_be_scale_factors(rest[0]) and len(rest) <= len(_FLAGS):
            return build(c, a, b, **dict(zip(_FLAGS, rest, strict=False)), **options)
        return build(c, a, b, *rest, **options)

    return gemm_async


def accept_in_place(build: Callable) -> Callable:
    """``build``, a primitive of :data:`IN_PLACE`, whose source is the destination if left out."""

    @functools.wraps(build)
    def primitive(dst: Any, *rest: Any, **options: Any) -> Any:
        if rest or "src" in options or "dtype" in options:
            return build(dst, *rest, **options)
        return build(dst, dst, **options)

    return primitive


def _may_be_scale_factors(argument: Any) -> bool:
    return argument is None or isinstance(argument, TensorRegion) or is_buffer_var(argument)
