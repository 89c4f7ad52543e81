"""Statements of a tile program, and the grid of CTAs that executes them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm.tirx import PrimFunc, Var, is_buffer_var
from tvm.tirx.exec_scope import _SCOPE_BINDING_TO_PARENT_CUR as _BINDINGS
from tvm.tirx.stmt import (
    AllocBuffer,
    AttrStmt,
    Bind,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    ScopeIdDefStmt,
    SeqStmt,
)
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.errors import TileProgramError
from warploom.language.hints import DEVICE_ENTRY, PREFIX
from warploom.language.interpreter.barriers import run_operation
from warploom.language.interpreter.dtypes import convert, numpy_dtype, poisoned
from warploom.language.interpreter.expressions import Evaluator
from warploom.language.interpreter.nests import read_nest, storage_of
from warploom.language.interpreter.primitives import run_primitive
from warploom.language.interpreter.storage import TILES, Barrier, Storage
from warploom.language.mbarrier import SCOPE as MBARRIER
from warploom.language.mbarrier import read_operation

_ACCUMULATOR_DTYPES = ("float32", "float16", "int32")


def interpret(func: PrimFunc, args: Sequence[Any], *, poison: bool = True) -> None:
    """Execute a tile program on the CPU: one CTA after the other, one statement after the other.

    This is what a tile program means; kernels that the passes make of it give the same results,
    but for the order in which sums are rounded.

    Parameters
    ----------
    func : PrimFunc
        The tile program.
    args : sequence
        For each parameter an array of its dtype (those of ``ml_dtypes`` for ``bfloat16`` and
        ``float8_*``) and shape, or a number. Arrays are written where the program writes them.
    poison : bool
        Whether tiles hold NaN (integers: a pattern) until they are written, so that reading what
        was never written shows; otherwise they hold zeros.

    Raises
    ------
    TileProgramError
        If an argument does not fit its parameter, or a statement is no part of the language or
        breaks one of its rules.
    """
    _Runner(bind_parameters(func, args), poison).run(func.body)


def bind_parameters(func: PrimFunc, args: Sequence[Any]) -> Evaluator:
    """Parameters, and the variables in their shapes, with the values that arguments give them."""
    if len(args) != len(func.params):
        names = ", ".join(p.name for p in func.params)
        raise TileProgramError(f"{len(args)} arguments for {len(func.params)} parameters: {names}.")
    variables: dict[Var, np.ndarray] = {}
    buffers: dict[Var, Storage] = {}
    for parameter, value in zip(func.params, args, strict=True):
        if not is_buffer_var(parameter):
            dtype = numpy_dtype(str(parameter.ty.dtype))
            variables[parameter] = convert(np.asarray(value), dtype)
            continue
        dtype = numpy_dtype(str(parameter.ty.dtype))
        rank = len(parameter.ty.shape)
        if not isinstance(value, np.ndarray) or value.dtype != dtype or value.ndim != rank:
            got = (
                f"{value.dtype} array of rank {value.ndim}"
                if isinstance(value, np.ndarray)
                else type(value).__name__
            )
            raise TileProgramError(
                f"argument {parameter.name} is a {got}; it must be a {dtype} array of rank {rank}."
            )
        buffers[parameter] = Storage(parameter.name, "global", value)
        for extent, size in zip(parameter.ty.shape, value.shape, strict=True):
            if isinstance(extent, Var):
                variables.setdefault(extent, np.asarray(size, str(extent.ty.dtype)))
    evaluate = Evaluator(variables, buffers)
    for parameter, storage in buffers.items():
        shape = tuple(evaluate.integer(extent) for extent in parameter.ty.shape)
        if shape != storage.array.shape:
            raise TileProgramError(
                f"argument {parameter.name} has shape {storage.array.shape}; it must be {shape}."
            )
    return evaluate


@dataclass
class _Runner:
    """Executes statements; ``evaluate`` holds what is in scope."""

    evaluate: Evaluator
    poison: bool

    def run(self, statement: Any) -> None:
        handler = _STATEMENTS.get(type(statement))
        if handler is None:
            raise TileProgramError(
                f"{type(statement).__name__} is no statement of tile programs: "
                f"{str(statement).splitlines()[-1]!r}."
            )
        handler(self, statement)

    def sequence(self, statement: SeqStmt) -> None:
        for child in statement.seq:
            self.run(child)

    def attribute(self, statement: AttrStmt) -> None:
        key = str(statement.attr_key)
        if key == DEVICE_ENTRY:
            for ids in self.grid(statement.body):
                variables = {**self.evaluate.variables, **ids}
                cta = replace(
                    self.evaluate, variables=variables, buffers=dict(self.evaluate.buffers)
                )
                _Runner(cta, self.poison).run(statement.body)
        elif key.startswith((PREFIX, "tirx.")):
            self.run(statement.body)
        else:
            raise TileProgramError(f"attribute {key!r} is no hint; those begin with {PREFIX!r}.")

    def grid(self, body: Any) -> Iterator[dict[Var, np.ndarray]]:
        """The ids of every CTA of a device function."""
        definitions = list(_scope_ids(body))
        extents, ids = [], []
        for definition in definitions:
            if definition.extents is None or _BINDINGS[definition.scope] != ("kernel", "cta"):
                raise TileProgramError(
                    f"{', '.join(v.name for v in definition.def_ids)} is no T.cta_id with extents; "
                    "a tile program has no other ids, for it says nothing of threads."
                )
            extents += [self.evaluate.integer(extent) for extent in definition.extents]
            ids += list(definition.def_ids)
        if len(definitions) != 1:
            raise TileProgramError(
                f"the device function has {len(definitions)} statements T.cta_id; it must have 1."
            )
        for place in itertools.product(*map(range, extents)):
            yield {v: np.asarray(p, str(v.ty.dtype)) for v, p in zip(ids, place, strict=True)}

    def allocate(self, statement: AllocBuffer) -> None:
        buffer = statement.buffer
        name, scope = buffer.name, str(buffer.scope())
        dtype = numpy_dtype(str(buffer.ty.dtype))
        shape = tuple(self.evaluate.integer(extent) for extent in buffer.ty.shape)
        _check_allocation(name, scope, dtype, shape)
        if scope == MBARRIER:
            barriers = np.empty(shape, object)
            barriers.flat = [Barrier() for _ in range(barriers.size)]
            self.evaluate.buffers[buffer] = Storage(name, scope, barriers)
            return
        array = poisoned(shape, dtype) if self.poison else np.zeros(shape, dtype)
        self.evaluate.buffers[buffer] = Storage(name, scope, array)

    def bind(self, statement: Bind) -> None:
        self.evaluate.variables[statement.var] = self.evaluate(statement.value)

    def store(self, statement: BufferStore) -> None:
        target = storage_of(self.evaluate, statement.buffer)
        if target.scope != "local":
            raise TileProgramError(
                f"a single element of {target.name} in {target.scope} memory is stored; write an "
                "elementwise nest, or a tile primitive."
            )
        target.array[...] = self.evaluate(statement.value)

    def loop(self, statement: For) -> None:
        nest = read_nest(statement, lambda buffer: str(buffer.scope()) != "local")
        if nest is not None:
            nest.run(self.evaluate)
            return
        start, extent = (self.evaluate.integer(e) for e in (statement.min, statement.extent))
        step = 1 if statement.step is None else self.evaluate.integer(statement.step)
        dtype = str(statement.loop_var.ty.dtype)
        for value in range(start, start + extent, step):
            self.evaluate.variables[statement.loop_var] = np.asarray(value, dtype)
            self.run(statement.body)

    def branch(self, statement: IfThenElse) -> None:
        if self.evaluate(statement.condition):
            self.run(statement.then_case)
        elif statement.else_case is not None:
            self.run(statement.else_case)

    def primitive(self, statement: TilePrimitiveCall) -> None:
        run_primitive(self.evaluate, statement)

    def expression(self, statement: Evaluate) -> None:
        operation = read_operation(statement)
        if operation is not None:
            run_operation(self.evaluate, operation)
        else:
            self.evaluate(statement.value)

    def scope_id(self, statement: ScopeIdDefStmt) -> None:
        """The ids of this CTA have been bound by :meth:`attribute`."""


def _check_allocation(name: str, scope: str, dtype: np.dtype, shape: tuple[int, ...]) -> None:
    if scope == "wgmma.descriptor":
        raise TileProgramError(
            f"{name} is a matrix descriptor, which only a kernel with threads of its own makes; "
            "gemm_async of a tile program takes the tiles."
        )
    if scope not in (*TILES, MBARRIER, "local", "global"):
        raise TileProgramError(
            f"{name} is allocated in scope {scope!r}; allowed are {', '.join((*TILES, MBARRIER))}."
        )
    if scope == MBARRIER and dtype.name != "uint64":
        raise TileProgramError(f"the mbarriers {name} have dtype {dtype}; it must be uint64.")
    if scope == "local" and shape != (1,):
        raise TileProgramError(
            f"{name} is an array of shape {shape} in local memory, which each thread has its own "
            "of; allocate a tile in scope shared or fragment."
        )
    product = scope in ("accumulator", "tmem")
    if product and (len(shape) != 2 or dtype.name not in _ACCUMULATOR_DTYPES):
        raise TileProgramError(
            f"accumulator {name} has dtype {dtype} and shape {shape}; it must have two dimensions "
            f"and one of the dtypes {', '.join(_ACCUMULATOR_DTYPES)}."
        )
    if scope == "fragment" and len(shape) not in (1, 2):
        raise TileProgramError(
            f"fragment {name} has shape {shape}; it must have one dimension or two."
        )
    if any(extent < 1 for extent in shape):
        raise TileProgramError(f"{name} has shape {shape}; extents must be at least 1.")


def _scope_ids(statement: Any) -> Iterator[Any]:
    """Definitions of ids at the top level of a device function."""
    if isinstance(statement, AttrStmt):
        yield from _scope_ids(statement.body)
    elif isinstance(statement, SeqStmt):
        for child in statement.seq:
            yield from _scope_ids(child)
    elif isinstance(statement, ScopeIdDefStmt):
        yield getattr(statement, "def")


_STATEMENTS: dict[type, Callable[[_Runner, Any], None]] = {
    AllocBuffer: _Runner.allocate,
    AttrStmt: _Runner.attribute,
    Bind: _Runner.bind,
    BufferStore: _Runner.store,
    Evaluate: _Runner.expression,
    For: _Runner.loop,
    IfThenElse: _Runner.branch,
    ScopeIdDefStmt: _Runner.scope_id,
    SeqStmt: _Runner.sequence,
    TilePrimitiveCall: _Runner.primitive,
}
