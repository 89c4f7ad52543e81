"""Accesses of global and shared memory that move several neighbours of a row at once.

Where a thread holds neighbours of a row, the loads of a statement for all of them become one
instruction of up to 16 bytes before it, and stores one behind it: if the row of memory consists of
such words and begins with one. Elements over the edge of a tensor are 0, as everywhere; a word is
inside as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op, TensorLoad
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt, Var
from tvm.tirx.layout import S, TileLayout

from warploom.lower.nests.elements import Element, inside_buffer, narrowed, together
from warploom.lower.nests.neighbours import MOST_BYTES, is_common, run_of, word_width
from warploom.ops.copy_fragment import WIDTHS
from warploom.tile import ir
from warploom.tile.nest import AtomicUpdate, Binding, ElementStore, Guard, Part, parts_of
from warploom.tile.scopes import is_global, is_shared

_IF_THEN_ELSE = Op.get("prim.if_then_else")


def for_neighbours(parts: Sequence[Part], elements: list[Element]) -> list[Stmt]:
    """The statements of a nest for neighbours of a row, whose number is a power of two."""
    return [statement for part in parts for statement in _part(part, elements)]


def _part(part: Part, elements: list[Element]) -> list[Stmt]:
    if len(elements) == 1:
        return [elements[0].statement(part)]
    if isinstance(part, Guard):
        if not is_common(part.condition, elements):
            return [element.statement(part) for element in elements]
        # Elements know the same variables before and after the branch.
        inner = for_neighbours(part.parts, elements)
        return [ir.when(elements[0].expression(part.condition), inner)]
    if isinstance(part, AtomicUpdate):
        return [element.statement(part) for element in elements]
    before, raw = _with_wide_loads(part.raw, elements)
    (part,) = parts_of(raw)
    if isinstance(part, Binding):
        return [*before, *(element.statement(part) for element in elements)]
    return [*before, *(_wide_store(part, elements) or _in_pairs(part, elements))]


def _pairs(elements: list[Element]) -> list[list[Element]]:
    return [elements[at : at + 2] for at in range(0, len(elements), 2)]


def _in_pairs(part: Part, elements: list[Element]) -> list[Stmt]:
    return [statement for pair in _pairs(elements) for statement in together(part, pair)]


# -- loads -------------------------------------------------------------------------------------


def _with_wide_loads(raw: Any, elements: list[Element]) -> tuple[list[Stmt], Any]:
    """Loads for all elements, and the statement with variables in their place."""
    found: list[tuple[TensorLoad, Var, list[list[Any]]]] = []

    def load(node: TensorLoad) -> Any:
        if not ir.is_buffer(node.source) or not (is_global(node.source) or is_shared(node.source)):
            return node
        for same, variable, _ in found:
            if tvm_ffi.structural_equal(same, node):
                return variable
        run = run_of(node.indices, elements)
        if run is None or word_width(node.source, run[0][-1], elements) == 1:
            return node
        variable = Var(f"{node.source.name}_element", str(node.ty.dtype))
        found.append((node, variable, run))
        return variable

    new = tvm_ffi.structural_map(raw, (TensorLoad, load), order="post")
    if not found:
        return [], raw
    new = _without_edges(new, [(node, variable) for node, variable, _ in found])
    conditions = _conditions(new, {variable for _, variable, _ in found})
    before: list[Stmt] = []
    for node, variable, run in found:
        held = _vector_of(str(node.ty.dtype), len(elements), variable.name)
        before.append(tirx.AllocBuffer(held))
        when = _any_of(conditions[variable], elements)
        if when is not None:
            before += _wide_load(held, node, run, when, elements)
            for number, element in enumerate(elements):
                element.table[variable] = held[number]
    return before, new


def _without_edges(node: Any, loaded: list[tuple[TensorLoad, Var]]) -> Any:
    """The node without the test whether an element that was loaded is inside: it is 0 elsewhere."""

    def call(old: Call) -> Any:
        if not old.op.same_as(_IF_THEN_ELSE):
            return old
        condition, value, other = old.args
        for load, variable in loaded:
            if value.same_as(variable) and _is_zero(other) and _is_edge(condition, load):
                return variable
        return old

    return tvm_ffi.structural_map(node, (Call, call), order="post")


def _is_zero(value: Any) -> bool:
    return isinstance(value, (tirx.IntImm, tirx.FloatImm)) and float(value.value) == 0


def _is_edge(condition: Any, load: TensorLoad) -> bool:
    """Whether a condition says no more than that a load is inside its buffer."""
    if isinstance(condition, tirx.And):
        return _is_edge(condition.a, load) and _is_edge(condition.b, load)
    if isinstance(condition, tirx.IntImm) and int(condition):
        return True
    return any(
        tvm_ffi.structural_equal(condition, test)
        for index, extent in zip(load.indices, load.source.shape, strict=True)
        for test in (index >= 0, index < extent)
    )


def _conditions(node: Any, variables: set[Var]) -> dict[Var, list[Any]]:
    """For each variable the conditions without which its value is not used."""
    conditions: dict[Var, list[Any]] = {variable: [] for variable in variables}
    counts: dict[Var, int] = dict.fromkeys(variables, 0)

    def count(var: Var) -> None:
        if var in counts:
            counts[var] += 1

    def call(old: Call) -> None:
        if old.op.same_as(_IF_THEN_ELSE):
            condition, *cases = old.args
            for case, holds in zip(cases, (condition, tirx.Not(condition)), strict=True):
                for variable in ir.uses(case) & variables:
                    conditions[variable].append(holds)

    tvm_ffi.structural_walk(node, [(Var, count), (Call, call)])
    return {var: conditions[var] if counts[var] == 1 else [] for var in variables}


def _any_of(conditions: list[Any], elements: list[Element]) -> Any:
    """Whether an element needs its value; True if all do."""
    needed: Any = True
    for condition in conditions:
        if is_common(condition, elements):
            one = elements[0].expression(condition)
        else:
            one = elements[0].expression(condition)
            for element in elements[1:]:
                one = T.Or(one, element.expression(condition))
        needed = one if needed is True else T.And(needed, one)
    return needed


def _vector_of(dtype: str, count: int, name: str) -> Buffer:
    """Registers for neighbours; a local array that is aligned as words."""
    return tirx.decl_buffer(
        (count,), dtype, name, scope="local", layout=TileLayout(S[(count,)]),
        data_alignment=MOST_BYTES,
    )  # fmt: skip


def _instruction(
    direction: str, buffer: Buffer, width: int, held: Buffer, count: int
) -> tuple[str, int, Stmt, Buffer]:
    """PTX instruction, its registers for one access, and a view of ``held`` as such registers."""
    bits = tvm.DataType(str(buffer.dtype)).bits
    suffix, words, word = WIDTHS[width * bits // 8]
    space = "global" if is_global(buffer) else "shared"
    total = count * bits // tvm.DataType(word).bits
    view = ir.words_view(total, word, f"{held.name}_words", data=held.data)
    return f"{direction}.{space}.{suffix}", words, tirx.DeclBuffer(view, data=held.data), view


def _wide_load(
    held: Buffer, node: TensorLoad, run: list[list[Any]], when: Any, elements: list[Element]
) -> list[Stmt]:
    """Load all neighbours, or set them to 0 where they are outside or not needed."""
    source = node.source
    width = word_width(source, run[0][-1], elements)
    name, words, declaration, view = _instruction("ld", source, width, held, len(elements))
    statements: list[Stmt] = [declaration]
    for first in range(0, len(elements), width):
        at = first // width * words
        move = ir.evaluate(
            T.ptx[name](*(view[at + i] for i in range(words)), ir.address(source, *run[first]))
        )
        inside = inside_buffer(node, elements[first], source) if is_global(source) else True
        tests = [test for test in (when, inside) if test is not True]
        if tests:
            zero = tirx.const(0, str(view.dtype))
            statements += [tirx.BufferStore(view, zero, [at + i]) for i in range(words)]
            move = ir.when(tirx.all(*tests), [move])
        statements.append(move)
    return statements


# -- stores ------------------------------------------------------------------------------------


def _wide_store(part: ElementStore, elements: list[Element]) -> list[Stmt] | None:
    """A store of neighbours to memory at once; None if it is another."""
    buffer, count = part.buffer, len(elements)
    if not (is_global(buffer) or is_shared(buffer)):
        return None
    run = run_of(part.indices, elements)
    width = 1 if run is None else word_width(buffer, run[0][-1], elements)
    if width == 1:
        return None
    held = _vector_of(str(buffer.dtype), count, f"{buffer.name}_elements")
    statements: list[Stmt] = [tirx.AllocBuffer(held)]
    for number, pair in enumerate(_pairs(elements)):
        before, value = narrowed(part.value, pair)
        statements += before
        statements += [
            tirx.BufferStore(held, element.expression(value), [2 * number + i], part.raw.span)
            for i, element in enumerate(pair)
        ]
    name, words, declaration, view = _instruction("st", buffer, width, held, count)
    statements.append(declaration)
    for first in range(0, count, width):
        at = first // width * words
        values = [view[at + i] for i in range(words)]
        move = ir.evaluate(T.ptx[name](ir.address(buffer, *run[first]), *values))
        inside = inside_buffer(part, elements[first]) if is_global(buffer) else True
        tests = [test for test in (elements[0].once, inside) if test is not True]
        statements.append(ir.when(tirx.all(*tests), [move]) if tests else move)
    return statements
