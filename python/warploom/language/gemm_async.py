"""Lets ``Tx.gemm_async`` read back what TVM's printer writes.

The node of a GEMM without scale factors has the arguments ``(C, A, B, transA, transB, accum)``,
and the printer writes them in that order; the builder has ``SFA, SFB`` after ``B``, and takes the
two flags for them. The wrapper tells the two forms apart by the fourth argument: scale factors are
tiles, flags are not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tvm.ir import TensorRegion
from tvm.tirx import is_buffer_var

_FLAGS = ("transA", "transB", "accum")


def accept_printed_form(build: Callable) -> Callable:
    """``build`` (the builder's ``gemm_async``), which also takes the flags as arguments 4 to 6."""

    @functools.wraps(build)
    def gemm_async(c: Any, a: Any, b: Any, *rest: Any, **options: Any) -> Any:
        if rest and not _may_be_scale_factors(rest[0]) and len(rest) <= len(_FLAGS):
            return build(c, a, b, **dict(zip(_FLAGS, rest, strict=False)), **options)
        return build(c, a, b, *rest, **options)

    return gemm_async


def _may_be_scale_factors(argument: Any) -> bool:
    return argument is None or isinstance(argument, TensorRegion) or is_buffer_var(argument)
