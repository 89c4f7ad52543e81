"""Which functions of a model get kernels of ours, and why.

The functions are those that Relax's legalisation and fusion make; nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import tvm
from tvm import relax
from tvm.target import Target
from tvm.tirx import PrimFunc

from warploom.decide.config import Config
from warploom.decide.gemv_rules import warps_of
from warploom.decide.problem import GemmProblem
from warploom.errors import Decline, IllegalCombination
from warploom.gemm.recognition import recognise
from warploom.meta_schedule.lookup import Lookup
from warploom.relax.attention import ATTENTION, declined_attention, operands_of
from warploom.relax.decisions import decisions_of
from warploom.relax.insertion import inserted
from warploom.relax.kv_cache import left_to_tvm
from warploom.relax.lower_rows import MOVES_NOTHING, rows_of
from warploom.relax.operations import calls, operations
from warploom.relax.passes import SCHEDULE_MATMULS
from warploom.relax.pipeline import stock_passes
from warploom.relax.tile_programs import COMPUTES, TENSOR_CORES, is_tirx
from warploom.rows import RowPlan, row_kernel
from warploom.rows.choose import plan_of
from warploom.target.tvm_target import cuda_target
from warploom.tile.read import is_tile_program


@dataclass(frozen=True)
class FunctionReport:
    """The report about one function of a model.

    Attributes
    ----------
    name : str
    problem : GemmProblem or None
        None if it is not taken.
    decisions : tuple of (int or None, Config)
        The configs, by the largest number of rows that they are for.
    rows : RowPlan or None
        How threads share its rows, if it is no GEMM and computed row by row.
    attention : str
        The tile program of an attention, in words; empty for other functions.
    program : str
        What another program of the package computes for it, in words.
    multiplies : bool
        Whether that program multiplies on tensor cores.
    reason : str
        Why it is left to TVM; empty if it is one of these.
    reshapes : bool
        Whether it only reshapes: Relax then moves nothing, and no kernel is launched.
    operations : int
        Multiplications and additions in its matmuls and convolutions, in all calls of a model; 0
        for attention and other programs of the package, and 1 for sizes that the launch knows.
    """

    name: str
    problem: GemmProblem | None = None
    decisions: tuple[tuple[int | None, Config], ...] = ()
    rows: RowPlan | None = None
    attention: str = ""
    program: str = ""
    multiplies: bool = False
    reason: str = ""
    reshapes: bool = False
    operations: int = 0

    @property
    def on_tensor_cores(self) -> bool:
        """Whether it becomes a kernel with wgmma."""
        return self.problem is not None or bool(self.attention) or self.multiplies

    def __str__(self) -> str:
        if self.rows is not None:
            return f"{self.name}: row by row: {self.rows}"
        if self.attention or self.program:
            return f"{self.name}: {self.attention or self.program}"
        if self.reshapes:
            return f"{self.name}: {self.reason}"
        if self.problem is None:
            return f"{self.name}: left to TVM: {self.reason}"
        lines = [f"{self.name}: {self.problem}"]
        for limit, config in self.decisions:
            rows = "" if len(self.decisions) == 1 else (
                "more rows: " if limit is None else f"up to {limit} rows: "
            )  # fmt: skip
            if config.gemv:
                lines.append(
                    f"  {rows}GEMV, {config.tile_n} columns a CTA, {warps_of(config)} warps share "
                    f"K, {config.stages} steps of {config.tile_k} ahead"
                )
                continue
            orientation = ", transposed" if config.swap_ab else ""
            lines.append(
                f"  {rows}tile {config.tile_m} x {config.tile_n} x {config.tile_k}{orientation}, "
                f"{config.stages} stages, cluster {config.cluster_m} x {config.cluster_n}, "
                f"split_k {config.split_k}"
            )
        return "\n".join(lines)


def inspect(
    mod: tvm.IRModule, tf32: bool = False, lookup: Lookup | None = None
) -> list[FunctionReport]:
    """Return a report for each function of a Relax module, in the order of their names.

    Parameters
    ----------
    mod : IRModule
        A model before any pass, as ``nn.Module.export_tvm`` returns it.
    tf32 : bool
        Whether float32 operands may be multiplied as tf32 in all functions.
    lookup : Lookup, optional
        Measured configs, which go before those of the analytic model; by default the package's.
    """
    return inspected(mod, tf32, lookup, cuda_target("h200")).reports


@dataclass(frozen=True)
class Inspected:
    """A model, and what becomes of its functions.

    Attributes
    ----------
    original, mod : IRModule
        The model before any pass, and with its functions fused, before they are scheduled.
    target : Target
    reports : list of FunctionReport
        As :func:`inspect` returns them.
    """

    original: tvm.IRModule
    mod: tvm.IRModule
    target: Target
    reports: list[FunctionReport]


def inspected(
    mod: tvm.IRModule, tf32: bool, lookup: Lookup | None, target: Target
) -> Inspected:
    """As :func:`inspect`, with the module that the reports are about."""
    lookup = Lookup.shipped() if lookup is None else lookup
    declined = declined_attention(mod)
    left, original = left_to_tvm(mod, target), mod
    with target:
        schedules = "ApplyDefaultSchedule", SCHEDULE_MATMULS, "warploom.LowerRows"
        passes = [
            step
            for step in inserted(stock_passes()(target), tf32, measure=False)
            if step.info.name not in schedules
        ]
        mod = tvm.transform.Sequential(passes)(mod)
        functions = {
            gv.name_hint: function
            for gv, function in mod.functions.items()
            if isinstance(function, PrimFunc)
        }
        reports = [
            FunctionReport(name, reason=left[name])
            if name in left
            else _report(name, functions[name], lookup, declined)
            for name in sorted(functions)
        ]
    counts = calls(mod)
    reports = [
        replace(one, operations=counts.get(one.name, 1) * operations(functions[one.name]))
        for one in reports
    ]
    return Inspected(original, mod, target, reports)


def share_on_tensor_cores(reports: Sequence[FunctionReport]) -> float | None:
    """The part of the operations of matmuls and convolutions that tensor cores do, 0 to 1.

    None if no function has any.
    """
    whole = sum(report.operations for report in reports)
    mine = sum(report.operations for report in reports if report.on_tensor_cores)
    return mine / whole if whole else None


def _report(
    name: str, func: PrimFunc, lookup: Lookup, declined: dict[tuple[str, ...], str]
) -> FunctionReport:
    if is_tirx(func):
        attention = str((func.attrs or {}).get(ATTENTION, ""))
        if attention:
            return FunctionReport(name, attention=attention)
        words = str((func.attrs or {}).get(COMPUTES, ""))
        if words:
            multiplies = bool((func.attrs or {}).get(TENSOR_CORES, False))
            return FunctionReport(name, program=words, multiplies=multiplies)
        kind = "a tile program" if is_tile_program(func) else "written in TIRx"
        return FunctionReport(name, reason=f"it is {kind} of the model, and compiled as it is.")
    if relax.analysis.has_reshape_pattern(func):
        return FunctionReport(name, reason=MOVES_NOTHING, reshapes=True)
    reason = declined.get(operands_of(func.params[:-1]))
    if reason is not None:
        return FunctionReport(name, reason=reason)
    try:
        gemm = recognise(func)
        decisions = tuple(decisions_of(gemm, known=lookup.config))
        return FunctionReport(name, gemm.problem, decisions)
    except (Decline, IllegalCombination) as error:
        return _rows_report(name, func, str(error))


def _rows_report(name: str, func: PrimFunc, reason: str) -> FunctionReport:
    """A report on a function that is no GEMM, for that reason."""
    try:
        rows = rows_of(func)
        row_kernel(rows)
        return FunctionReport(name, rows=plan_of(rows))
    except (Decline, IllegalCombination) as other:
        return FunctionReport(name, reason=f"{reason} As rows: {other}")
