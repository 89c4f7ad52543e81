"""The numbers of an operand that a lane has: loads into words, and pairs of 16-bit floats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm.sym.analyzer import Analyzer
from tvm.tirx import Buffer, Stmt, Var

from warploom.errors import Decline
from warploom.gemm.equations import loads
from warploom.gemm.gemv.lanes import Point
from warploom.intrin.mma_sync import load_ahead
from warploom.lower.nests.loads import GLOBAL, LoadedWords, Memory
from warploom.lower.nests.pairs import Pair
from warploom.tile import ir
from warploom.tile.scopes import is_global

#: Bytes from which on a load is one of weights, that nobody else reads.
_READ_ONCE = 8


def _load_weights(words: list[Any], address: Any, size: int) -> Any:
    return load_ahead(words, address, size, once=size >= _READ_ONCE)


def _load_rows(words: list[Any], address: Any, size: int) -> Any:
    return load_ahead(words, address, size, once=False)


#: Weights, many of which are on their way at a time, and their scales.
WEIGHTS = Memory(GLOBAL.holds, GLOBAL.has_chunks, _load_weights)
#: Rows of X: loads that the compiler does not move before the kernel has waited for X.
ROWS = Memory(GLOBAL.holds, GLOBAL.has_chunks, _load_rows)


class LaneOperand:
    """The elements of an operand that a lane multiplies in a step.

    Parameters
    ----------
    value : Expr
        The operand, in terms of the function's axes.
    points : sequence of Point
        Two for each word of an MMA.
    analyzer : Analyzer
    memory : Memory

    Raises
    ------
    Decline
        If pairs of elements are not computed in words.
    """

    def __init__(
        self, value: Any, points: Sequence[Point], analyzer: Analyzer, memory: Memory
    ) -> None:
        self._loaded = LoadedWords(value, list(points), analyzer, memory)
        self._words = []
        for number in range(0, len(points), 2):
            before: list[Stmt] = []
            low, high = points[number : number + 2]
            pair = Pair(low, high, number, self._loaded, analyzer, before)  # type: ignore[arg-type]
            word = pair.word(value)
            left = [load for load in loads(word) if is_global(load.source)]
            if before or left:
                names = ", ".join(sorted({load.source.name for load in left})) or "an operand"
                raise Decline(
                    f"{names} is not computed in pairs of elements: a GEMV multiplies integers of "
                    "4 or 8 bits that are converted, scaled and shifted."
                )
            self._words.append(word)

    @property
    def loads(self) -> int:
        """How many loads a step has."""
        return len(self._loaded.loads)

    def registers(self) -> dict[Buffer, Buffer]:
        """Registers of one step, by those that :meth:`load` and :meth:`word` know."""
        return {
            buffer: ir.words_view(int(buffer.shape[0]), "uint32", buffer.name)
            for buffer in self._loaded.buffers
        }

    def load(self, table: Mapping[Var, Any]) -> list[Stmt]:
        """The statements that load a step, with registers and variables of a table."""
        return [ir.substitute(statement, table) for statement in self._loaded.loads]

    def word(self, number: int, table: Mapping[Var, Any]) -> Any:
        """Two numbers of an MMA, ``number`` counts pairs of points."""
        return ir.substitute(self._words[number], table)
