"""The passes that warploom runs on Relax models, in their order.

There are two groups: passes on operators, before ``relax.transform.LegalizeOps``, and passes on
fused functions, after ``relax.transform.FuseTIR`` and before dlight. A pass that changes a function
for Hopper does nothing where the target is another.
"""

from __future__ import annotations

import contextlib

import tvm
from tvm.s_tir import dlight
from tvm.target import Target
from tvm.tirx import PrimFunc

from warploom.meta_schedule.lookup import Lookup
from warploom.relax.attention import CallAttention
from warploom.relax.call_grouped import CallGrouped
from warploom.relax.call_top_k import CallTopK
from warploom.relax.constant_rows import SliceConstantRows
from warploom.relax.constant_weights import MarkConstantWeights
from warploom.relax.convolutions import LayOutConvolutions
from warploom.relax.drop_views import DropViews
from warploom.relax.find_attention import FindAttention
from warploom.relax.flatten_nests import FlattenNests
from warploom.relax.fold_constants import FoldConstants
from warploom.relax.fuse_gathered import FuseGathered
from warploom.relax.fuse_operands import FuseOperands
from warploom.relax.fuse_products import FuseProducts
from warploom.relax.fuse_rows import FuseRows
from warploom.relax.grouped_convolutions import BlockGroups
from warploom.relax.keep_gates_apart import KeepGatesApart
from warploom.relax.keep_statistics_apart import KeepStatisticsApart
from warploom.relax.kv_cache import ReplaceCacheKernels
from warploom.relax.lower_rows import LowerRows
from warploom.relax.matmul_rule import Matmul
from warploom.relax.measure_attention import measured_attention
from warploom.relax.measure_best import Choice, MeasureBest
from warploom.relax.multiply_powers import MultiplyPowers
from warploom.relax.narrow_products import NarrowProducts
from warploom.relax.narrow_residuals import NarrowResiduals
from warploom.relax.permutations import JoinPermutations
from warploom.relax.sink_reshapes import SinkReshapes
from warploom.relax.slice_splits import SliceSplits
from warploom.relax.split_reductions import SplitReductions
from warploom.relax.spread_tf32 import SpreadTf32
from warploom.relax.tile_programs import CallTilePrograms
from warploom.relax.transposed_convolutions import TurnTransposedConvolutions
from warploom.target import SM90A

#: The name of the pass that gives GEMMs their configs.
SCHEDULE_MATMULS = "warploom.ScheduleMatmuls"
#: The name of :func:`warploom.dlight.ApplyDefaultSchedule`, which runs the passes on functions.
APPLY_DEFAULT_SCHEDULE = "warploom.ApplyDefaultSchedule"


def library_passes() -> list[tvm.transform.Pass]:
    """The passes on operators that TVM replaces by functions of libraries, or by sorts."""
    return [_on_hopper(CallTopK())]


def operator_passes(tf32: bool = False, measure: bool = True) -> list[tvm.transform.Pass]:
    """The passes on operators.

    Parameters
    ----------
    tf32 : bool
        Whether float32 operands may be multiplied as tf32 in all functions.
    measure : bool
        Whether to measure what the environment asks for.
    """
    call = CallAttention(measured_attention) if measure else CallAttention()
    # Weights that matmuls broadcast are no constants of their own for each of a batch.
    passes = [CallTopK(), TurnTransposedConvolutions(), DropViews(), FoldConstants()]
    passes += [MultiplyPowers(), SliceConstantRows(), DropViews()]
    passes += [LayOutConvolutions(tf32), BlockGroups(tf32), SinkReshapes(), FindAttention()]
    passes += [FoldConstants(), JoinPermutations(), call, JoinPermutations()]
    passes += [NarrowProducts(), NarrowResiduals(), ReplaceCacheKernels(), CallGrouped()]
    passes += [FlattenNests(), SliceSplits()]
    passes += [KeepGatesApart(), KeepStatisticsApart(), SplitReductions()]
    return [*map(_on_hopper, passes), CallTilePrograms()]


def function_passes(
    tf32: bool = False, lookup: Lookup | None = None, measure: bool = True
) -> list[tvm.transform.Pass]:
    """The passes on fused functions.

    Parameters
    ----------
    tf32 : bool
        Whether float32 operands may be multiplied as tf32 in all functions; without it, in Relax
        functions with the attribute ``warploom.tf32``.
    lookup : Lookup, optional
        Measured configs, which go before those of the analytic model; by default the package's.
    measure : bool
        Whether to measure what the environment asks for.
    """
    choice = Choice(Lookup.shipped() if lookup is None else lookup)
    passes = [SpreadTf32(tf32), FuseGathered(), FuseOperands(), FuseProducts(), FuseRows()]
    passes += [MeasureBest(choice)] if measure else []
    matmuls = dlight.ApplyDefaultSchedule(Matmul(lookup=choice))
    hopper = [*map(_on_hopper, passes), _on_hopper(matmuls, SCHEDULE_MATMULS)]
    last = map(_on_hopper, (LowerRows(), MarkConstantWeights()))
    return [*hopper, *last, CallTilePrograms()]


def _on_hopper(step: tvm.transform.Pass, name: str | None = None) -> tvm.transform.Pass:
    """A pass that runs ``step`` if the target is Hopper, with that name or the one it has."""

    @tvm.transform.module_pass(opt_level=step.info.opt_level, name=name or str(step.info.name))
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        target = _target_of(mod)
        if target is None or str(target.attrs.get("arch", "")) != SM90A.name:
            return mod
        with contextlib.nullcontext() if Target.current() else target:
            return step(mod)

    return run


def _target_of(mod: tvm.IRModule) -> Target | None:
    """The current target, or the one that ``BindTarget`` has given to all functions."""
    current = Target.current()
    if current is not None:
        return current
    functions = (func for func in mod.functions.values() if isinstance(func, PrimFunc))
    bound = [func.attrs["target"] for func in functions if "target" in (func.attrs or {})]
    return bound[0] if bound and all(str(one) == str(bound[0]) for one in bound) else None
