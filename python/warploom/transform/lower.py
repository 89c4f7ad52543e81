"""From a tile program to an orchestrated kernel: the passes, in order, and a record of each.

The first passes keep the sequential meaning of the program; from the roles on, barriers carry it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tvm
from tvm.tirx import PrimFunc

from warploom.target.arch import GPUS
from warploom.transform.allocate_shared import allocate_shared
from warploom.transform.canonicalize import canonicalize
from warploom.transform.infer_layouts import infer_layouts
from warploom.transform.lower_nests import lower_nests
from warploom.transform.persistent import persistent_grid
from warploom.transform.program import TileProgram, is_tile_program, read
from warploom.transform.resolve_scopes import resolve_scopes
from warploom.transform.specialize_warps import specialize_warps
from warploom.transform.squeeze_vectors import squeeze_vectors
from warploom.transform.stage_stores import stage_stores

Pass = Callable[[TileProgram], TileProgram]


def _persistent(program: TileProgram) -> TileProgram:
    hints = program.hints
    if hints.persistent is False:
        return program
    cluster = hints.cluster or (1, 1)
    size = cluster[0] * cluster[1]
    ctas = GPUS["h200"].sms // size * size
    return persistent_grid(program, ctas, hints.group or 8, cluster)


#: The passes by name; each is a function from program to program.
PASSES: tuple[tuple[str, Pass], ...] = (
    ("canonicalize", canonicalize),
    ("squeeze vectors", squeeze_vectors),
    ("persistent grid", _persistent),
    ("infer layouts", infer_layouts),
    ("resolve scopes", resolve_scopes),
    ("stage stores", stage_stores),
    ("specialize warps", specialize_warps),
    ("lower nests", lower_nests),
    ("allocate shared memory", allocate_shared),
)


@dataclass(frozen=True)
class Step:
    """What one pass made of a function.

    Attributes
    ----------
    name : str
        The pass.
    func : PrimFunc
        The function after it.
    """

    name: str
    func: PrimFunc

    def __str__(self) -> str:
        return f"# after {self.name}\n{self.func.script()}"


def lower(func: PrimFunc) -> PrimFunc:
    """The kernel of a tile program.

    Raises
    ------
    Decline
        If a pass cannot handle it; the message says why.
    """
    program = read(func)
    for _, run in PASSES:
        program = run(program)
    return program.to_func()


def lower_trace(mod: tvm.IRModule | PrimFunc) -> list[Step]:
    """Every function of a module after every pass that it went through."""
    module = tvm.IRModule({"main": mod}) if isinstance(mod, PrimFunc) else mod
    steps = []
    for function in module.functions.values():
        if not isinstance(function, PrimFunc) or not is_tile_program(function):
            continue
        program = read(function)
        for name, run in PASSES:
            program = run(program)
            steps.append(Step(name, program.to_func()))
    return steps
