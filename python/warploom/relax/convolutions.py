"""Convolutions in NCHW, as PyTorch and ONNX have them, are laid out with their channels last.

The tensor cores sum over what is last in memory, so a convolution is a GEMM in NHWC only. TVM's
``ConvertLayout`` gives that layout to the convolutions that become GEMMs and takes element-wise
operators, norms, pooling and concatenations between them along; transpositions remain where a
tensor comes from, or goes to, what wants NCHW. What a group of convolutions costs in
transpositions, and what it saves, decides whether it is laid out anew (:mod:`layout_cost`).
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from warploom.decide.machine import Machine
from warploom.decide.machines import machine_for
from warploom.gemm.tf32 import allows_tf32
from warploom.relax.align_broadcasts import AlignBroadcasts
from warploom.relax.convolution import Convolution
from warploom.relax.gather_pixels import GatherPixels
from warploom.relax.group_blocks import MOST_MOVES, group_blocks
from warploom.relax.layout_cost import copy_time, saved_time
from warploom.relax.regions import Regions
from warploom.relax.sink_permutations import SinkPermutations

#: So that no call is left without a reader.
_CLEANING = (relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination())
#: Channels of 16 bits that a pixel of a picture has at most: it stays as it is, and is gathered.
_PICTURE = 4


def LayOutConvolutions(tf32: bool = False) -> tvm.transform.Pass:
    """A pass that lays convolutions out with their channels last, where that pays.

    To be run before ``LegalizeOps``. A function with an operator that ``ConvertLayout`` fails at
    stays as it is.

    Parameters
    ----------
    tf32 : bool
        Whether float32 operands may be multiplied as tf32 in all functions; without it, in those
        with the attribute ``warploom.tf32``.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.LayOutConvolutions")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        machine, changed = machine_for(), {}
        for gv, func in mod.functions.items():
            if isinstance(func, relax.Function):
                made = _laid_out(func, machine, tf32 or allows_tf32(func))
                if made is not None:
                    changed[gv] = made
        if changed:
            mod = tvm.IRModule({**dict(mod.functions.items()), **changed}, attrs=mod.attrs)
        return GatherPixels(tf32)(mod)

    return run


def _laid_out(func: relax.Function, machine: Machine, tf32: bool) -> relax.Function | None:
    """The function with channels last where that pays; None if it does nowhere."""
    if not any(_is_candidate(one, tf32) for one in _convolutions(func)):
        return None
    func = _passed(func, *_CLEANING, AlignBroadcasts())
    chosen = [one for one in _convolutions(func) if _is_candidate(one, tf32)]
    while chosen:
        try:
            made = _passed(func, _convert(chosen), *_CLEANING, SinkPermutations())
        except Exception:  # of any kind, of an operator that TVM's pass cannot convert
            return None
        kept = _paying(func, made, chosen, machine)
        if len(kept) == len(chosen):
            return made
        chosen = kept
    return None


def _convert(chosen: list[Convolution]) -> tvm.transform.Pass:
    """The pass of TVM that lays some convolutions out, and what is between them."""
    layouts = {one.call: {one.call.op.name: _layouts(one)} for one in chosen}
    return relax.transform.ConvertLayout({}, lambda call: layouts.get(call, {}))


def _passed(func: relax.Function, *passes: tvm.transform.Pass) -> relax.Function:
    """A function that passes have changed, apart from others of its module."""
    name = str((func.attrs or {}).get("global_symbol", "main"))
    return tvm.transform.Sequential(passes)(tvm.IRModule({name: func}))[name]


def _convolutions(func: relax.Function) -> list[Convolution]:
    found = []

    def visit(expr: relax.Expr) -> None:
        one = Convolution.of(expr)
        if one is not None:
            found.append(one)

    relax.analysis.post_order_visit(func, visit)
    return found


def _is_candidate(one: Convolution, tf32: bool) -> bool:
    """Whether a convolution is NCHW, and a GEMM in NHWC, or of groups and may follow others."""
    first = f"NC{one.moves}" == one.data == one.stored and one.kernel == f"OI{one.moves}"
    follows = one.groups > 1 and len(one.moves) <= MOST_MOVES
    return first and (follows or one.may_be_gemm(tf32))


def _layouts(one: Convolution) -> list[str]:
    """Layouts of images, filters and result.

    Pictures are gathered from where they are. Threads that follow each other compute channels that
    do, and read a weight of each where there are groups that are no blocks.
    """
    if one.groups > 1 and group_blocks(one) is None:
        return [one.last, f"{one.moves}OI", one.last]
    if one.is_gathered and one.channels <= _PICTURE:
        return [one.data, one.kernel, one.last]
    return [one.last, f"O{one.moves}I", one.last]


def _paying(
    func: relax.Function, made: relax.Function, chosen: list[Convolution], machine: Machine
) -> list[Convolution]:
    """Those of the chosen convolutions whose region saves more time than its transpositions take.

    A region is what is connected without transpositions.
    """
    before, after = _convolutions(func), _convolutions(made)
    if len(before) != len(after):
        return []
    calls = {one.call for one in chosen}
    pairs = {new.call: old for old, new in zip(before, after, strict=True) if old.call in calls}
    regions, earlier = Regions(made), Regions(func)
    gains: dict[Any, float] = {}
    followers: dict[Any, Any] = {}
    for call, old in pairs.items():
        region = regions.of(call)
        gains[region] = gains.get(region, 0.0) + saved_time(old, machine)
        followers.setdefault(earlier.of(old.call), region)
    for ends, size in regions.transpositions:
        for region in ends & gains.keys():
            gains[region] -= copy_time(size, machine)
    # The model's own transpositions to NHWC and back: those that stay are among the ones above.
    for ends, size in earlier.transpositions:
        for region in {followers[end] for end in ends & followers.keys()}:
            gains[region] += copy_time(size, machine)
    return [old for call, old in pairs.items() if gains[regions.of(call)] > 0]
