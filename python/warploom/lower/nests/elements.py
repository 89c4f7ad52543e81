"""The statements of a nest for one element, in one register of a thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Range, TensorLoad
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Buffer, Stmt, Var
from tvm.tirx.layout import S, TileLayout
from tvm.tirx.operator.tile_primitive.dispatcher import DispatchFail

from warploom.errors import Decline
from warploom.lower.nests.updates import atomic_update
from warploom.ops.elementwise_fragment import PACKED_CASTS
from warploom.ops.register_tile import LANES, RegisterTile, Threads, read_register_tile
from warploom.tile import ir
from warploom.tile.nest import AtomicUpdate, Binding, ElementStore, Guard, Part, parts_of
from warploom.tile.scopes import is_global, is_shared, is_tile

#: The threads of a warpgroup.
WARPGROUP = Threads("warpgroup", 0, 4)


@dataclass
class NestContext:
    """The context that all nests of a program share."""

    warp: Var
    lane: Var
    axes: dict[str, Any]
    thread: Any
    #: The threads that a nest runs on.
    threads: Threads
    flat: dict[Buffer, dict[str, Buffer]]
    tiles: dict[Buffer, RegisterTile]
    #: Ids, and variables of the loops around the current statement, with their ranges.
    loops: dict[Var, Range]
    #: Scalars that are known to be bounded -> a variable in their place, when something is proved.
    bounded: dict[Buffer, Var]

    def tile(self, buffer: Buffer) -> RegisterTile:
        """The elements of a buffer that each thread holds."""
        if buffer not in self.tiles:
            try:
                self.tiles[buffer] = read_register_tile(
                    ir.whole(buffer), buffer.name, self.threads, Analyzer()
                )
            except DispatchFail as error:
                raise Decline(str(error)) from error
        return self.tiles[buffer]

    def registers(self, buffer: Buffer, dtype: str | None = None) -> Buffer:
        """The registers of one thread, as a vector of elements or of words."""
        own = str(buffer.dtype)
        views = self.flat.setdefault(buffer, {})
        dtype = dtype or own
        if dtype not in views:
            bits = int(buffer.layout.storage().span("m")) * tvm.DataType(own).bits
            count = bits // tvm.DataType(dtype).bits
            views[dtype] = ir.words_view(count, dtype, f"{buffer.name}_r")
        return views[dtype]

    def for_proof(self, value: Any) -> Any:
        """An expression with variables in place of the scalars whose bounds are known."""

        def scalar(load: TensorLoad) -> Any:
            return self.bounded.get(load.source, load)

        return tvm_ffi.structural_map(value, (TensorLoad, scalar), order="post")

    def analyzer(self, register: Var, registers: int) -> Analyzer:
        """Return an analyzer with the ranges of warp, lane, register and the loops around."""
        analyzer = Analyzer()
        known = {self.warp: 4, self.lane: LANES, register: registers}
        for var, extent in known.items():
            analyzer.bind(var, ir.whole_range(extent))
        for var, values in self.loops.items():
            analyzer.bind(var, values)
        return analyzer


@dataclass
class Element:
    """An element of a nest, in one register of a thread: the code of its statements.

    Attributes
    ----------
    table : dict
        Values of the nest's variables.
    number : callable
        The register of a tile that holds the element at given indices.
    analyzer : Analyzer
        Ranges of the variables.
    once : Expr or bool
        Whether this thread stores to memory: several may hold copies of an element.
    words : callable or None
        From a load of a shared tile to its value, where a word of it has been loaded; else None.
    """

    table: dict[Var, Any]
    number: Any
    context: NestContext
    analyzer: Analyzer
    once: Any = True
    words: Callable[[TensorLoad], Any] | None = None

    def expression(self, value: Any) -> Any:
        """An expression of the nest."""

        def load(old: TensorLoad) -> Any:
            source = old.source
            if not ir.is_buffer(source):
                return old
            if is_global(source):
                return _guarded(old, self)
            if is_shared(source):
                value = self.words(old) if self.words is not None else None
                return old if value is None else value
            if not is_tile(source):
                return old
            return self.context.registers(source)[self.number(source, old.indices)]

        def simple(load: TensorLoad) -> Any:
            # The compiler then sees that many elements have, say, one scale.
            return load.source[tuple(self.analyzer.simplify(index) for index in load.indices)]

        placed = tvm_ffi.structural_map(value, (TensorLoad, load), order="post")
        placed = ir.substitute(placed, self.table)
        return tvm_ffi.structural_map(placed, (TensorLoad, simple), order="post")

    def _bind(self, variable: Var, value: Any) -> Stmt:
        """Give a variable of the nest its value.

        Integers are put in its place: they may be indices, of which bounds are to be proved.
        """
        value = self.expression(value)
        if "float" not in str(variable.ty.dtype):
            self.table[variable] = value
            return tirx.Evaluate(0)
        self.table[variable] = Var(variable.name, variable.ty.dtype)
        return tirx.Bind(self.table[variable], value)

    def statement(self, part: Part) -> Stmt:
        """A statement of the nest."""
        match part:
            case Guard():
                return ir.when(self.expression(part.condition), map(self.statement, part.parts))
            case Binding():
                return self._bind(part.variable, part.value)
        value, span = self.expression(part.value), part.raw.span
        if part.buffer.scope() == "local":
            registers = self.context.registers(part.buffer)
            number = self.number(part.buffer, part.indices)
            return tirx.BufferStore(registers, value, [number], span)
        indices = [self.expression(index) for index in part.indices]
        store = tirx.BufferStore(part.buffer, value, indices, span)
        if isinstance(part, AtomicUpdate):
            store = ir.written_at(atomic_update(part.name, part.buffer, indices, value), span)
        if not is_shared(part.buffer):
            store = ir.when(inside_buffer(part, self), [store])
        return ir.when(self.once, [store])


def narrows(node: Any) -> bool:
    """Whether a statement converts float32 to a type that has an instruction for two at once."""
    result = False

    def cast(node: tirx.Cast) -> None:
        nonlocal result
        result |= _narrowing(node) is not None

    tvm_ffi.structural_walk(node, (tirx.Cast, cast))
    return result


def _reads_shared(node: Any) -> bool:
    return any(ir.is_buffer(buffer) and is_shared(buffer) for buffer in ir.uses(node))


def _narrowing(value: Any) -> tuple[str, str] | None:
    """The instruction that converts two float32 to the type of a cast, and the word they fill."""
    if not isinstance(value, tirx.Cast) or str(value.value.ty.dtype) != "float32":
        return None
    return PACKED_CASTS.get(str(value.ty.dtype))


def in_pairs(tile: RegisterTile) -> bool:
    """Whether registers come in pairs that fill whole words."""
    return tile.registers % 2 == 0 and tile.offsets == tuple(range(tile.registers))


def together(part: Part, elements: list[Element]) -> list[Stmt]:
    """A statement for one register, or for two neighbours, whose conversions are one instruction.

    That is also safer: of two conversions that ptxas 13.0 fuses itself, into different places or
    the same, it was seen to move the result before the wait for the MMA that it reads.
    """
    if isinstance(part, ElementStore) and not isinstance(part.value, TensorLoad):
        bindings, value = _read_once(part.value)
        if bindings:
            store = tirx.BufferStore(part.buffer, value, part.indices, part.raw.span)
            parts = [*bindings, ElementStore(store)]
            return [statement for each in parts for statement in _together(each, elements)]
    return _together(part, elements)


def _together(part: Part, elements: list[Element]) -> list[Stmt]:
    if len(elements) == 1 or (isinstance(part, Guard) and _reads_shared(part.raw)):
        # Before a branch, the elements that it is there to leave out must not be read.
        return [element.statement(part) for element in elements]
    if isinstance(part, ElementStore) and part.buffer.scope() == "local":
        packed = _narrowing(part.value)
        if packed is not None and str(part.value.ty.dtype) == str(part.buffer.dtype):
            before, value = narrowed(part.value.value, elements)
            words = elements[0].context.registers(part.buffer, packed[1])
            place = words[T.truncdiv(elements[0].number(part.buffer, part.indices), 2)]
            return [*before, _convert(packed[0], place, value, elements)]
    before, narrow = narrowed(part.raw, elements)
    (part,) = parts_of(narrow)
    return [*before, *(element.statement(part) for element in elements)]


def _read_once(value: Any) -> tuple[list[Binding], Any]:
    """Variables for the elements of global memory that an expression reads several times.

    The compiler does not see that guarded reads are equal: a GELU of a biased sum took its bias
    from five of them, at the edge of a matrix, and needed 4,400 instructions where it now has 2,500
    (128 x 128 elements of a warpgroup).
    """
    seen: list[TensorLoad] = []
    repeated: list[tuple[TensorLoad, Var]] = []

    def visit(load: TensorLoad) -> None:
        if not ir.is_buffer(load.source) or not is_global(load.source):
            return
        if not any(tvm_ffi.structural_equal(load, other) for other in seen):
            seen.append(load)
        elif not any(tvm_ffi.structural_equal(load, other) for other, _ in repeated):
            repeated.append((load, Var(load.source.name, load.ty.dtype)))

    if isinstance(value, tvm_ffi.Object):
        tvm_ffi.structural_walk(value, (TensorLoad, visit))
    if not repeated:
        return [], value

    def variable(load: TensorLoad) -> Any:
        return next((v for old, v in repeated if tvm_ffi.structural_equal(load, old)), load)

    bindings = [Binding(tirx.Bind(v, load)) for load, v in repeated]
    return bindings, tvm_ffi.structural_map(value, (TensorLoad, variable), order="post")


def narrowed(node: Any, elements: list[Element]) -> tuple[list[Stmt], Any]:
    """Conversions of a statement or expression for two neighbours; and the rest of it.

    In the place of each conversion is a variable that both elements know.
    """
    before: list[Stmt] = []

    def cast(node: tirx.Cast) -> Any:
        packed = _narrowing(node)
        if packed is None:
            return node
        instruction, word = packed
        both = tirx.decl_buffer(
            (2,), str(node.ty.dtype), "narrow", scope="local", layout=TileLayout(S[(2,)])
        )
        view = ir.words_view(1, word, "narrow_word", data=both.data)
        before.extend([
            tirx.AllocBuffer(both),
            tirx.DeclBuffer(view, data=both.data),
            _convert(instruction, view[0], node.value, elements),
        ])  # fmt: skip
        result = Var("narrow", str(node.ty.dtype))
        for number, element in enumerate(elements):
            element.table[result] = both[number]
        return result

    return before, tvm_ffi.structural_map(node, (tirx.Cast, cast), order="post")


def _convert(instruction: str, place: Any, value: Any, elements: list[Element]) -> Stmt:
    """Return the instruction that converts a value of both elements."""
    low, high = (element.expression(value) for element in elements)
    return ir.evaluate(T.ptx[instruction](place, high, low))


def _guarded(load: TensorLoad, element: Element) -> Any:
    """A load from global memory that gives 0 over the edge."""
    inside = inside_buffer(load, element, load.source)
    if inside is True:
        return load
    return T.if_then_else(inside, load, tirx.const(0, str(load.ty.dtype)))


def inside_buffer(access: Any, element: Element, buffer: Buffer | None = None) -> Any:
    """Whether an access to global memory stays in its buffer; True if that can be proved."""
    analyzer, inside = element.analyzer, True
    shape = (access.buffer if buffer is None else buffer).shape
    for index, extent in zip(access.indices, shape, strict=True):
        placed = analyzer.simplify(ir.substitute(index, element.table))
        known = element.context.for_proof(placed)
        for holds, test in ((known >= 0, placed >= 0), (known < extent, placed < extent)):
            if not analyzer.can_prove(holds):
                inside = test if inside is True else T.And(inside, test)
    return inside
