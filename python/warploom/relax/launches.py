"""Which kernels the Relax functions of a model launch, how often, and with which sizes.

Read after Relax's fusion, where every kernel is a call: ``R.call_tir``, or a packed call by its
symbol. A call of the KV cache launches several kernels, which the model gave to the cache when it
was made.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.ir import GlobalVar, Op
from tvm.tirx import IntImm, PrimFunc

from warploom.gemm.equations import simplify
from warploom.relax.kv_cache import cache_slots
from warploom.relax.kv_cache_attention import LATENT, RAGGED
from warploom.relax.kv_cache_copies import APPEND, APPEND_LATENT, MERGE_SLOT
from warploom.tile import ir

#: What a symbolic size counts as, where nothing else is said.
DEFAULT_SIZE = 4096
#: Functions of TVM's runtime that launch nothing, and those of them that may launch kernels.
_RUNTIME, _OF_CACHES = ("vm.builtin.", "runtime.", "ffi."), "vm.builtin.attention_kv_cache_"
#: Calls with a tuple of arguments.
_CALLERS = (Op.get("relax.call_tir"), Op.get("relax.call_dps_packed"))
#: Places of kernels among the arguments of the call that makes a cache: the rotary embedding, and
#: attention of one new token of each sequence to those of the cache.
_ROTATE, _DECODE = 24, 17
#: Attention of new tokens to each other, or of one token to the cache, if it keeps no latents.
_NEW = "new"
#: Calls of a layer of a paged KV cache: the argument behind the cache that has a row for each new
#: token, and the kernels in their order, by their places.
_CALLS: dict[str, tuple[int, tuple[int | str, ...]]] = {
    f"{_OF_CACHES}attention_with_fused_qkv": (2, (_ROTATE, APPEND.slot, _NEW)),
    f"{_OF_CACHES}attention_with_shared_kv": (2, (_NEW,)),
    f"{_OF_CACHES}self_attention": (2, (RAGGED.slot,)),
    f"{_OF_CACHES}cross_attention": (2, (LATENT.slot,)),
    f"{_OF_CACHES}append_mla_kv": (1, (APPEND_LATENT.slot,)),
    f"{_OF_CACHES}merge_attn_output_inplace": (0, (MERGE_SLOT,)),
    f"{_OF_CACHES}get_query_positions": (0, ()),  # a view
}


@dataclass(frozen=True)
class Launch:
    """Launches of one kernel with the same sizes.

    Attributes
    ----------
    kernel : str
        Name of the function in the module.
    shapes : tuple of tuple of int
        Of the tensors that it is called with, results behind arguments; a size that the call does
        not tell is -1. Empty for a kernel of the KV cache.
    scalars : tuple of int
        Sizes that it is called with.
    rows : int
        Of a kernel of the KV cache: new tokens of all sequences; otherwise 0.
    decodes : bool
        Whether these are one token of each sequence.
    """

    kernel: str
    shapes: tuple[tuple[int, ...], ...]
    scalars: tuple[int, ...] = ()
    rows: int = 0
    decodes: bool = False


@dataclass
class FunctionLaunches:
    """What one Relax function launches in a call.

    Attributes
    ----------
    name : str
    sizes : dict of str to int
        What its symbolic sizes count as.
    launches : Counter of Launch
        How often each kernel is launched.
    others : Counter of str
        Calls of functions that are not in the module, such as those of libraries.
    """

    name: str
    sizes: dict[str, int] = field(default_factory=dict)
    launches: Counter[Launch] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)

    def add(self, other: FunctionLaunches) -> None:
        """Add what another function launches, once."""
        self.sizes |= other.sizes
        self.launches.update(other.launches)
        self.others.update(other.others)


def launches(
    mod: tvm.IRModule, original: tvm.IRModule, sizes: Mapping[str, int] | None = None
) -> list[FunctionLaunches]:
    """What each Relax function launches that no other function calls.

    Functions that launch nothing are left out.

    Parameters
    ----------
    mod : IRModule
        A model after Relax's fusion and warploom's passes, before its functions are scheduled.
    original : IRModule
        The model before any pass: there the kernels of a KV cache are known.
    sizes : mapping of str to int, optional
        What symbolic sizes count as, by their names; others count as :data:`DEFAULT_SIZE`.
    """
    reader = _Reader(mod, original, sizes or {})
    functions = [gv for gv, func in mod.functions.items() if isinstance(func, relax.Function)]
    made = {gv.name_hint: reader.of(gv.name_hint) for gv in functions}
    roots = [one for name, one in made.items() if name not in reader.called]
    return sorted(
        (one for one in roots if one.launches or one.others), key=lambda one: one.name
    )


class _Reader:
    """Reads the Relax functions of a module, each once."""

    def __init__(
        self, mod: tvm.IRModule, original: tvm.IRModule, sizes: Mapping[str, int]
    ) -> None:
        self.functions = {gv.name_hint: func for gv, func in mod.functions.items()}
        self.sizes = sizes
        self.cache = cache_slots(original)
        self.known: dict[str, FunctionLaunches] = {}
        self.called: set[str] = set()

    def of(self, name: str) -> FunctionLaunches:
        """What a function launches, with all that it calls."""
        if name in self.known:
            return self.known[name]
        made = self.known[name] = FunctionLaunches(name)  # recursion adds nothing more
        collector = _Collector()
        collector.visit_expr(self.functions[name])
        for call in collector.calls:
            self._add(made, call, collector.bound)
        return made

    def _add(self, made: FunctionLaunches, call: relax.Call, bound: Mapping[Any, Any]) -> None:
        operator = getattr(call.op, "name", "")
        if isinstance(call.op, GlobalVar):
            self._add_function(made, call.op.name_hint)
        elif operator in ("relax.call_tir", "relax.call_tir_inplace"):
            results = [] if operator.endswith("inplace") else _tensors(call.ty)
            made.launches[self._launch(made, call.args[0].name_hint, call, results)] += 1
        elif operator == "relax.call_dps_packed":
            symbol = str(getattr(call.args[0], "global_symbol", call.args[0]))
            if isinstance(self.functions.get(symbol), PrimFunc):
                made.launches[self._launch(made, symbol, call, _tensors(call.ty))] += 1
            else:
                self._add_packed(made, symbol, list(call.args[1].fields), bound)
        elif operator == "relax.call_pure_packed" or isinstance(call.op, relax.ExternFunc):
            callee = call.op if isinstance(call.op, relax.ExternFunc) else call.args[0]
            symbol = str(getattr(callee, "global_symbol", callee))
            if not symbol.startswith(_RUNTIME) or symbol.startswith(_OF_CACHES):
                arguments = list(call.args) if callee is call.op else list(call.args[1:])
                self._add_packed(made, symbol, arguments, bound)

    def _add_packed(
        self, made: FunctionLaunches, symbol: str, arguments: list[Any], bound: Mapping[Any, Any]
    ) -> None:
        if symbol in _CALLS and self.cache:
            made.launches.update(self._cached(made, symbol, arguments, bound))
        else:
            made.others[symbol] += 1

    def _add_function(self, made: FunctionLaunches, name: str) -> None:
        if isinstance(self.functions.get(name), relax.Function):
            self.called.add(name)
            made.add(self.of(name))

    def _launch(
        self, made: FunctionLaunches, name: str, call: relax.Call, results: list[Any]
    ) -> Launch:
        arguments = [field.ty for field in call.args[1].fields]
        tensors = [*(one for one in arguments if isinstance(one, relax.TensorType)), *results]
        values = list(call.args[2].values) if len(call.args) > 2 else []
        shapes = tuple(self._shape(made, one) for one in tensors)
        return Launch(name, shapes, tuple(self._number(made, one) for one in values))

    def _cached(
        self, made: FunctionLaunches, symbol: str, arguments: list[Any], bound: Mapping[Any, Any]
    ) -> Iterator[Launch]:
        """The kernels of a layer whose cache was empty, or of one token of each sequence."""
        place, slots = _CALLS[symbol]
        if not slots:
            return
        tensor = arguments[1 + place]
        rows = self._shape(made, tensor.ty)[0]
        decodes = self._is_one_token(made, tensor, rows, bound)
        for slot in slots:
            own = slot
            if slot == _NEW or (slot == LATENT.slot and not self.cache.get(slot)):
                own = _DECODE if decodes else RAGGED.slot
            names = self.cache.get(own, ())
            # A cache of latents has a second kernel that merges, for expanded values.
            for name in names[-1:] if slot == MERGE_SLOT else names[:1]:
                yield Launch(name, (), (), rows, decodes and own in (_DECODE, LATENT.slot))

    def _is_one_token(
        self, made: FunctionLaunches, qkv: relax.Expr, rows: int, bound: Mapping[Any, Any]
    ) -> bool:
        """Whether rows were ``[sequences, 1, ...]`` before they became ``[rows, heads, ...]``."""
        pending, seen = [qkv], set()
        while pending:
            value = bound.get(pending.pop())
            if not isinstance(value, relax.Call) or value.op not in _CALLERS or value in seen:
                continue
            seen.add(value)
            for source in self._sources(made, value, rows):
                extents = getattr(source.ty.shape, "values", ())
                # Hidden states, or the ids of tokens.
                is_ids = len(extents) == 2 and "int" in str(source.ty.dtype)
                has_tokens = len(extents) >= 3 or is_ids
                if has_tokens and math.prod(self._shape(made, source.ty)[:2]) == rows:
                    return ir.is_constant(extents[1], 1)
                pending.append(source)
        return False

    def _sources(self, made: FunctionLaunches, call: relax.Call, rows: int) -> list[relax.Expr]:
        """The arguments of a call that have so many rows, or else the first.

        A call that looks up tokens has the table first, and their ids behind it; a sum that a GEMM
        adds to has rows, too.
        """
        fields = [one for one in call.args[1].fields if isinstance(one.ty, relax.TensorType)]
        shapes = [self._shape(made, one.ty) for one in fields]
        found = [
            one for one, shape in zip(fields, shapes, strict=True)
            if shape and rows in (shape[0], math.prod(shape[:2]))
        ]  # fmt: skip
        return found or fields[:1]

    def _shape(self, made: FunctionLaunches, tensor: Any) -> tuple[int, ...]:
        values = getattr(tensor.shape, "values", None)
        if values is None:
            return (-1,) * max(0, int(tensor.ndim))
        return tuple(self._number(made, extent) for extent in values)

    def _number(self, made: FunctionLaunches, extent: Any) -> int:
        """A size; symbols in it count as the caller says."""
        if isinstance(extent, (int, IntImm)):
            return int(extent)
        table = {}
        for var in ir.uses(extent):
            made.sizes[var.name] = self.sizes.get(var.name, DEFAULT_SIZE)
            table[var] = tirx.const(made.sizes[var.name], str(var.ty.dtype))
        value = simplify(ir.substitute(extent, table))
        return int(value) if isinstance(value, IntImm) else -1


@relax.expr_functor.visitor
class _Collector(relax.PyExprVisitor):
    """The calls of a function in their order, and what its variables are bound to."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[relax.Call] = []
        self.bound: dict[Any, Any] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        self.bound[binding.var] = binding.value
        super().visit_var_binding_(binding)

    def visit_call_(self, call: relax.Call) -> None:
        self.calls.append(call)
        super().visit_call_(call)


def _tensors(types: Any) -> list[Any]:
    """The types of tensors of a result, which may be a tuple."""
    fields = getattr(types, "fields", None)
    return [types] if fields is None else list(fields)
