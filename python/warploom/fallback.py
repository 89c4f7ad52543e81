"""Functions that warploom takes from TVM, and gives back if their kernels cannot be built.

A pass that replaces a function keeps the original. Where a later step cannot follow, be it a pass
of this package, one of TVM or the CUDA compiler, the function gets TVM's own schedule, and a
:class:`~warploom.errors.StockScheduleWarning` says why. A build that TVM can do never ends here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import tvm
import tvm_ffi
from tvm.ir import GlobalVar, IRModule
from tvm.s_tir import SBlock
from tvm.target import Target
from tvm.tirx import PrimFunc

from warploom.errors import (
    Decline,
    IllegalCombination,
    StockScheduleWarning,
    ToolchainError,
    WarploomWarning,
)
from warploom.gemm.annotations import PREFIX, has_decisions
from warploom.warn import deferred, silenced, warn

#: Attribute of a TIRx kernel: the S-TIR function that it computes, not scheduled.
ORIGINAL = "warploom.original"
#: Attributes that a function gets after it was taken, and the original then needs as well.
_LATER = ("global_symbol", "target")
#: Characters of an error of TVM or of a compiler that a warning repeats.
_MOST_CHARACTERS = 300

Made = TypeVar("Made")
Build = Callable[..., Any]


def with_original(kernel: PrimFunc, original: PrimFunc) -> PrimFunc:
    """A kernel that keeps the S-TIR function it replaces; both have the same parameters."""
    return kernel.with_attr(ORIGINAL, original)


def without_original(func: Any) -> Any:
    """A function of a module as it goes to TVM's passes."""
    kept = isinstance(func, PrimFunc) and ORIGINAL in (func.attrs or {})
    return func.without_attr(ORIGINAL) if kept else func


def original_of(func: Any) -> PrimFunc | None:
    """The unscheduled S-TIR function that was taken; None for functions that are TVM's own.

    Parameters
    ----------
    func : BaseFunc
        A kernel of :func:`with_original`, or an S-TIR function with decisions of
        :mod:`warploom.schedule`.
    """
    attrs = dict((getattr(func, "attrs", None) or {}).items())
    if has_decisions(func):
        return PrimFunc(
            func.params, _without_decisions(func.body), func.ret_type, func.attrs
        ).without_attr("tirx.is_scheduled")
    original = attrs.get(ORIGINAL)
    for key in _LATER if original is not None else ():
        if key in attrs:
            original = original.with_attr(key, attrs[key])
    return original


def _without_decisions(body: Any) -> Any:
    def change(block: SBlock) -> SBlock:
        kept = {k: v for k, v in block.annotations.items() if not k.startswith(PREFIX)}
        if len(kept) == len(block.annotations):
            return block
        return SBlock(
            block.iter_vars, block.reads, block.writes, block.name_hint, block.body, block.init,
            block.alloc_buffers, block.match_buffers, kept,
        )  # fmt: skip

    return tvm_ffi.structural_map(body, (SBlock, change), order="post")


def stock_schedule(func: PrimFunc, target: Target | None = None) -> PrimFunc:
    """An unscheduled S-TIR function with the schedule that TVM's pipeline for CUDA gives it."""
    from tvm.s_tir import dlight as dl

    rules = (dl.gpu.Matmul(), dl.gpu.GEMV(), dl.gpu.Reduction(), dl.gpu.GeneralReduction(),
             dl.gpu.Fallback())  # fmt: skip
    with (func.attrs or {}).get("target", None) or target or Target.current():
        return dl.ApplyDefaultSchedule(*rules)(IRModule({"main": func}))["main"]


def tell(name: str, error: Exception) -> None:
    """Say that a function has TVM's own schedule, and why."""
    warn(
        f"{name} is compiled with TVM's own schedule, which is slower: {_reason(error)}",
        StockScheduleWarning,
    )


def _reason(error: Exception) -> str:
    """Why a kernel cannot be built; for what is no refusal of warploom's, whose fault it is."""
    if isinstance(error, (Decline, IllegalCombination)):
        return str(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0] if lines else ''}"[:_MOST_CHARACTERS]
    return f"{text}. This is a fault of warploom; please report it with the function."


def attempted(name: str, make: Callable[[], Made]) -> Made | None:
    """Return ``make()``; None if it declines, or if it fails (then with a warning).

    Parameters
    ----------
    name : str
        The function that is about to be taken.
    make : callable
        May raise ``Decline`` or ``IllegalCombination``: then the function is none of ours.
    """
    try:
        return make()
    except (Decline, IllegalCombination):
        return None
    except WarploomWarning:  # a search wants none
        raise
    except Exception as error:  # of any kind: TVM can build the function
        tell(name, error)
        return None


def falling_back(build: Build) -> Build:
    """``tvm.tirx.build`` that gives functions back where their kernels end the build.

    Parameters
    ----------
    build : callable
        ``(mod, target, pipeline)``.
    """

    @functools.wraps(build)
    def complete(mod: Any, target: Any = None, pipeline: Any = "default") -> Any:
        with deferred():
            try:
                return build(mod, target, pipeline)
            except (ToolchainError, WarploomWarning):
                raise
            except Exception:
                module = IRModule.from_expr(mod) if isinstance(mod, PrimFunc) else mod
                wanted = Target.current() if target is None else Target(target)
                changed = _given_back(module, wanted, lambda part: build(part, target, pipeline))
                if changed is None:
                    raise
            return build(changed, target, pipeline)

    return complete


def _given_back(
    mod: IRModule, target: Target | None, build: Callable[[IRModule], Any]
) -> IRModule | None:
    """The module with the original of each taken function that cannot be built.

    None if there is none, or TVM cannot build its original either.
    """
    taken = {gv: func for gv, func in mod.functions.items() if original_of(func) is not None}
    changed: dict[GlobalVar, PrimFunc] = {}
    for gv, error in _failures(taken, mod, build):
        stock = stock_schedule(original_of(mod[gv]), target)
        if not changed and _error_of({gv: stock}, mod, build) is not None:
            return None
        tell(gv.name_hint, error)
        changed[gv] = stock
    if not changed:
        return None
    return IRModule({**dict(mod.functions.items()), **changed}, attrs=mod.attrs)


def _failures(
    part: dict[GlobalVar, PrimFunc], mod: IRModule, build: Callable[[IRModule], Any]
) -> Iterator[tuple[GlobalVar, Exception]]:
    """Which functions cannot be built, with the errors, found by halving."""
    error = _error_of(part, mod, build) if part else None
    if error is None:
        return
    names = list(part)
    if len(names) == 1:
        yield names[0], error
        return
    for half in (names[: len(names) // 2], names[len(names) // 2 :]):
        yield from _failures({gv: part[gv] for gv in half}, mod, build)


def _error_of(
    part: dict[GlobalVar, PrimFunc], mod: IRModule, build: Callable[[IRModule], Any]
) -> Exception | None:
    try:
        with silenced():
            build(tvm.IRModule(part, attrs=mod.attrs))
    except Exception as error:  # of any kind: the original is built instead
        return error
    return None
