"""The kernels that a paged KV cache is made with become kernels of this package.

A model gives them to ``vm.builtin.paged_attention_kv_cache_create``. A kernel is replaced only if
it computes what TVM's own function for the same sizes computes: statement for statement, so that a
kernel of the model's author, even one with TVM's name, stays as it is.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import GlobalVar, IRModule
from tvm.target import Target
from tvm.tirx import IntImm, PrimFunc
from tvm.tirx.transform import StmtSimplify

from warploom.errors import Decline, IllegalCombination
from warploom.fallback import attempted, with_original
from warploom.programs.rotary import BEFORE, EITHER, INLINE
from warploom.relax.kv_cache_attention import RAGGED
from warploom.relax.kv_cache_kernel import (
    CALL_SIZES,
    RAGGED_VALUES,
    ROTARY,
    ROTARY_MODE,
    WINDOW,
    CacheKernel,
)
from warploom.relax.kv_cache_kernels import kernels_at
from warploom.relax.kv_cache_rotary import number_of, rotary_of, rotates_before
from warploom.relax.signatures import Facts
from warploom.relax.tile_programs import with_words

#: The function that makes a cache.
CREATE = "vm.builtin.paged_attention_kv_cache_create"
#: Functions that attend through a cache, and the argument that is the scale of the logits.
_ATTEND, _SM_SCALE = "vm.builtin.attention_kv_cache_", 2
#: The number among the sizes of the call that is that of a window.
_WINDOW = 5
#: What a cache passes as the rotary mode, if it is known.
_MODES = {BEFORE: 0, INLINE: 1}


def ReplaceCacheKernels() -> tvm.transform.Pass:
    """A pass that replaces the kernels of paged KV caches by those of this package.

    To be run for sm_90a, with the target, before
    :func:`warploom.relax.tile_programs.CallTilePrograms`. Kernels that differ from
    TVM's, that the model calls elsewhere too, or that rotate queries and keys themselves with a
    scaling (``rope_scaling``) stay; so does a kernel whose replacement cannot be built.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.ReplaceCacheKernels")
    def run(mod: IRModule, _: tvm.transform.PassContext) -> IRModule:
        target = Target.current(allow_none=False)
        changed = {}
        for use in cache_kernels(mod):
            func = mod[use.variable]
            made = attempted(use.variable.name_hint, lambda u=use, f=func: u.made(f, target))
            if made is not None:
                changed[use.variable] = made
        return IRModule({**dict(mod.functions.items()), **changed}, attrs=mod.attrs)

    return run


def left_to_tvm(mod: IRModule, target: Target) -> dict[str, str]:
    """Why kernels of paged KV caches in a module stay as they are, by their names."""
    reasons = {}
    for use in cache_kernels(mod):
        try:
            use.made(mod[use.variable], target)
        except (Decline, IllegalCombination) as error:
            reasons[use.variable.name_hint] = f"a kernel of the KV cache: {error}"
    return reasons


@dataclass
class CacheKernelUse:
    """A function of a module that is a kernel of one or more caches.

    Attributes
    ----------
    variable : GlobalVar
    places : set
        Where it stands in calls that make caches: slot, and place in a tuple.
    rotary : set of str
        Where the caches rotate queries and keys, in words of :mod:`warploom.programs.rotary`.
    usually_before : bool
        Whether they rotate before it, unless windows are switched on.
    sizes : list of dict
        Those of the calls that are numbers, by the names of ``CALL_SIZES``.
    elsewhere : bool
        Whether the module calls it, too.
    scales : set of float
        Scales of logits that the module passes to attention, as far as they are numbers.
    """

    variable: GlobalVar
    places: set[tuple[int, int | None]] = field(default_factory=set)
    rotary: set[str] = field(default_factory=set)
    usually_before: bool = True
    sizes: list[dict[str, int]] = field(default_factory=list)
    elsewhere: bool = False
    scales: set[float] = field(default_factory=set)

    def made(self, func: PrimFunc, target: Target) -> PrimFunc:
        """The kernel that replaces it.

        Raises
        ------
        Decline, IllegalCombination
            If it must stay.
        """
        if len(self.places) > 1 or self.elsewhere:
            raise Decline("the model uses it in other places, too; give each place its own.")
        row = self.row(func)
        if row.ours is None:
            raise Decline(row.stays)
        if row.attends and min(self.scales, default=1) <= 0:
            raise Decline(
                f"the model scales logits by {min(self.scales)}, and programs take scales above 0."
            )
        facts = self.facts(row, func)
        facts[ROTARY] = self._rotary(func, _stock(row, facts, target), row)
        program = with_original(row.ours(facts), func)
        return with_words(program, row.words.format_map(facts), row.attends)

    def row(self, func: PrimFunc) -> CacheKernel:
        """Which kernel of the cache it is.

        Raises
        ------
        Decline
            If it has other parameters than any kernel of its place.
        """
        return _row_of(func, kernels_at(*next(iter(self.places))))

    def facts(self, row: CacheKernel, func: PrimFunc) -> Facts:
        """The sizes of a kernel, from its parameters and from the call that makes the cache.

        Raises
        ------
        Decline
            As :meth:`row`.
        """
        return Facts.of(self.sizes[0], row.signature.match(func))

    def _rotary(self, func: PrimFunc, stock: PrimFunc, row: CacheKernel) -> str:
        """Where the kernel that replaces a function is to rotate queries and keys."""
        rotary = next(iter(self.rotary)) if len(self.rotary) == 1 else EITHER
        if not row.rotates:
            rotary = BEFORE
        if _same(func, stock, rotary):
            return rotary
        if not _same(func, stock, BEFORE):
            raise Decline("it differs from TVM's kernel for the same sizes.")
        if INLINE not in self.rotary and self.usually_before:
            return BEFORE
        raise Decline(
            "it rotates queries and keys itself, with a scaling (rope_scaling) for which there is "
            "no program; make the cache with RopeMode.NORMAL and without windows."
        )


def cache_kernels(mod: IRModule) -> list[CacheKernelUse]:
    """The functions of a module that are kernels of its caches, in the order of their names."""
    collector = _Collector()
    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            collector.visit_expr(func)
    uses: dict[GlobalVar, CacheKernelUse] = {}
    inside: Counter[GlobalVar] = Counter()
    counted: set[tuple[Any, ...]] = set()
    for call in collector.calls:
        sizes = _sizes(call, collector.bound, mod)
        for slot, place, name, variable in _slots(call, collector.bound):
            known = isinstance(mod.functions.get(variable), PrimFunc)
            if not known or not kernels_at(slot, place):
                continue
            use = uses.setdefault(variable, CacheKernelUse(variable))
            use.places.add((slot, place))
            use.rotary.add(rotary_of(call, slot))
            use.usually_before &= rotates_before(call)
            use.sizes.append(sizes)
            if name is None or (name, place) not in counted:
                counted.add((name, place))
                inside[variable] += 1
    for variable, use in uses.items():
        use.scales = collector.scales
        use.elsewhere = collector.seen[variable] > inside[variable]
    return sorted(uses.values(), key=lambda use: use.variable.name_hint)


def cache_slots(mod: IRModule) -> dict[int, list[str]]:
    """The functions that each argument of the first call names that makes a cache."""
    collector = _Collector()
    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            collector.visit_expr(func)
    slots: dict[int, list[str]] = {}
    for call in collector.calls[:1]:
        for slot, _, _, variable in _slots(call, collector.bound):
            slots.setdefault(slot, []).append(variable.name_hint)
    return slots


@relax.expr_functor.visitor
class _Collector(relax.PyExprVisitor):
    """The calls that make caches, and how often each function is named."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[list[Any]] = []
        self.seen: Counter[GlobalVar] = Counter()
        self.scales: set[float] = set()
        self.bound: dict[Any, Any] = {}

    def visit_global_var_(self, variable: GlobalVar) -> None:
        self.seen[variable] += 1

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        self.bound[binding.var] = binding.value
        super().visit_var_binding_(binding)

    def visit_call_(self, call: relax.Call) -> None:
        super().visit_call_(call)
        callee, arguments = call.op, list(call.args)
        if getattr(callee, "name", "") == "relax.call_pure_packed":
            callee, *arguments = arguments
        if isinstance(callee, relax.ExternFunc) and str(callee.global_symbol) == CREATE:
            self.calls.append(arguments)
        if getattr(callee, "name", "") == "relax.call_dps_packed":
            callee, values = arguments[:2]
            name = str(getattr(callee, "global_symbol", ""))
            if name.startswith(_ATTEND) and isinstance(values, relax.Tuple):
                scale = getattr(values.fields[_SM_SCALE], "value", None)
                self.scales |= {scale} if isinstance(scale, int | float) else set()


def _slots(
    arguments: list[Any], bound: dict[Any, Any]
) -> Iterator[tuple[int, int | None, relax.Var | None, GlobalVar]]:
    """Slot, place, the variable that holds the argument, and the function there, of each one."""
    for slot, value in enumerate(arguments):
        name = None
        while isinstance(value, relax.Var) and value in bound:
            name, value = value, bound[value]
        if isinstance(value, GlobalVar):
            yield slot, None, name, value
        elif isinstance(value, relax.Tuple):
            for place, one in enumerate(value.fields):
                if isinstance(one, GlobalVar):
                    yield slot, place, name, one


def _sizes(arguments: list[Any], bound: dict[Any, Any], mod: IRModule) -> dict[str, int]:
    """The sizes that a call gives as numbers."""
    found: dict[str, Any] = {name: number_of(arguments[slot]) for name, slot in CALL_SIZES.items()}
    sizes = arguments[0].values if isinstance(arguments[0], relax.ShapeExpr) else ()
    if len(sizes) > _WINDOW:
        found[WINDOW] = number_of(sizes[_WINDOW])
    for slot, _, _, variable in _slots(arguments, bound):
        func = mod.functions.get(variable)
        if slot == RAGGED.slot and isinstance(func, PrimFunc):
            with contextlib.suppress(Decline):
                found[RAGGED_VALUES] = RAGGED.signature.match(func)["value_dim"]
    return {name: value for name, value in found.items() if isinstance(value, int)}


def _row_of(func: PrimFunc, rows: tuple[CacheKernel, ...]) -> CacheKernel:
    """The row with the signature of a function, or that of a kernel that stays."""
    declined = None
    for row in rows:
        if row.ours is None:
            return row
        try:
            row.signature.match(func)
        except Decline as error:
            declined = declined or error
        else:
            return row
    assert declined is not None
    raise declined


def _stock(row: CacheKernel, facts: Facts, target: Target) -> PrimFunc:
    try:
        return row.stock(facts, target)
    except (Decline, IllegalCombination):
        raise
    except Exception as error:  # an assertion of TVM: it has no kernel of these sizes
        raise Decline(f"TVM has no kernel of its sizes: {error}.") from error


def _same(func: PrimFunc, stock: PrimFunc, rotary: str) -> bool:
    """Whether two functions compute the same, wherever queries and keys are rotated."""
    essences = [_essence(one, rotary) for one in (func, stock)]
    return tvm_ffi.structural_equal(*essences, map_free_vars=True)


def _essence(func: PrimFunc, rotary: str) -> PrimFunc:
    """A function without its name, and without what a cache that rotates elsewhere never runs."""
    for parameter in func.params:
        if parameter.name == ROTARY_MODE and rotary in _MODES:
            func = func.specialize({parameter: IntImm("int32", _MODES[rotary])})
            break
    for name in ("global_symbol", "tirx.is_scheduled", "op_pattern", "target"):
        if name in (func.attrs or {}):
            func = func.without_attr(name)
    return StmtSimplify()(IRModule({"main": func}))["main"]
