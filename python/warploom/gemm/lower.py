"""The tile programs that annotated S-TIR functions stand for, as kernels."""

from __future__ import annotations

from tvm.tirx import PrimFunc

from warploom.decide.config import Config
from warploom.errors import Decline
from warploom.gemm.annotations import decisions_of
from warploom.gemm.gemv import gemv_kernel
from warploom.gemm.generate import tile_program
from warploom.gemm.problem import GemmFunction
from warploom.gemm.recognition import recognise
from warploom.lower.lowerings import lower
from warploom.tile import ir


def lower_gemm(func: PrimFunc) -> PrimFunc:
    """The kernel of a function that :mod:`warploom.schedule` has annotated.

    Where decisions differ by the number of rows, the result has a kernel for each, and host code
    that chooses one.

    Raises
    ------
    Decline
        If it is no product, has no decisions, or a pass cannot handle it.
    IllegalCombination
        If no kernel can have what the annotations say.
    """
    decisions = decisions_of(func)
    if not decisions:
        raise Decline("the function has no decisions of warploom.schedule.")
    gemm = recognise(func)
    kernels = [(limit, _kernel(gemm, config)) for limit, config in decisions]
    _, chosen = kernels.pop()
    for limit, kernel in reversed(kernels):
        body = ir.substitute(kernel.body, dict(zip(kernel.params, chosen.params, strict=True)))
        branch = ir.when(gemm.rows.extent <= limit, [body], [chosen.body])
        chosen = PrimFunc(chosen.params, branch, chosen.ret_type, chosen.attrs)
    return chosen


def _kernel(gemm: GemmFunction, config: Config) -> PrimFunc:
    return gemv_kernel(gemm, config) if config.gemv else lower(tile_program(gemm, config))
