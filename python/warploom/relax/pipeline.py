"""The Relax pipelines of TVM with warploom in them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import tvm
from tvm.target import Target

from warploom.meta_schedule.lookup import Lookup
from warploom.relax.insertion import inserted
from warploom.relax.passes import library_passes
from warploom.relax.tile_programs import CallTilePrograms
from warploom.target import SM90A

#: Set to 0, the default pipeline of Relax stays exactly as TVM has it.
SWITCH = "WARPLOOM_RELAX"

Passes = Callable[[Target], list[tvm.transform.Pass]]


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
            return inserted(steps)
        return [CallTilePrograms(), *steps]

    return passes


def before_libraries(stock: Passes) -> Passes:
    """``library_dispatch_passes`` of a backend, behind those of warploom that go before them."""

    def passes(target: Target) -> list[tvm.transform.Pass]:
        return [*([] if os.environ.get(SWITCH) == "0" else library_passes()), *stock(target)]

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

    Examples
    --------
    >>> pipeline = relax.get_pipeline("warploom", databases=["work_dir"], tf32=True)
    >>> executable = relax.build(mod, target, relax_pipeline=pipeline)  # doctest: +SKIP
    """
    from tvm.relax.backend import cuda

    lookup = Lookup.in_order(databases, shipped, estimates)
    stock = stock_passes()

    @tvm.transform.module_pass(opt_level=0, name="warploom")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        target = Target.current(allow_none=False)
        passes = [
            *cuda.pipeline.library_dispatch_passes(target),
            *inserted(stock(target), tf32, lookup),
            *cuda.pipeline.dataflow_lower_passes(target),
            *cuda.pipeline.finalize_passes(target),
        ]
        return tvm.transform.Sequential(passes)(mod)

    return run
