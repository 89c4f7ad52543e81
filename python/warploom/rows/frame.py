"""What all kernels of row functions have: the parameters of the function, and its attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm.tirx import PrimFunc, Stmt, Var

from warploom.gemm import thread_kernel
from warploom.gemm.thread_kernel import ids_of, parameter
from warploom.rows.problem import RowFunction

__all__ = ["framed", "ids_of", "parameters"]


def parameters(function: RowFunction) -> dict[Var, Any]:
    """The kernel's parameters, by those of the S-TIR function and by what stands for them."""
    made = [parameter(param) for param in function.params]
    return dict(zip(function.func.params, made, strict=True)) | dict(
        zip(function.params, made, strict=True)
    )


def framed(function: RowFunction, table: Mapping[Var, Any], body: list[Stmt]) -> PrimFunc:
    """The kernel with some statements, and with the parameters of :func:`parameters`."""
    return thread_kernel.framed(function.func, table, body)
