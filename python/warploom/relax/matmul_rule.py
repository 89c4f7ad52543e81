"""The rule of dlight for GEMMs on the asynchronous tensor core."""

from __future__ import annotations

from typing import Protocol

from tvm.s_tir import Schedule
from tvm.s_tir.dlight import ScheduleRule
from tvm.target import Target
from tvm.tirx import PrimFunc

from warploom.decide.config import Config
from warploom.decide.machines import machine_for
from warploom.decide.problem import GemmProblem
from warploom.fallback import attempted
from warploom.gemm.annotations import annotate
from warploom.gemm.recognition import recognise
from warploom.gemm.tf32 import allow_tf32
from warploom.relax.decisions import decisions_of
from warploom.target import SM90A


class Known(Protocol):
    """Measured configs of GEMMs, such as :class:`warploom.meta_schedule.Lookup`."""

    def config(self, problem: GemmProblem) -> Config | None:
        """The config of a problem, or None."""


class Matmul(ScheduleRule):
    """GEMMs on the asynchronous tensor core, with measured configs or those of the analytic model.

    To be listed before the rules of ``dlight.gpu``: it returns None for functions that it does not
    take, and for targets other than ``sm_90a``.

    Parameters
    ----------
    tf32 : bool
        Whether float32 operands may be multiplied as tf32 in all functions; without it, in those
        that :func:`warploom.gemm.tf32.allow_tf32` marked.
    lookup : Known, optional
        Measured configs, which go before those of the model.

    Examples
    --------
    >>> rules = [warploom.dlight.Matmul(), tvm.s_tir.dlight.gpu.Fallback()]
    >>> with target:  # doctest: +SKIP
    ...     mod = tvm.s_tir.dlight.ApplyDefaultSchedule(*rules)(mod)
    """

    def __init__(self, tf32: bool = False, lookup: Known | None = None) -> None:
        self.tf32, self.lookup = tf32, lookup

    def apply(self, func: PrimFunc, target: Target, _: bool = False) -> Schedule | None:
        """The function with our decisions, or None."""
        if str(target.attrs.get("arch", "")) != SM90A.name:
            return None
        name = str((func.attrs or {}).get("global_symbol", "A function"))
        return attempted(name, lambda: self._scheduled(func, target))

    def _scheduled(self, func: PrimFunc, target: Target) -> Schedule:
        func = allow_tf32(func) if self.tf32 else func
        gemm = recognise(func)
        known = None if self.lookup is None else self.lookup.config
        decisions = decisions_of(gemm, machine_for(target), known)
        sch = Schedule(func)
        block = sch.get_sblock(gemm.anchor)
        for limit, config in decisions:
            annotate(sch, block, config.values(), limit)
        return sch
