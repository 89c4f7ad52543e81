"""Lower ``wl.print`` to a call of printf by the thread that has the values.

``wl.device_assert`` is such a call under the condition that it fails, and a trap behind it.

Tiles in registers are spread over threads, so an element of one goes through shared memory: a nest
before the statement, in which the thread that holds the element stores it, and the statement reads
it there. All else follows from how passes treat nests and reads of shared tiles: which thread
waits, and which role does it. One thread of the computing warpgroups prints.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.script import tirx as T
from tvm.tirx import Buffer, PrimFunc, Stmt

from warploom.errors import Decline
from warploom.language.print_format import BOOL, FLOAT, POINTER, SIGNED, UNSIGNED, Kind, c_format
from warploom.language.printing import Print, has_prints, map_prints, read_print
from warploom.messages.blame import line_of
from warploom.tile import ir
from warploom.tile.program import TileProgram
from warploom.tile.scopes import is_global, is_shared, is_tile
from warploom.tile.statement import Block, block

#: Elements of tiles in registers that a statement reads, of one dtype.
_ELEMENTS = 64
#: Kind of a value -> its type in C, with up to 32 bits and with 64.
_TYPES = {
    BOOL: ("int", "int"),
    SIGNED: ("int", "long long"),
    UNSIGNED: ("unsigned int", "unsigned long long"),
    FLOAT: ("double", "double"),
    POINTER: ("const void*", "const void*"),
}


# -- code ------------------------------------------------------------------------------------------


def printed(call: Print, span: Any, guard: Any = None) -> Stmt:
    """The call that prints, under the predicate and, if there is one, under ``guard``."""
    result = ir.evaluate(_call(call, span))
    # One `if` in the other: the predicate may read values of the printing thread alone.
    if not call.always:
        result = tirx.IfThenElse(call.predicate, result, None)
    result = result if guard is None else tirx.IfThenElse(guard, result, None)
    return ir.written_at(result, span)


def _call(call: Print, span: Any) -> Any:
    """A call of a device function of its own, with the format in its text."""
    form, kinds, values = call.format, [], []
    for (kind, bits), place, value in zip(call.kinds, form.places, call.values, strict=True):
        unsigned = kind is SIGNED and place.letter_of(kind) in ("x", "X")
        values.append(_passed(value, kind, bits, unsigned))
        kinds.append((UNSIGNED if unsigned else kind, bits))
    declared = ", ".join(
        f"{_TYPES[kind][bits > 32]} v{number}" for number, (kind, bits) in enumerate(kinds)
    )
    text = _literal(_place(call, span) + c_format(form, kinds) + "\n")
    passed = "".join(f", {_argument(number, kind)}" for number, (kind, _) in enumerate(kinds))
    trap = "    __trap();\n" if call.ends_kernel else ""
    body = f"({declared}) {{\n    printf({text}{passed});\n{trap}}}\n"
    name = f"warploom_print_{hashlib.sha256(body.encode()).hexdigest()[:16]}"
    source = f"__noinline__ __device__ void {name}{body}"
    return T.cuda.func_call(name, *values, source_code=source)


def _place(call: Print, span: Any) -> str:
    """What stands before the text of an assertion: where it is written."""
    if not call.ends_kernel:
        return ""
    line = line_of(span)
    place = "" if line is None else f"{os.path.basename(line.path)}:{line.number}: "
    return f"{place}device_assert: ".replace("%", "%%")


def _passed(value: Any, kind: Kind, bits: int, unsigned: bool) -> Any:
    """A value in a dtype that CUDA passes to printf."""
    if kind is POINTER:
        return value
    if kind is FLOAT:
        return T.Cast("float64", value if bits >= 32 else T.Cast("float32", value))
    if kind is BOOL:
        return T.Cast("int32", value)
    if unsigned:
        value = T.Cast(f"uint{bits}", value)
        kind = UNSIGNED
    wide = f"{'int' if kind is SIGNED else 'uint'}{64 if bits > 32 else 32}"
    return value if str(value.ty.dtype) == wide else T.Cast(wide, value)


def _argument(number: int, kind: Kind) -> str:
    """A parameter as printf gets it: a NaN without its sign, which differs between processors."""
    if kind is not FLOAT:
        return f"v{number}"
    # In integers, where no compiler takes one NaN for another.
    bits = f"__double_as_longlong(v{number})"
    return (
        f"({bits} & 0x7fffffffffffffffLL) > 0x7ff0000000000000LL "
        f"? __longlong_as_double(0x7ff8000000000000LL) : v{number}"
    )


def _literal(text: str) -> str:
    """A string literal of C."""
    plain = (chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}"
             for b in text.encode())  # fmt: skip
    return '"' + "".join(plain) + '"'


def by_threads(func: PrimFunc) -> PrimFunc:
    """A kernel whose author tells threads apart, with code in place of its print statements."""
    if not has_prints(func.body):
        return func

    def change(statement: Stmt, call: Print) -> Stmt:
        guard = None if call.thread is None else T.EQ(T.cuda.thread_rank(), call.thread)
        return printed(call, statement.span, guard)

    body = map_prints(func.body, change)
    return PrimFunc(func.params, body, func.ret_type, func.attrs, func.span)


def by_one_thread(statement: Stmt, program: TileProgram, alone: bool = False) -> Stmt:
    """A statement of the computing warpgroups; of its prints, code for the first of their threads.

    Parameters
    ----------
    alone : bool
        Whether one warpgroup comes here, whichever it is.
    """

    def change(statement: Stmt, call: Print) -> Stmt:
        guard: Any = T.And(T.EQ(program.var("warp_in_warpgroup"), 0), T.EQ(program.var("lane"), 0))
        if not alone:
            guard = T.And(T.EQ(program.var("warpgroup"), 0), guard)
        return printed(call, statement.span, guard)

    return map_prints(statement, change)


def by_this_thread(statement: Stmt) -> Stmt:
    """A statement that one thread executes; of its prints, the code of that thread."""
    return map_prints(statement, lambda part, call: printed(call, part.span))


def without_prints(func: PrimFunc) -> PrimFunc:
    """The function without print statements, and without loops and branches around nothing else.

    Assertions stay.
    """
    if not has_prints(func.body):
        return func
    body = ir.seq(_kept(func.body))
    return PrimFunc(func.params, body, func.ret_type, func.attrs, func.span)


def _kept(statement: Stmt) -> list[Stmt]:
    """The statements that remain of a statement."""
    if isinstance(statement, tirx.SeqStmt):
        return [kept for part in statement.seq for kept in _kept(part)]
    printed = read_print(statement)
    if printed is not None:
        return [statement] if printed.ends_kernel else []
    inner = ir.children(statement)
    parts = [_kept(part) for part in inner]
    same = all(
        len(new) == len(old) and all(a.same_as(b) for a, b in zip(new, old, strict=True))
        for new, old in zip(parts, map(ir.flatten, inner), strict=True)
    )
    if same:
        return [statement]
    if isinstance(statement, tirx.AttrStmt):
        return [ir.with_body(statement, parts[0])]
    if not any(parts):
        return []
    if isinstance(statement, tirx.IfThenElse):
        then, otherwise = ir.seq(parts[0]), ir.seq(parts[1]) if parts[1:] and parts[1] else None
        return [tirx.IfThenElse(statement.condition, then, otherwise, statement.span)]
    return [ir.with_body(statement, parts[0])]


# -- places ----------------------------------------------------------------------------------------


def through_shared(statements: Iterable[Stmt]) -> tuple[Stmt, ...]:
    """The statements of a tile program, whose prints read no tile in registers.

    An element outside of a buffer is printed as 0, as the language has it.
    """
    memory = _Memory()
    body = memory.place(block(statements))
    return (*memory.allocations(), *body)


class _Memory:
    """Shared memory for elements of tiles in registers, a row for each dtype."""

    def __init__(self) -> None:
        self.rows: dict[str, Buffer] = {}

    def allocations(self) -> list[Stmt]:
        """Of the rows."""
        return [tirx.AllocBuffer(row) for row in self.rows.values()]

    def place(self, statements: Block) -> list[Stmt]:
        """Statements with the nests that their prints take."""
        result: list[Stmt] = []
        for statement in statements:
            call = read_print(statement.raw)
            if call is not None:
                result += self._print(statement.raw, call)
            elif has_prints(statement.raw):
                result.append(statement.with_blocks(*map(self.place, statement.blocks)))
            else:
                result.append(statement.raw)
        return result

    def _print(self, statement: Stmt, printed: Print) -> list[Stmt]:
        held: dict[str, list[TensorLoad]] = {}

        def read(load: TensorLoad) -> Any:
            if not ir.is_buffer(load.source) or not (
                is_tile(load.source) or is_global(load.source)
            ):
                return load
            value = load
            if is_tile(load.source) and not is_shared(load.source):
                value = self._element(load, held, printed)
            return _inside(load, value)

        values = [
            tvm_ffi.structural_map(value, (TensorLoad, read), order="post")
            for value in (printed.predicate, *printed.values)
        ]
        name, text, thread, *_ = printed.call.args
        call = T.call_extern("int32", name, text, thread, *values)
        nests = [
            ir.written_at(self._nest(load, number), statement.span)
            for loads in held.values()
            for number, load in enumerate(loads)
        ]
        return [*nests, tirx.Evaluate(call, statement.span)]

    def _element(
        self, load: TensorLoad, held: dict[str, list[TensorLoad]], printed: Print
    ) -> Any:
        """Where the element of a tile in registers will be."""
        dtype = str(load.source.dtype)
        if dtype not in self.rows:
            self.rows[dtype] = tirx.decl_buffer(
                (1, _ELEMENTS), dtype, f"printed_{dtype}", scope="shared"
            )
        loads = held.setdefault(dtype, [])
        number = next(
            (i for i, known in enumerate(loads) if tvm_ffi.structural_equal(known, load)),
            len(loads),
        )
        if number == len(loads):
            loads.append(load)
        if number == _ELEMENTS:
            raise Decline(
                f"A {printed.name} reads more than {_ELEMENTS} elements of tiles in registers, "
                f"such as {load.source.name}; use two statements."
            )
        return self.rows[dtype][0, number]

    def _nest(self, load: TensorLoad, number: int) -> Stmt:
        """The nest in which the element is stored."""
        tile = load.source
        counters = ir.counters(len(tile.shape))
        chosen: Any = None
        for counter, index in zip(counters, load.indices, strict=True):
            here = counter == index
            chosen = here if chosen is None else T.And(chosen, here)
        row = self.rows[str(tile.dtype)]
        store = tirx.BufferStore(row, tile[tuple(counters)], [0, number])
        return ir.nest(counters, tile.shape, [tirx.IfThenElse(chosen, store, None)])


def _inside(load: TensorLoad, value: Any) -> Any:
    """The value, where the indices of a load lie in its buffer, and 0 elsewhere."""
    inside: Any = None
    for index, extent in zip(load.indices, load.source.shape, strict=True):
        constants = [number for number in (index, extent) if isinstance(number, tirx.IntImm)]
        if len(constants) == 2 and 0 <= int(index) < int(extent):
            continue
        here = T.And(index >= 0, index < extent)
        inside = here if inside is None else T.And(inside, here)
    if inside is None:
        return value
    return T.if_then_else(inside, value, tirx.const(0, str(load.ty.dtype)))
