"""An S-TIR function as equations: what each buffer holds, in terms of the buffers before it.

The functions that ``te`` and Relax's FuseTIR make are a block after the other, each of which
computes one buffer element by element. That is read here into one :class:`Equation` a block, and
equations are put into one another, so that recognition sees formulas and no statements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx import Buffer, IterVar, PrimFunc, Stmt, Var

from warploom.errors import Decline
from warploom.tile import ir


@dataclass(frozen=True)
class Equation:
    """``buffer[indices] = value`` for all values of the variables.

    Attributes
    ----------
    block : SBlock
        Where it is written.
    buffer : Buffer
        What it defines.
    indices : tuple of Expr
        One for each dimension, in terms of ``spatial``.
    value : Expr
        In terms of ``spatial`` and ``reduction``; where there is a reduction, it contains the load
        of ``buffer[indices]`` that the sum is in.
    spatial, reduction : tuple of (Var, Expr)
        Variables that tell elements apart, or are summed over, with their extents from 0 on.
    init : Expr, optional
        What the sum starts with.
    guard : Expr, optional
        The condition, in terms of ``spatial``, under which an element is stored.
    """

    block: SBlock
    buffer: Buffer
    indices: tuple[Any, ...]
    value: Any
    spatial: tuple[tuple[Var, Any], ...]
    reduction: tuple[tuple[Var, Any], ...] = ()
    init: Any = None
    guard: Any = None

    def is_own(self, value: Any) -> bool:
        """Whether an expression is the element that it defines, as a reduction reads it."""
        return (
            isinstance(value, TensorLoad)
            and value.source.same_as(self.buffer)
            and all(
                tvm_ffi.structural_equal(x, y)
                for x, y in zip(value.indices, self.indices, strict=True)
            )
        )

    def at(self, indices: tuple[Any, ...]) -> Any:
        """Its value at other indices.

        Raises
        ------
        Decline
            If it does not define each element of its buffer once, by indices that are variables.
        """
        if self.guard is not None:
            raise Decline(f"block {self.block.name_hint} stores {self.buffer.name} in part only.")
        table: dict[Var, Any] = {}
        for mine, wanted, size in zip(self.indices, indices, self.buffer.shape, strict=True):
            if isinstance(mine, Var) and mine not in table:
                table[mine] = wanted
            elif not (ir.is_constant(mine, 0) and ir.is_constant(size, 1)):
                raise Decline(
                    f"block {self.block.name_hint}: {self.buffer.name} is defined at index {mine}; "
                    "only variables, each in one dimension, can be followed."
                )
        return ir.substitute(self.value, table)


def narrow(func: PrimFunc) -> PrimFunc:
    """The function with indices of 32 bits, which kernels compute with.

    Raises
    ------
    Decline
        If an extent does not fit.
    """
    try:
        return tirx.transform.ForceNarrowIndexToInt32()(tvm.IRModule({"main": func}))["main"]
    except (RuntimeError, ValueError) as error:
        raise Decline(f"its indices cannot have 32 bits: {str(error).splitlines()[0]}") from None


def read_equations(func: PrimFunc, guarded: bool = False) -> list[Equation]:
    """The equations of an S-TIR function, in order.

    Parameters
    ----------
    func : PrimFunc
    guarded : bool
        Whether blocks may choose by a condition which elements they store.

    Raises
    ------
    Decline
        If a block is nested, guarded, scheduled already, or does more than one store.
    """
    root = func.body
    if not isinstance(root, SBlockRealize) or root.block.iter_vars:
        raise Decline("the function has no root block; it is no S-TIR function as te makes them.")
    statements = ir.flatten(root.block.body)
    equations = [equation for statement in statements for equation in _equations(statement)]
    for equation in equations:
        if equation.guard is not None and not guarded:
            raise Decline(
                f"block {equation.block.name_hint} stores {equation.buffer.name} under a condition."
            )
    return equations


def _equations(statement: Stmt) -> list[Equation]:
    """The equation of a nest of loops with a block; one for each buffer that it reduces at once."""
    loops: dict[Var, Any] = {}
    while isinstance(statement, tirx.For):
        if statement.kind != tirx.ForKind.SERIAL or not ir.is_constant(statement.min, 0):
            raise Decline(
                f"loop {statement.loop_var.name} is no serial loop from 0; the function has been "
                "scheduled already."
            )
        loops[statement.loop_var] = statement.extent
        statement = statement.body
    if not isinstance(statement, SBlockRealize):
        raise Decline("a statement of the function is outside of blocks; only blocks are followed.")
    block = statement.block
    name = block.name_hint
    if not ir.is_constant(statement.predicate, 1):
        raise Decline(f"block {name} has a predicate; only blocks without one are followed.")
    stores = _stores(block.body)
    if block.alloc_buffers or block.match_buffers or not stores:
        raise Decline(f"block {name} does more than store one element; it cannot be followed.")
    spatial, reduction = [], []
    for var, value in zip(block.iter_vars, statement.iter_values, strict=True):
        kept = reduction if var.iter_type == IterVar.CommReduce else spatial
        if var.iter_type not in (IterVar.DataPar, IterVar.CommReduce):
            raise Decline(f"block {name}: axis {var.var.name} is neither spatial nor a reduction.")
        if not _covers(var, value, loops):
            raise Decline(
                f"block {name}: axis {var.var.name} is {value}, which is no loop of its own; the "
                "function has been scheduled already."
            )
        kept.append((var.var, var.dom.extent))
    first = [] if block.init is None else _stores(block.init)
    starts = {store.buffer: store.value for _, store in first}
    if any(bool(reduction) != (store.buffer in starts) for _, store in stores):
        raise Decline(f"block {name} sums without an initial value; write one with T.init().")
    if reduction and any(guard is not None for guard, _ in stores):
        raise Decline(f"block {name} sums under a condition; put that into the term.")
    return [
        Equation(
            block, store.buffer, tuple(store.indices), store.value, tuple(spatial),
            tuple(reduction), starts.get(store.buffer), guard,
        )
        for guard, store in stores
    ]  # fmt: skip


def _stores(body: Stmt) -> list[tuple[Any, tirx.BufferStore]]:
    """The stores of a block, with their conditions or None.

    One, or those of a reduction of several numbers at once: such a reduction computes all new
    numbers from old ones, and then stores them. Or one in each branch of conditions. Empty if the
    body is something else.
    """
    statements, names = ir.flatten(body), {}
    while statements and isinstance(statements[0], tirx.Bind):
        binding = statements.pop(0)
        names[binding.var] = ir.substitute(binding.value, names)
    if len(statements) == 1 and isinstance(statements[0], tirx.IfThenElse):
        return _branches(statements[0]) if not names else []
    if not all(isinstance(statement, tirx.BufferStore) for statement in statements):
        return []
    stored = [store.buffer for store in statements]
    # What a store computes from a buffer that an earlier one has changed is no old number.
    reads = [load.source for store in statements for load in loads(store.value)]
    if len(stored) > 1 and (len(set(stored)) < len(stored) or set(stored) & set(reads)):
        return []
    return [
        (None, tirx.BufferStore(store.buffer, _named(store.value, names), list(store.indices)))
        for store in statements
    ]


def _branches(choice: tirx.IfThenElse) -> list[tuple[Any, tirx.BufferStore]]:
    """The stores of both branches, with what must hold for each."""
    result = []
    sides = [(choice.condition, choice.then_case), (tirx.Not(choice.condition), choice.else_case)]
    for condition, branch in sides:
        found = [] if branch is None else _stores(branch)
        if branch is not None and not found:
            return []
        result += [(condition if guard is None else tirx.And(condition, guard), store)
                   for guard, store in found]  # fmt: skip
    return result


def _named(value: Any, names: Mapping[Var, Any]) -> Any:
    """A value with what its names stand for."""

    def let(node: tirx.Let) -> Any:
        return ir.substitute(node.body, {node.var: node.value})

    return ir.map_nodes(ir.substitute(value, names), {tirx.Let: let}, {})


def _covers(var: IterVar, value: Any, loops: Mapping[Var, Any]) -> bool:
    """Whether an axis takes all values from 0 to its extent, one after the other."""
    if not ir.is_constant(var.dom.min, 0):
        return False
    if ir.is_constant(value, 0):
        return ir.is_constant(var.dom.extent, 1)
    return value in loops and tvm_ffi.structural_equal(loops[value], var.dom.extent)


def expand(expression: Any, definitions: Mapping[Buffer, Equation]) -> Any:
    """An expression in which no buffer occurs that one of the equations defines."""

    def load(node: TensorLoad) -> Any:
        known = definitions.get(node.source)
        if known is None:
            return node
        return expand(known.at(tuple(node.indices)), definitions)

    return ir.map_nodes(expression, {TensorLoad: load}, {})


def loads(expression: Any) -> list[TensorLoad]:
    """All loads from buffers in an expression."""
    found: list[TensorLoad] = []
    tvm_ffi.structural_walk(expression, (TensorLoad, found.append))
    return found


def strip_casts(expression: Any) -> Any:
    """The expression under conversions of type."""
    while isinstance(expression, tirx.Cast):
        expression = expression.value
    return expression


def simplify(expression: Any) -> Any:
    """The expression, simplified."""
    return tvm.sym.Analyzer().simplify(expression)


def settled(expression: Any, table: Mapping[Var, Any]) -> Any:
    """The expression with other variables, simplified."""
    return simplify(ir.substitute(expression, table))
