"""Statements of TIRx, as passes build them: thin functions, no state, no parser."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Range, TensorLoad, TensorRegion
from tvm.script import tirx as T
from tvm.script.ir_builder import IRBuilder
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Buffer, ForKind, Stmt, Var, is_buffer_var
from tvm.tirx.layout import S, TileLayout
from tvm.tirx.script.builder import _ffi_api as _builder
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.spans import flat

Body = Iterable[Stmt]
_Moved = Callable[[Buffer, Sequence[Any]], tuple[Buffer, Sequence[Any]] | None]
#: Statements that code is generated of.
_LEAVES = (TilePrimitiveCall, tirx.BufferStore, tirx.Evaluate)


def seq(statements: Body) -> Stmt:
    """The statements one after the other, without nesting."""
    flat = [leaf for statement in statements for leaf in flatten(statement)]
    return flat[0] if len(flat) == 1 else tirx.SeqStmt(flat) if flat else tirx.Evaluate(0)


def flatten(statement: Stmt) -> list[Stmt]:
    """The statements of a sequence; any other statement is a sequence of itself."""
    if isinstance(statement, tirx.SeqStmt):
        return [leaf for part in statement.seq for leaf in flatten(part)]
    return [statement]


def evaluate(call: Any) -> Stmt:
    """A call for its effect."""
    return tirx.Evaluate(call)


def loop(
    var: Var,
    extent: Any,
    body: Body,
    annotations: Mapping[str, Any] | None = None,
    kind: ForKind = ForKind.SERIAL,
    start: Any = 0,
    step: Any = None,
) -> Stmt:
    """``for var in range(start, start + extent)``."""
    notes = dict(annotations or {})
    return tirx.For(var, start, extent, kind, seq(body), annotations=notes, step=step)


def nest(
    counters: Sequence[Var], extents: Iterable[Any], body: Body,
    annotations: Mapping[str, Any] | None = None,
) -> Stmt:  # fmt: skip
    """Loops from 0 on, the first the outermost and with the annotations."""
    pairs = list(zip(counters, extents, strict=True))
    for var, extent in reversed(pairs[1:]):
        body = [loop(var, extent, body)]
    return loop(*pairs[0], body, annotations)


def counters(count: int) -> list[Var]:
    """Variables of a nest over so many dimensions: i, j, k, l, and numbered ones from there on."""
    names = "ijkl" if count <= 4 else [f"i{number}" for number in range(count)]
    return [Var(name, "int32") for name in names[:count]]


def when(condition: Any, then: Body, otherwise: Body | None = None) -> Stmt:
    """``if condition: ...``; a condition that is True leaves only the statements."""
    if condition is True:
        return seq(then)
    return tirx.IfThenElse(condition, seq(then), None if otherwise is None else seq(otherwise))


def allocation(buffer: Buffer, span: Any) -> Stmt:
    """An allocation at a place of a source; of several, as in a ``T.inline``, the outermost one.

    TVM's constructor takes the span of a single place alone.
    """
    return tirx.AllocBuffer(buffer, span=next(flat(span), None))


def with_body(statement: Stmt, body: Body) -> Stmt:
    """A loop or an attribute with another body."""
    if isinstance(statement, tirx.While):
        return tirx.While(statement.condition, seq(body), statement.span)
    if isinstance(statement, tirx.For):
        return tirx.For(
            statement.loop_var, statement.min, statement.extent, statement.kind, seq(body),
            statement.thread_binding, statement.annotations, statement.step, statement.span,
        )  # fmt: skip
    return tirx.AttrStmt(
        statement.node, statement.attr_key, statement.value, seq(body), statement.span
    )


def children(statement: Stmt) -> list[Stmt]:
    """Bodies of a loop, an attribute or a branch."""
    if isinstance(statement, (tirx.For, tirx.While, tirx.AttrStmt)):
        return [statement.body]
    if isinstance(statement, tirx.IfThenElse):
        return [
            branch for branch in (statement.then_case, statement.else_case) if branch is not None
        ]
    return []


def map_children(statement: Stmt, change: Callable[[Stmt], Stmt]) -> Stmt:
    """A sequence, loop, attribute or branch with its parts changed; any other as it is."""
    if isinstance(statement, tirx.SeqStmt):
        return seq(change(part) for part in statement.seq)
    if isinstance(statement, tirx.IfThenElse):
        then, otherwise = (*map(change, children(statement)), None)[:2]
        return tirx.IfThenElse(statement.condition, then, otherwise, statement.span)
    if isinstance(statement, (tirx.For, tirx.While, tirx.AttrStmt)):
        return with_body(statement, [change(statement.body)])
    return statement


def is_constant(value: Any, number: int) -> bool:
    """Whether an expression is that number."""
    return isinstance(value, tirx.IntImm) and int(value) == number


def as_expr(value: Any, dtype: str = "int32") -> Any:
    """A Python number as an expression."""
    return tirx.const(value, dtype) if isinstance(value, (bool, int, float)) else value


def region(buffer: Buffer, *parts: Any) -> TensorRegion:
    """``buffer[...]``; a part is a pair (start, extent) or one index."""
    slices = [
        slice(part[0], part[0] + part[1]) if isinstance(part, tuple) else part for part in parts
    ]
    return (
        buffer[tuple(slices)]
        if any(isinstance(s, slice) for s in slices)
        else _point(buffer, slices)
    )


def _point(buffer: Buffer, indices: list[Any]) -> TensorRegion:
    if not indices:
        return TensorRegion(buffer, [], tirx.BufferRegionType())  # `buffer[()]` is an element
    return buffer[tuple(slice(index, index + 1) for index in indices)]


def ranges(tile: TensorRegion) -> list[tuple[Any, Any]]:
    """(start, extent) of each dimension of a region."""
    return [(dimension.min, dimension.extent) for dimension in tile.region]


def whole(buffer: Buffer) -> TensorRegion:
    """All of a buffer."""
    return buffer[tuple(slice(None) for _ in buffer.shape)]


def written_at(statement: Stmt, span: Any) -> Stmt:
    """A statement that a pass has just made, at a place in the author's script.

    Its parts that have none get it: reports of the emulator name it.
    """

    def give(leaf: Stmt) -> None:
        if leaf.span is None:  # TVM gives places to statements that a builder gets
            with IRBuilder() as builder, builder.with_source_span(span):
                _builder.AddToParent(leaf)

    if span is not None:
        tvm_ffi.structural_walk(statement, (_LEAVES, give))
    return statement


def uses(node: Any) -> set[Var]:
    """All variables and buffers that occur in a statement or expression."""
    variables: set[Var] = set()
    tvm_ffi.structural_walk(node, (Var, variables.add))
    return variables


def declare_tile(
    shape: Sequence[Any], dtype: str, name: str, scope: str, layout: Any = None
) -> Buffer:
    """A tile; row-major without a layout.

    A tile of one element has the alignment of that element, as :func:`words_view` does.
    """
    options: dict[str, Any] = {} if layout is None else {"layout": layout}
    if len(shape) == 1 and int(shape[0]) == 1:
        options["data_alignment"] = tvm.DataType(dtype).bits // 8
    return tirx.decl_buffer(shape, dtype, name, scope=scope, **options)


def words_view(count: int, dtype: str, name: str, **options: Any) -> Buffer:
    """A view of registers as ``count`` elements, to be declared.

    A view of one element has the alignment of that element: with another TVM's printer takes it
    for a scalar variable, which the parser does not read back.
    """
    if count == 1:
        options["data_alignment"] = tvm.DataType(dtype).bits // 8
    return tirx.decl_buffer(
        (count,), dtype, name, scope="local", layout=TileLayout(S[(count,)]), **options
    )


def with_plain_extents(statement: Stmt) -> Stmt:
    """The statement with the extents of loops as the parser of scripts has them: simplified."""
    analyzer = Analyzer()

    def visit(node: tirx.For) -> Stmt:
        if isinstance(node.extent, tirx.IntImm):
            return node
        extent = analyzer.simplify(node.extent)
        if tvm_ffi.structural_equal(extent, node.extent):
            return node
        return loop(
            node.loop_var, extent, [node.body], node.annotations, node.kind, node.min, node.step
        )

    return tvm_ffi.structural_map(statement, (tirx.For, visit), order="post")


def element_callbacks(moved: _Moved) -> list[tuple[type, Callable[[Any], Any]]]:
    """Callbacks of ``structural_map`` that take elements to other places.

    Parameters
    ----------
    moved : callable
        From a buffer and the indices of an element that is loaded or stored to those of its new
        place; None for elements that stay where they are.
    """

    def load(node: TensorLoad) -> Any:
        place = moved(node.source, node.indices)
        return node if place is None else place[0][tuple(place[1])]

    def store(node: tirx.BufferStore) -> Stmt:
        place = moved(node.buffer, node.indices)
        return node if place is None else tirx.BufferStore(
            place[0], node.value, list(place[1]), node.span
        )

    return [(TensorLoad, load), (tirx.BufferStore, store)]


def substitute(node: Any, table: Mapping[Var, Any]) -> Any:
    """The node with other variables or buffers in place of those of the table."""
    return map_nodes(node, {}, table)


def map_nodes(
    node: Any, callbacks: Mapping[type, Callable[[Any], Any]], table: Mapping[Var, Any]
) -> Any:
    """The node rebuilt from the leaves up; tile primitives with all their parts."""

    def variable(var: Var) -> Any:
        return table.get(var, var)

    def call(old: TilePrimitiveCall) -> Any:
        config = {
            key: map_nodes(value, callbacks, table) if isinstance(value, tvm_ffi.Object) else value
            for key, value in old.config.items()
        }
        workspace = {key: table.get(value, value) for key, value in old.workspace.items()}
        new = TilePrimitiveCall(
            *old.args, op=old.op, workspace=workspace, config=config, dispatch=old.dispatch,
            scope=old.scope,
        )  # fmt: skip
        written_at(new, old.span)
        after = callbacks.get(TilePrimitiveCall)
        return after(new) if after else new

    entries = [(TilePrimitiveCall, call)]
    entries += [(kind, f) for kind, f in callbacks.items() if kind is not TilePrimitiveCall]
    return tvm_ffi.structural_map(node, [*entries, (Var, variable)], order="post")


def is_buffer(value: Any) -> bool:
    """Whether a variable is a buffer."""
    return is_buffer_var(value)


def address(buffer: Buffer, *indices: Any) -> Any:
    """``&buffer[indices]``."""
    return T.address_of(buffer[tuple(indices)])


def called_extern(node: Any) -> str | None:
    """The name of the function that a ``T.call_extern`` calls; None for another node."""
    if not isinstance(node, Call) or str(getattr(node.op, "name", "")) != "tirx.call_extern":
        return None
    return str(getattr(node.args[0], "value", node.args[0])) if len(node.args) else None


def whole_range(extent: Any) -> Range:
    """From 0 on."""
    return Range.from_min_extent(0, extent)


def renewed(statements: Body) -> list[Stmt]:
    """The statements with loop variables, scalars and bound variables of their own.

    A variable is defined once in a function, so each role gets its own copy of common statements.
    """
    statements = list(statements)
    table: dict[Var, Any] = {}

    def loop_var(loop: tirx.For) -> None:
        table[loop.loop_var] = Var(loop.loop_var.name, loop.loop_var.ty.dtype)

    def bind(binding: tirx.Bind) -> None:
        table[binding.var] = Var(binding.var.name, binding.var.ty)

    def alloc(allocation: tirx.AllocBuffer) -> None:
        old = allocation.buffer
        table[old] = tirx.decl_buffer(
            old.shape, str(old.dtype), old.name, scope=old.scope(), layout=old.layout
        )

    callbacks = [(tirx.For, loop_var), (tirx.Bind, bind), (tirx.AllocBuffer, alloc)]
    for statement in statements:
        tvm_ffi.structural_walk(statement, callbacks)
    return [substitute(part, table) for part in statements]
