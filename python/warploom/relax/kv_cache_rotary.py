"""Where a paged KV cache rotates queries and keys: before attention, or in its kernels.

``RopeMode.INLINE`` passes 1 as the ``rotary_mode`` of kernels. So does ``RopeMode.NORMAL``, if the
cache may have sliding windows: keys are appended as they are then, since the positions of what a
window keeps change (TVM's runtime, ``PagedAttentionKVCacheObj``). Attention to latent vectors never
rotates, and a cache that rotates in kernels takes no trees.
"""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.relax.frontend.nn.llm.kv_cache import AttnKind, RopeMode

from warploom.programs.rotary import BEFORE, EITHER, INLINE

#: Arguments of the call that makes a cache: its sizes, among them whether sequences may have
#: windows; the kinds of attention of layers; the mode of the rotary embedding.
_SIZES, _WINDOWS, _KINDS, _ROPE_MODE = 0, 4, 6, 8
#: Kernels of attention to the tokens that are new, to those of the cache, to those of a window, and
#: of trees of tokens.
_RAGGED, _PAGED, _SLIDING, _TREES = 15, (16, 17), (18, 19), (20, 21)


def rotary_of(arguments: list[Any], slot: int) -> str:
    """A word of :mod:`warploom.programs.rotary` for the kernel of an argument of the call."""
    mode, kinds, windows = number_of(arguments[_ROPE_MODE]), _kinds(arguments), _windows(arguments)
    if mode == RopeMode.NONE or kinds == {int(AttnKind.MLA)} or slot in _TREES:
        return BEFORE
    if mode == RopeMode.INLINE:
        return INLINE
    if mode != RopeMode.NORMAL:
        return EITHER
    if windows == 0:
        return BEFORE
    of_layers = kinds is None or int(AttnKind.MHA_SLIDING) in kinds
    if slot in _SLIDING and not of_layers:  # it runs for sequences with windows alone
        return INLINE
    if slot in _PAGED and not of_layers:  # it does not run where there may be windows
        return BEFORE
    return EITHER if windows is None or slot != _RAGGED else INLINE


def rotates_before(arguments: list[Any]) -> bool:
    """Whether a cache rotates queries and keys before attention, unless it has windows."""
    return number_of(arguments[_ROPE_MODE]) in (RopeMode.NONE, RopeMode.NORMAL)


def number_of(argument: Any) -> int | None:
    """The number that an argument is; None if it is known at run time only."""
    while not isinstance(argument, int) and hasattr(argument, "value"):
        argument = argument.value
    return argument if isinstance(argument, int) else None


def _kinds(arguments: list[Any]) -> set[int | None] | None:
    """The kinds of attention of all layers, if they are known."""
    kinds = arguments[_KINDS]
    return {number_of(one) for one in kinds.values} if isinstance(kinds, relax.ShapeExpr) else None


def _windows(arguments: list[Any]) -> int | None:
    """Whether sequences may have windows, if it is known."""
    sizes = arguments[_SIZES]
    if not isinstance(sizes, relax.ShapeExpr) or len(sizes.values) <= _WINDOWS:
        return None
    return number_of(sizes.values[_WINDOWS])
