"""Every step of lowering, as a pass of TVM from PrimFunc to PrimFunc.

The facts that a pass gives to the next passes are in the function (:mod:`warploom.tile.state`), so
that each works alone, in ``tvm.transform.Sequential`` and under ``PassContext(instruments=...)``,
and a pass of the user can stand between two of them. Functions that are no tile programs stay as
they are.

Examples
--------
>>> passes = [warploom.transform.CheckProgram("sm_90a"), warploom.transform.Canonicalize()]
>>> mod = tvm.transform.Sequential(passes)(mod)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import tvm
from tvm.tirx import PrimFunc
from tvm.tirx.transform import prim_func_pass

from warploom.errors import WarploomError
from warploom.language.exits import without_exits
from warploom.language.printing import is_on
from warploom.language.rules import check_program
from warploom.language.single_stores import with_single_stores
from warploom.lower.blackwell.pair_ctas import pair_ctas
from warploom.lower.blackwell.resolve_tensor_memory import resolve_tensor_memory
from warploom.lower.blackwell.scale_blocks import scale_blocks
from warploom.lower.blackwell.share_operands import share_operands
from warploom.lower.blackwell.sparse_operands import sparse_operands
from warploom.lower.blackwell.specialize_warps import specialize_warps_sm100
from warploom.lower.emit.prints import without_prints
from warploom.lower.hopper.alternate_operands import alternate_operands
from warploom.lower.hopper.k_major_operands import k_major_operands
from warploom.lower.hopper.metadata_rows import metadata_rows
from warploom.lower.hopper.multistage import multistage
from warploom.lower.hopper.order_mmas import order_mmas
from warploom.lower.hopper.ping_pong import ping_pong
from warploom.lower.hopper.slice_k import slice_k
from warploom.lower.hopper.specialize_warps import specialize_warps
from warploom.lower.hopper.warpgroups import ignore_role_hints
from warploom.lower.options import with_options
from warploom.lower.passes.allocate_shared import allocate_shared
from warploom.lower.passes.canonicalize import canonicalize
from warploom.lower.passes.check_barriers import check_own_barriers
from warploom.lower.passes.check_hints import check_hints
from warploom.lower.passes.choose_grid import choose_grid
from warploom.lower.passes.dequantise_scaled import dequantise_scaled
from warploom.lower.passes.infer_layouts import infer_layouts
from warploom.lower.passes.lower_nests import lower_nests
from warploom.lower.passes.plan_stages import plan_stages
from warploom.lower.passes.reduce_splits import reduce_splits
from warploom.lower.passes.resolve_by_hand import resolve_by_hand
from warploom.lower.passes.resolve_scopes import resolve_scopes
from warploom.lower.passes.spread_tiles import plan_threads, spread_tiles
from warploom.lower.passes.squeeze_vectors import squeeze_vectors
from warploom.lower.passes.stage_stores import stage_stores
from warploom.lower.passes.strip_annotations import strip_annotations
from warploom.lower.passes.verify import verify
from warploom.messages.blame import with_place
from warploom.target import SM90A
from warploom.tile.program import TileProgram
from warploom.tile.read import is_by_hand, is_tile_program, read
from warploom.tile.spans import drop_spans
from warploom.tile.state import STATE

#: The factory of a pass: ``Canonicalize()``.
Factory = Callable[[], tvm.transform.Pass]

__all__ = [
    "AllocateShared",
    "AlternateOperands",
    "Canonicalize",
    "CheckBarriers",
    "CheckProgram",
    "ChooseGrid",
    "DequantiseScaled",
    "IgnoreRoleHints",
    "InferLayouts",
    "KMajorOperands",
    "LowerNests",
    "MetadataRows",
    "Multistage",
    "OrderMmas",
    "PairCTAs",
    "PingPong",
    "PlanPipeline",
    "PlanThreads",
    "ReduceSplits",
    "ResolveByHand",
    "ResolveScopes",
    "ResolveTensorMemory",
    "ScaleBlocks",
    "ShareOperands",
    "SliceK",
    "SparseOperands",
    "SpecializeWarps",
    "SpreadTiles",
    "SqueezeVectors",
    "StageStores",
    "StripAnnotations",
    "Verify",
    "tile_pass",
]


def tile_pass(
    name: str, run: Callable[[TileProgram], TileProgram], prefix: str = ""
) -> tvm.transform.Pass:
    """A pass over the tile programs of a module, from a function on their parts.

    Parameters
    ----------
    name : str
        Of the pass, for instruments.
    run : callable
        From a :class:`~warploom.tile.program.TileProgram` to another. It raises
        :class:`~warploom.errors.Decline` where it cannot go on.

    Examples
    --------
    >>> note = tile_pass("Note", lambda program: program.decided("seen"))
    """

    def apply(func: PrimFunc) -> PrimFunc:
        return run(read(func, _arch_of(func)).replace(passes=True)).to_func()

    return _pass(prefix + name, apply)


def _pass(
    name: str, apply: Callable[[PrimFunc], PrimFunc], every: bool = False
) -> tvm.transform.Pass:
    @prim_func_pass(opt_level=0, name=name)
    def transform(
        func: PrimFunc, _mod: tvm.IRModule, _context: tvm.transform.PassContext
    ) -> PrimFunc:
        if not (every or STATE in (func.attrs or {}) or is_tile_program(func)):
            return func
        try:
            return apply(func)
        except WarploomError as error:
            raise type(error)(with_place(str(error), func)) from error

    return transform


def CheckProgram(
    arch: str | None = None, keep_spans: bool = False, every: bool = False
) -> tvm.transform.Pass:
    """The first pass: a program that breaks a rule of the language is refused.

    Hints of the author are completed by options of the ``PassContext``, statements that print are
    dropped where ``wl.print`` is off, and so is ``wl.span``.

    Parameters
    ----------
    arch : str, optional
        ``"sm_90a"`` or ``"sm_100a"``; without it that of the function's target, or of the target
        in whose scope this is called, or sm_90a.
    keep_spans : bool
        Whether kernels by hand keep their ``wl.span``.
    every : bool
        Whether it takes every function of the module, and not tile programs alone.

    Raises
    ------
    TileProgramError
        If the program breaks a rule; :func:`warploom.language.interpret` refuses it with the same
        sentence.

    Examples
    --------
    >>> checked = warploom.transform.CheckProgram("sm_90a")(tvm.IRModule({"main": program}))
    """

    def apply(func: PrimFunc) -> PrimFunc:
        by_hand = is_by_hand(func)
        if not by_hand:
            func = with_single_stores(func)
            check_program(func)
        func = without_exits(func if is_on() else without_prints(func))
        if not (keep_spans and by_hand):
            func = drop_spans(func)
        program = check_hints(read(func, arch or _arch_of(func)))
        if not by_hand:
            program = program.replace(hints=with_options(program.hints))
        return program.replace(passes=True).to_func()

    return _pass("warploom.CheckProgram", apply, every)


def _arch_of(func: PrimFunc) -> str:
    target = (func.attrs or {}).get("target", None) or tvm.target.Target.current()
    return SM90A.name if target is None else str(target.attrs.get("arch", SM90A.name))


def _specialize(program: TileProgram) -> TileProgram:
    """Split a program into roles; :func:`specialize_warps` does without tensor memory."""
    return (specialize_warps_sm100 if program.tensor_memory else specialize_warps)(program)


#: What the documentation of every pass ends with.
_EXAMPLE = """\
Examples
--------
>>> steps = [step for step in warploom.lower_trace(program) if step.name == "{}"]"""


def _factory(name: str, run: Callable[[TileProgram], TileProgram]) -> Factory:
    def make() -> tvm.transform.Pass:
        return tile_pass(name, run, "warploom.")

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"{inspect.cleandoc(run.__doc__ or '')}\n\n{_EXAMPLE.format(name)}"
    return make


DequantiseScaled = _factory("DequantiseScaled", dequantise_scaled)
ScaleBlocks = _factory("ScaleBlocks", scale_blocks)
Canonicalize = _factory("Canonicalize", canonicalize)
CheckBarriers = _factory("CheckBarriers", check_own_barriers)
SparseOperands = _factory("SparseOperands", sparse_operands)
MetadataRows = _factory("MetadataRows", metadata_rows)
ShareOperands = _factory("ShareOperands", share_operands)
KMajorOperands = _factory("KMajorOperands", k_major_operands)
AlternateOperands = _factory("AlternateOperands", alternate_operands)
SqueezeVectors = _factory("SqueezeVectors", squeeze_vectors)
ChooseGrid = _factory("ChooseGrid", choose_grid)
PairCTAs = _factory("PairCTAs", pair_ctas)
InferLayouts = _factory("InferLayouts", infer_layouts)
ResolveScopes = _factory("ResolveScopes", resolve_scopes)
ReduceSplits = _factory("ReduceSplits", reduce_splits)
StageStores = _factory("StageStores", stage_stores)
PlanPipeline = _factory("PlanPipeline", plan_stages)
OrderMmas = _factory("OrderMmas", order_mmas)
SliceK = _factory("SliceK", slice_k)
PingPong = _factory("PingPong", ping_pong)
IgnoreRoleHints = _factory("IgnoreRoleHints", ignore_role_hints)
ResolveTensorMemory = _factory("ResolveTensorMemory", resolve_tensor_memory)
SpecializeWarps = _factory("SpecializeWarps", _specialize)
PlanThreads = _factory("PlanThreads", plan_threads)
SpreadTiles = _factory("SpreadTiles", spread_tiles)
Multistage = _factory("Multistage", multistage)
ResolveByHand = _factory("ResolveByHand", resolve_by_hand)
LowerNests = _factory("LowerNests", lower_nests)
AllocateShared = _factory("AllocateShared", allocate_shared)
StripAnnotations = _factory("StripAnnotations", strip_annotations)
Verify = _factory("Verify", verify)
