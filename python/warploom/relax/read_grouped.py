"""Recognises functions of models that multiply groups of rows with weights of their own.

Libraries write them by hand and schedule them by hand: loops over tiles that search the group of a
row, or a sum over all experts under the condition that the row is one of theirs. What all of them
have in common is what they do with numbers: rows and weights are copied, multiplied, and summed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call
from tvm.ir.expr import TensorLoad
from tvm.s_tir import SBlock
from tvm.tirx import Buffer, BufferStore, IntImm, PrimFunc, Var

from warploom.errors import Decline
from warploom.gemm.equations import loads, simplify
from warploom.tile import ir

_FLOATS = ("float", "bfloat")
#: Calls that choose between two values.
_CHOICES = ("prim.if_then_else", "tirx.if_then_else")
#: Calls whose effect is an order of threads.
_BARRIERS = ("tirx.tvm_storage_sync",)


@dataclass(frozen=True)
class GroupedFunction:
    """A function that multiplies groups of rows with weights of their own.

    Attributes
    ----------
    rows, weights, offsets : int
        Which parameters are X ``(m, k)``, W ``(groups, n, k)`` and Indptr ``(groups + 1,)``.
    groups, n, k : int
    m : int or None
        Rows of all groups; None if a call decides.
    dtype, out_dtype, indptr_dtype : str
    fills : bool
        Whether rows of no group are set to zero; otherwise they are left alone.
    """

    rows: int
    weights: int
    offsets: int
    groups: int
    n: int
    k: int
    m: int | None
    dtype: str
    out_dtype: str
    indptr_dtype: str
    fills: bool


def read_grouped(func: PrimFunc) -> GroupedFunction:
    """The grouped GEMM that an S-TIR function computes, scheduled or not.

    Its parameters must be X, W, Indptr in any order and the result last, with no numbers beside
    them. All that it may do with elements is to copy them, to choose zero instead, to multiply one
    of X with one of W, and to sum products; Indptr is read at neighbours, and chooses rows.

    Raises
    ------
    Decline
        If it computes something else; the message names the obstacle.
    """
    found = _signature(func)
    params = func.params
    table = {params[found.rows]: _X, params[found.weights]: _W, params[-1]: _PRODUCT}
    flow = _Flow(table, params[found.offsets])
    flow.follow(func.body)
    fills = params[-1] in flow.zeroed
    return GroupedFunction(**{**found.__dict__, "fills": fills})


def _signature(func: PrimFunc) -> GroupedFunction:
    params = list(func.params)
    if len(params) != 4 or not all(map(ir.is_buffer, params)):
        raise Decline("its parameters are not X, W, the offsets of groups and the result.")
    *inputs, result = params
    ranks = [len(param.shape) for param in inputs]
    if sorted(ranks) != [1, 2, 3] or len(result.shape) != 2:
        raise Decline(f"its parameters have {ranks} dimensions; grouped GEMMs have 2, 3 and 1.")
    rows, weights, offsets = (ranks.index(rank) for rank in (2, 3, 1))
    x, w, indptr = inputs[rows], inputs[weights], inputs[offsets]
    sizes = [_static(size) for size in w.shape]
    if None in sizes or _static(x.shape[1]) != sizes[2] or _static(result.shape[1]) != sizes[1]:
        raise Decline(
            f"X {list(x.shape)}, W {list(w.shape)} and the result {list(result.shape)} are not "
            "[m, k], [groups, n, k] and [m, n] with known groups, n and k."
        )
    if _static(indptr.shape[0]) != sizes[0] + 1:
        raise Decline(f"{indptr.name} has {indptr.shape[0]} elements, not groups + 1.")
    if not tvm_ffi.structural_equal(x.shape[0], result.shape[0]):
        raise Decline("X and the result have different numbers of rows.")
    if str(x.dtype) != str(w.dtype):
        raise Decline(f"X is {x.dtype} and W {w.dtype}; a grouped GEMM has one type of both.")
    return GroupedFunction(
        rows, weights, offsets, *sizes, _static(x.shape[0]), str(x.dtype), str(result.dtype),
        str(indptr.dtype), False,
    )  # fmt: skip


def _static(size: Any) -> int | None:
    return int(size) if isinstance(size, IntImm) else None


#: What a value may be: nothing yet, zero, an element of X or of W, a sum of products.
_UNKNOWN, _ZERO, _X, _W, _PRODUCT = "not known", "zero", "X", "W", "a sum of products"


class _Flow:
    """What the buffers of a function hold, found from its stores until nothing changes."""

    def __init__(self, kinds: dict[Buffer, str], offsets: Buffer) -> None:
        self.kinds, self.offsets = kinds, offsets
        self.names: dict[Var, Any] = {}
        self.zeroed: set[Buffer] = set()
        self.stores: list[BufferStore] = []
        self.read_at: list[Any] = []

    def follow(self, body: Any) -> None:
        """Follow all statements.

        Raises
        ------
        Decline
            If one does anything else than to sum products of X and W.
        """
        tvm_ffi.structural_walk(body, [
            (BufferStore, self.stores.append), (tirx.Bind, self._bind),
            (tirx.Evaluate, self._evaluate), (SBlock, self._block),
            (tirx.IfThenElse, lambda node: self._integer(node.condition)),
            (tirx.While, lambda node: self._integer(node.condition)),
            (TensorLoad, self._load), (tirx.DeclBuffer, self._alias),
        ])  # fmt: skip
        before = None
        while before != self.kinds:
            before = dict(self.kinds)
            for store in self.stores:
                self._store(store)
        multiplied = any(self._multiplies(store.value) for store in self.stores)
        if not multiplied or _UNKNOWN in self.kinds.values():
            raise Decline("it multiplies no elements of X and W.")
        self._check_offsets()

    def _bind(self, node: tirx.Bind) -> None:
        self.names[node.var] = node.value

    def _evaluate(self, node: tirx.Evaluate) -> None:
        value = node.value
        if isinstance(value, IntImm):
            return
        name = getattr(getattr(value, "op", None), "name", "")
        if name not in _BARRIERS:
            raise Decline(f"it calls {name or value}, which is not followed.")

    def _block(self, block: SBlock) -> None:
        if block.match_buffers:
            raise Decline(f"block {block.name_hint} has views of buffers, which are not followed.")

    @staticmethod
    def _alias(node: tirx.DeclBuffer) -> None:
        raise Decline(f"{node.buffer.name} is another name of memory, which is not followed.")

    def _load(self, node: TensorLoad) -> None:
        if node.source.same_as(self.offsets):
            self.read_at.append(node.indices[0])
        elif node.source in self.kinds and self.kinds[node.source] == _W:
            self._check_group(node)

    def _check_group(self, node: TensorLoad) -> None:
        """Weights of the group that a row is in, not of one that the row names."""
        index = self._named(node.indices[0])
        if any(load.source.same_as(self.offsets) for load in loads(index)):
            raise Decline(f"{self.offsets.name} names the weights of a row: it has no groups.")

    def _named(self, value: Any) -> Any:
        return ir.substitute(value, self.names) if self.names else value

    def _integer(self, condition: Any) -> None:
        """A condition on rows and groups, not on elements."""
        condition = self._named(condition)
        for load in loads(condition):
            if str(load.source.dtype).startswith(_FLOATS):
                name = load.source.name
                raise Decline(f"it depends on elements of {name}, which is not followed.")

    def _store(self, store: BufferStore) -> None:
        if not str(store.buffer.dtype).startswith(_FLOATS):
            self._integer(store.value)
            return
        kind = self._kind(store.value)
        if kind == _ZERO:
            self.zeroed.add(store.buffer)
            return
        known = self.kinds.get(store.buffer, _UNKNOWN)
        if kind in (_UNKNOWN, known):
            return
        if known != _UNKNOWN:
            raise Decline(f"{store.buffer.name} holds {known} and {kind}.")
        self.kinds[store.buffer] = kind

    def _kind(self, value: Any) -> str:
        """What an expression computes.

        Raises
        ------
        Decline
            If it is anything else.
        """
        if isinstance(value, Var) and value in self.names:
            return self._kind(self.names[value])
        if isinstance(value, (tirx.FloatImm, IntImm)) and float(value.value) == 0:
            return _ZERO
        if isinstance(value, (tirx.Cast, tirx.Broadcast)):
            return self._kind(value.value)
        if isinstance(value, TensorLoad):
            return self.kinds.get(value.source, _UNKNOWN)
        if isinstance(value, tirx.Mul):
            return self._product({self._kind(value.a), self._kind(value.b)})
        if isinstance(value, tirx.Add):
            return self._sum({self._kind(value.a), self._kind(value.b)})
        chosen = _chosen(value)
        if chosen is not None:
            condition, *values = chosen
            self._integer(condition)
            return self._one_of({self._kind(one) for one in values})
        raise Decline(f"it computes {value}, which is no sum of products of X and W.")

    @staticmethod
    def _product(factors: set[str]) -> str:
        if factors == {_X, _W}:
            return _PRODUCT
        if _UNKNOWN in factors and factors <= {_UNKNOWN, _X, _W}:
            return _UNKNOWN
        raise Decline(f"it multiplies {' and '.join(sorted(factors))}.")

    @staticmethod
    def _sum(parts: set[str]) -> str:
        if parts <= {_PRODUCT, _ZERO, _UNKNOWN}:
            return _PRODUCT if _PRODUCT in parts else min(parts - {_ZERO}, default=_ZERO)
        raise Decline(f"it adds {' and '.join(sorted(parts))}.")

    @staticmethod
    def _one_of(kinds: set[str]) -> str:
        kinds = kinds - {_ZERO} or {_ZERO}
        if len(kinds) > 1 and _UNKNOWN not in kinds:
            raise Decline(f"it chooses {' or '.join(sorted(kinds))}.")
        return _UNKNOWN if _UNKNOWN in kinds else kinds.pop()

    def _multiplies(self, value: Any) -> bool:
        found: list[Any] = []
        tvm_ffi.structural_walk(self._named(value), (tirx.Mul, found.append))
        return any(str(one.ty.dtype).startswith(_FLOATS) for one in found)

    def _check_offsets(self) -> None:
        """Groups lie between neighbours of the offsets."""
        places = [self._named(place) for place in self.read_at]
        differences = (simplify(after - before) for after in places for before in places)
        if not any(ir.is_constant(one, 1) for one in differences):
            raise Decline(f"{self.offsets.name} is not read at neighbours, between which rows lie.")


def _chosen(value: Any) -> tuple[Any, Any, Any] | None:
    """The condition and the values of a choice."""
    if isinstance(value, tirx.Select):
        return value.condition, value.true_value, value.false_value
    if isinstance(value, Call) and getattr(value.op, "name", "") in _CHOICES:
        return tuple(value.args)
    return None
