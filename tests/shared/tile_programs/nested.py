"""Random nests of loops and branches around MMAs, loads and work of threads.

They are for what depends on control flow: which MMAs are in flight where, and which role holds a
tile. What they compute says :func:`warploom.language.interpret`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from tests.shared.tile_programs.case import poisoned
from warploom import language as wl

ROWS, COLUMNS = 64, 16
#: Steps of K that are loaded by turns, each of as many columns.
_STEPS = 4
_ACCUMULATORS = ("acc0", "acc1")


@dataclass
class _Draft:
    rng: np.random.Generator
    depth: int
    tiles: list[str] = field(default_factory=list)
    loops: list[str] = field(default_factory=list)

    def pick(self, *choices):
        return choices[self.rng.integers(len(choices))]


def nested_program(rng: np.random.Generator, depth: int = 3) -> PrimFunc:
    """A random program of nests of at most so many loops; ``steps``, an int, is a trip count."""
    draft = _Draft(rng, depth)
    return _program(draft, list(_block(draft, 0, ())))


def nest_of_depth(depth: int) -> PrimFunc:
    """Loops around each other, each with a load, an MMA and work of threads on its level."""
    draft = _Draft(np.random.default_rng(0), depth)

    def level(number: int) -> Iterator[str]:
        yield f"for x{number} in T.serial(2):"
        for line in (*_mma(draft, "acc0"), *_work("acc1")):
            yield "    " + line
        if number + 1 < depth:
            for line in level(number + 1):
                yield "    " + line

    return _program(draft, list(level(0)))


def without_mmas() -> PrimFunc:
    """Threads use accumulators, the tensor core does not."""
    return _program(_Draft(np.random.default_rng(0), 0), _work("acc0"))


def arguments(rng: np.random.Generator, steps: int) -> list[object]:
    """Small whole numbers, with which all sums are exact; outputs are poisoned."""
    operands = [
        rng.integers(-1, 2, (rows, _STEPS * COLUMNS)).astype("float16") for rows in (ROWS, COLUMNS)
    ]
    outputs = [poisoned((ROWS, COLUMNS), "float32") for _ in _ACCUMULATORS]
    return [*operands, *outputs, steps]


def _program(draft: _Draft, body: list[str]) -> PrimFunc:
    lines = [
        "T.device_entry()",
        "wl.hints(persistent=False)",
        "T.cta_id([1])",
        *draft.tiles,
        *(
            f"{name} = T.alloc_buffer(({ROWS}, {COLUMNS}), 'float32', scope='accumulator')"
            for name in _ACCUMULATORS
        ),
        *(line for name in _ACCUMULATORS for line in _nest(f"{name}[i, j] = T.float32(0)")),
        *body,
        *(f"Tx.cta.copy(C{number}, {name})" for number, name in enumerate(_ACCUMULATORS)),
    ]
    outputs = ", ".join(
        f"C{number}: T.Buffer(({ROWS}, {COLUMNS}), 'float32')"
        for number in range(len(_ACCUMULATORS))
    )
    operands = ", ".join(
        f"{name}: T.Buffer(({rows}, {_STEPS * COLUMNS}), 'float16')"
        for name, rows in (("A", ROWS), ("B", COLUMNS))
    )
    text = "\n".join("    " + line for line in lines)
    source = f"@T.prim_func\ndef program({operands}, {outputs}, steps: T.int32):\n{text}\n"
    return tvm.script.from_source(source, {"T": T, "Tx": Tx, "wl": wl, "tvm": tvm})


def _nest(store: str) -> list[str]:
    return [f"for i, j in T.grid({ROWS}, {COLUMNS}):", f"    {store}"]


def _work(name: str) -> list[str]:
    return _nest(f"{name}[i, j] = {name}[i, j] - T.float32(1)")


def _load(draft: _Draft) -> tuple[str, list[str]]:
    """A pair of tiles of its own, and what loads them."""
    number = len(draft.tiles) // 2
    step = f"({' + '.join(draft.loops)}) % {_STEPS}" if draft.loops else "0"
    lines = []
    for name, rows in (("A", ROWS), ("B", COLUMNS)):
        tile = f"{name}{number}"
        draft.tiles.append(
            f"{tile} = T.alloc_buffer(({rows}, {COLUMNS}), 'float16', scope='shared')"
        )
        columns = f"({step}) * {COLUMNS} : ({step}) * {COLUMNS} + {COLUMNS}"
        lines.append(f"Tx.cta.copy_async({tile}, {name}[0:{rows}, {columns}])")
    return str(number), lines


def _mma(draft: _Draft, accumulator: str) -> list[str]:
    number, lines = _load(draft)
    return [*lines, f"Tx.cta.gemm_async({accumulator}, A{number}, B{number}, accum=True)"]


def _block(draft: _Draft, depth: int, loaded: tuple[str, ...]) -> Iterator[str]:
    """The lines of a block; ``loaded`` are tiles that blocks around it have loaded."""
    pick = draft.pick
    # Loops without one are nests to the language.
    if depth or pick(True, True, False):
        number, lines = _load(draft)
        loaded = (*loaded, number)
        yield from lines
        yield f"Tx.cta.gemm_async({pick(*_ACCUMULATORS)}, A{number}, B{number}, accum=True)"
    for _ in range(pick(1, 2, 3)):
        kind = pick("loop", "loop", "branch", "mma", "work")
        if kind == "loop" and depth < draft.depth:
            name = f"x{len(draft.loops)}"
            trips = pick("2", "3", "steps")
            yield (
                f"for {name} in wl.pipelined({trips}, {pick(1, 2, 3)}):"
                if pick(True, False) else f"for {name} in T.serial({trips}):"
            )  # fmt: skip
            draft.loops.append(name)
            yield from ("    " + line for line in _block(draft, depth + 1, loaded))
            draft.loops.pop()
        elif kind == "branch" and draft.loops:
            yield f"if {draft.loops[-1]} % 2 == 1:"
            inner = _work(pick(*_ACCUMULATORS))
            if pick(True, False):
                inner += _mma(draft, pick(*_ACCUMULATORS))
            yield from ("    " + line for line in inner)
        elif kind == "mma" and loaded:
            number = pick(*loaded)
            yield f"Tx.cta.gemm_async({pick(*_ACCUMULATORS)}, A{number}, B{number}, accum=True)"
        else:
            yield from _work(pick(*_ACCUMULATORS))
