"""Random sequences of statements on tiles of any rank, and what they compute in numpy.

A program has a few CTAs, tiles in registers and in shared memory, an MMA or none, and any statement
of the language between them. Each statement appends its source to the program and a function to
the model, which executes CTA after CTA. All values are whole numbers of few bits, so that results
are exact: an element is rounded to its dtype after each statement, as in the kernel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.tile_programs.case import Case
from tests.shared.tile_programs.statements.control import (
    assertion,
    branch,
    leave,
    loop,
    print_line,
    repeated,
)
from tests.shared.tile_programs.statements.draft import Draft, Ended, rounded
from tests.shared.tile_programs.statements.elements import binary, cast, elsewhere, unary
from tests.shared.tile_programs.statements.memory import (
    another_load,
    gather,
    histogram,
    load,
    matmul,
    scatter,
    single,
    store,
    update,
)
from tests.shared.tile_programs.statements.order import position, reduction, scan, sort
from warploom import language as wl


def statement_table() -> tuple[Callable[[Draft], None], ...]:
    """The statements that programs are drawn from, frequent ones several times."""
    return (
        another_load, gather, unary, unary, binary, binary, cast, elsewhere,
        reduction, reduction, position, scan, sort, branch, loop, repeated,
        assertion, leave, print_line, store, scatter, single, update, histogram,
    )  # fmt: skip


def random_statements(
    rng: np.random.Generator, with_mma: bool = False, count: int = 8
) -> tuple[Case, list[str]]:
    """A random program of about so many statements, and the names of the statements.

    The same state of the generator gives the same program. ``with_mma``: the first tile is a sum of
    MMAs.
    """
    draft = Draft(rng, int(rng.integers(1, 4)), with_mma)
    first = matmul if with_mma else load
    first(draft)
    drawn = [first.__name__]
    table = statement_table()
    while len(drawn) < count:
        statement = table[int(rng.integers(len(table)))]
        before = len(draft.lines)
        statement(draft)
        if len(draft.lines) > before:
            drawn.append(statement.__name__)
    for one in list(draft.tiles.values())[-3:]:
        store(draft, one)
    func = tvm.script.from_source(_source(draft), {"T": T, "Tx": Tx, "wl": wl, "tvm": tvm})
    names = list(draft.parameters)

    def expected(arguments: list[Any]) -> dict[int, np.ndarray]:
        memory = {
            name: rounded(value, "int32" if value.dtype.kind in "iu" else "float32")
            if isinstance(value, np.ndarray) else value
            for name, value in zip(names, arguments, strict=True)
        }  # fmt: skip
        for b in range(draft.ctas):
            tiles: dict[str, np.ndarray] = {}
            with contextlib.suppress(Ended):
                for step in draft.model:
                    step(tiles, memory, b)
        return {names.index(name): memory[name] for name in draft.outputs}

    def arguments(rng: np.random.Generator) -> list[Any]:
        return [draft.values[name](rng) for name in names]

    return Case(func, arguments, expected, 0.0), drawn


def _source(draft: Draft) -> str:
    parameters = ", ".join(f"{name}: {kind}" for name, kind in draft.parameters.items())
    lines = ["T.device_entry()", f"b = T.cta_id([{draft.ctas}])", *draft.allocations, *draft.lines]
    body = "\n".join("    " + line for line in lines)
    return f"@T.prim_func\ndef program({parameters}):\n{body}\n"
