"""The Relax pipeline with our schedules in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import tvm
from tvm.s_tir import dlight
from tvm.target import Target

from warploom.dlight import Matmul
from warploom.meta_schedule.lookup import Lookup
from warploom.relax.attention import CallAttention
from warploom.relax.constant_rows import SliceConstantRows
from warploom.relax.find_attention import FindAttention
from warploom.relax.fuse_operands import FuseOperands
from warploom.relax.fuse_products import FuseProducts
from warploom.relax.fuse_rows import FuseRows
from warploom.relax.lower_rows import LowerRows
from warploom.relax.measure_attention import measured_attention
from warploom.relax.measure_best import Choice, MeasureBest
from warploom.relax.narrow_products import NarrowProducts
from warploom.relax.permutations import JoinPermutations
from warploom.relax.spread_tf32 import SpreadTf32
from warploom.relax.square_powers import SquarePowers
from warploom.relax.tile_programs import CallTilePrograms
from warploom.target import SM90A

#: Set to 0, the default pipeline of Relax stays exactly as TVM has it.
SWITCH = "WARPLOOM_RELAX"

Passes = Callable[[Target], list[tvm.transform.Pass]]


def legalize_passes(
    stock: list[tvm.transform.Pass], tf32: bool = False, lookup: Lookup | None = None,
    measure: bool = True,
) -> list[tvm.transform.Pass]:  # fmt: skip
    """TVM's legalisation passes, with GEMMs scheduled before dlight sees them.

    Parameters
    ----------
    stock : list of Pass
        The result of ``relax.backend.cuda.legalize_passes``.
    tf32 : bool
        Whether float32 operands may be multiplied as tf32 in all functions; without it, in Relax
        functions with the attribute ``warploom.tf32``.
    lookup : Lookup, optional
        Measured configs, which go before those of the analytic model; by default the package's.
    measure : bool
        Whether to measure what the environment asks for.
    """
    choice = Choice(Lookup.shipped() if lookup is None else lookup)
    rule = Matmul(lookup=choice)
    passes: list[tvm.transform.Pass] = []
    for step in stock:
        if step.info.name == "ApplyDefaultSchedule":
            passes += [SpreadTf32(tf32), FuseOperands(), FuseProducts(), FuseRows()]
            passes += [MeasureBest(choice)] if measure else []
            passes += [dlight.ApplyDefaultSchedule(rule)]
            passes += [LowerRows(), CallTilePrograms()]
        passes.append(step)
    call = CallAttention(measured_attention) if measure else CallAttention()
    attention = [FindAttention(), JoinPermutations(), call, JoinPermutations()]
    before = [SquarePowers(), SliceConstantRows(), *attention, NarrowProducts()]
    return [*before, CallTilePrograms(), *passes]


def stock_passes() -> Passes:
    """``legalize_passes`` for CUDA as TVM has it."""
    from tvm.relax.backend import cuda

    return getattr(cuda.pipeline.legalize_passes, "stock", cuda.pipeline.legalize_passes)


def with_our_schedules(stock: Passes) -> Passes:
    """``legalize_passes`` of a backend, changed unless :data:`SWITCH` says no.

    For GPUs other than Hopper nothing changes, but that models may call tile programs.
    """

    def passes(target: Target) -> list[tvm.transform.Pass]:
        steps = stock(target)
        if os.environ.get(SWITCH) == "0":
            return steps
        if str(target.attrs.get("arch", "")) == SM90A.name:
            return legalize_passes(steps)
        return [CallTilePrograms(), *steps]

    return passes


def warploom_pipeline(
    *,
    tf32: bool = False,
    databases: Sequence[str | Path] = (),
    shipped: bool = True,
    estimates: bool = False,
) -> tvm.transform.Pass:
    """``relax.get_pipeline("warploom")``: TVM's pipeline for CUDA with our schedules.

    Parameters
    ----------
    tf32 : bool
        Whether float32 operands may be multiplied as tf32, with 10 bits of mantissa, in all
        functions; without it, in Relax functions with the attribute ``warploom.tf32``.
    databases : sequence of path
        Folders with tuning records, such as the ``work_dir`` of ``tune_tir`` and ``tune_relax``.
        For each function, measurements there go before records of the package, these before
        the analytic model, and that before TVM's own schedules.
    shipped : bool
        Whether to use the records of the package. ``WARPLOOM_SHIPPED=0`` in the environment turns
        it off everywhere, also in the default pipeline.
    estimates : bool
        Whether to use estimates in ``databases`` where nothing was measured; they are never
        compared with measured times.
    """
    from tvm.relax.backend import cuda

    lookup = Lookup.in_order(databases, shipped, estimates)
    stock = stock_passes()

    @tvm.transform.module_pass(opt_level=0, name="warploom")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        target = Target.current(allow_none=False)
        passes = [
            *cuda.pipeline.library_dispatch_passes(target),
            *legalize_passes(stock(target), tf32, lookup),
            *cuda.pipeline.dataflow_lower_passes(target),
            *cuda.pipeline.finalize_passes(target),
        ]
        return tvm.transform.Sequential(passes)(mod)

    return run
