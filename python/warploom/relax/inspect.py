"""``warploom inspect relax FILE``: which functions of a model get kernels of ours, and why.

The functions are those that Relax's legalisation and fusion make; nothing is compiled.
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tvm
from tvm.tirx import PrimFunc

from warploom.errors import IllegalCombination, WarploomError
from warploom.gemm.choose import choose_by_rows
from warploom.gemm.generate import tile_program
from warploom.gemm.knobs import GemmKnobs
from warploom.gemm.problem import GemmProblem
from warploom.gemm.recognition import recognise
from warploom.meta_schedule.lookup import Lookup
from warploom.relax.lower_rows import rows_of
from warploom.relax.pipeline import legalize_passes, stock_passes
from warploom.relax.tile_programs import is_tirx
from warploom.rows import RowPlan, row_kernel
from warploom.rows.generate import plan_of
from warploom.target.tvm_target import cuda_target
from warploom.transform.decline import Decline


@dataclass(frozen=True)
class FunctionReport:
    """One function of a model.

    Attributes
    ----------
    name : str
    problem : GemmProblem or None
        None if it is not taken.
    decisions : tuple of (int or None, GemmKnobs)
        The knobs, by the largest number of rows that they are for.
    rows : RowPlan or None
        How threads share its rows, if it is no product and computed row by row.
    reason : str
        Why it is no product, and why it is not computed row by row; empty if it is one of them.
    """

    name: str
    problem: GemmProblem | None = None
    decisions: tuple[tuple[int | None, GemmKnobs], ...] = ()
    rows: RowPlan | None = None
    reason: str = ""

    def __str__(self) -> str:
        if self.rows is not None:
            share = f"{self.rows.threads} threads a row, " if self.rows.threads else ""
            return f"{self.name}: row by row: {share}vectors of {self.rows.vector} elements"
        if self.problem is None:
            return f"{self.name}: left to TVM: {self.reason}"
        lines = [f"{self.name}: {self.problem}"]
        for limit, knobs in self.decisions:
            rows = "" if len(self.decisions) == 1 else (
                "more rows: " if limit is None else f"up to {limit} rows: "
            )  # fmt: skip
            orientation = ", transposed" if knobs.swap_ab else ""
            lines.append(
                f"  {rows}tile {knobs.tile_m} x {knobs.tile_n} x {knobs.tile_k}{orientation}, "
                f"{knobs.stages} stages, cluster {knobs.cluster_m} x {knobs.cluster_n}, "
                f"split_k {knobs.split_k}"
            )
        return "\n".join(lines)


def inspect(mod: tvm.IRModule, tf32: bool = False) -> list[FunctionReport]:
    """What the pipeline does with each function of a Relax module, in the order of their names.

    Parameters
    ----------
    mod : IRModule
        A model before any pass, as ``nn.Module.export_tvm`` returns it.
    tf32 : bool
        Whether float32 operands may be multiplied as tf32 in all functions.
    """
    target = cuda_target("h200")
    with target:
        schedules = "ApplyDefaultSchedule", "warploom.LowerRows"
        passes = [
            one
            for one in legalize_passes(stock_passes()(target), tf32)
            if one.info.name not in schedules
        ]
        mod = tvm.transform.Sequential(passes)(mod)
    functions = {gv.name_hint: one for gv, one in mod.functions.items()}
    return [
        _report(name, functions[name])
        for name in sorted(functions)
        if isinstance(functions[name], PrimFunc)
    ]


def _report(name: str, func: PrimFunc) -> FunctionReport:
    if is_tirx(func):
        return FunctionReport(name, reason="it is written in TIRx and compiled as it is.")
    try:
        gemm = recognise(func)
        decisions = tuple(choose_by_rows(gemm.problem, known=Lookup.shipped().knobs))
        for _, knobs in decisions:
            tile_program(gemm, knobs)
        return FunctionReport(name, gemm.problem, decisions)
    except (Decline, IllegalCombination) as reason:
        return _rows_report(name, func, str(reason))


def _rows_report(name: str, func: PrimFunc, reason: str) -> FunctionReport:
    """A report on a function that is no product, for that reason."""
    try:
        rows = rows_of(func)
        row_kernel(rows)
        return FunctionReport(name, rows=plan_of(rows))
    except (Decline, IllegalCombination) as other:
        return FunctionReport(name, reason=f"{reason} As rows: {other}")


def main(arguments: Sequence[str]) -> int:
    """Print a report on each function of a model.

    Returns
    -------
    int
        0, or 1 if no function becomes a tensor-core kernel.
    """
    parser = argparse.ArgumentParser(
        prog="warploom inspect relax", description="Which functions of a Relax model are taken."
    )
    parser.add_argument(
        "model",
        help="FILE.json that tvm.ir.save_json wrote, or FILE.py:NAME, where NAME is an IRModule or "
        "a function that returns one",
    )
    parser.add_argument("--tf32", action="store_true", help="float32 products as tf32")
    options = parser.parse_args(arguments)
    reports = inspect(_load(options.model), options.tf32)
    for one in reports:
        print(one)
    return int(not any(one.problem for one in reports))


def _load(place: str) -> tvm.IRModule:
    file, _, name = place.partition(":")
    if not Path(file).is_file():
        raise WarploomError(f"{file} is no file; pass FILE.json or FILE.py:NAME.")
    if not name:
        return tvm.ir.load_json(Path(file).read_text(encoding="utf-8"))
    spec = importlib.util.spec_from_file_location("warploom_inspected", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, name, None)
    found = found() if callable(found) and not isinstance(found, tvm.IRModule) else found
    if not isinstance(found, tvm.IRModule):
        raise WarploomError(f"{name} in {file} is {type(found).__name__}; it must be an IRModule.")
    return found
