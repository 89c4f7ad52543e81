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
from warploom.transform.decline import Decline
from warploom.transform.infer_layouts import infer_layouts
from warploom.transform.lower_nests import lower_nests
from warploom.transform.multistage import multistage
from warploom.transform.persistent import DEFAULT_GROUP, persistent_grid
from warploom.transform.program import TileProgram, is_tile_program, read
from warploom.transform.resolve_scopes import resolve_scopes
from warploom.transform.specialize_warps import specialize_warps
from warploom.transform.squeeze_vectors import squeeze_vectors
from warploom.transform.stage_stores import stage_stores
from warploom.transform.strip_annotations import strip_annotations
from warploom.transform.verify import verify

Pass = Callable[[TileProgram], TileProgram]


def _persistent(program: TileProgram) -> TileProgram:
    hints = program.hints
    if hints.persistent is False:
        lost = ["cluster: not followed, for the grid is not persistent"] * bool(hints.cluster)
        return program.decided("grid: a CTA for each tile, as the hint says", *lost)
    cluster = hints.cluster or (1, 1)
    size = cluster[0] * cluster[1]
    ctas = GPUS["h200"].sms // size * size
    group = {"rows": 1, "columns": None}.get(hints.raster, hints.group or DEFAULT_GROUP)
    return persistent_grid(program, ctas, group, cluster)


_FIRST: tuple[tuple[str, Pass], ...] = (
    ("canonicalize", canonicalize),
    ("squeeze vectors", squeeze_vectors),
    ("persistent grid", _persistent),
    ("infer layouts", infer_layouts),
    ("resolve scopes", resolve_scopes),
    ("stage stores", stage_stores),
)
_LAST: tuple[tuple[str, Pass], ...] = (
    ("lower nests", lower_nests),
    ("allocate shared memory", allocate_shared),
    ("strip annotations", strip_annotations),
    ("verify", verify),
)
WARP_SPECIALISED, MULTISTAGE = "warp specialisation", "multistage"
#: The lowerings, in order of preference: their passes by name.
LOWERINGS: dict[str, tuple[tuple[str, Pass], ...]] = {
    WARP_SPECIALISED: (*_FIRST, ("specialize warps", specialize_warps), *_LAST),
    MULTISTAGE: (*_FIRST, ("multistage", multistage), *_LAST),
}


@dataclass(frozen=True)
class Step:
    """What one pass made of a function.

    Attributes
    ----------
    name : str
        The pass.
    func : PrimFunc
        The function after it.
    decisions : tuple of str
        What the pass has chosen and why; or why it declined.
    """

    name: str
    func: PrimFunc
    decisions: tuple[str, ...] = ()

    def __str__(self) -> str:
        chosen = "".join(f"\n#   {one}" for one in self.decisions)
        return f"# after {self.name}{chosen}\n{self.func.script()}"


def lower(func: PrimFunc) -> PrimFunc:
    """The kernel of a tile program, by the first lowering that takes it.

    Raises
    ------
    Decline
        If none does; the message says why, one line for each lowering.
    """
    return _run(func)[-1].func


def lower_trace(mod: tvm.IRModule | PrimFunc) -> list[Step]:
    """Every tile program of a module after every pass that it goes through.

    ``print(step)`` shows the decisions of a pass and the program that it made. A lowering that was
    tried in vain is there with the pass that declined.
    """
    module = tvm.IRModule({"main": mod}) if isinstance(mod, PrimFunc) else mod
    return [
        step
        for function in module.functions.values()
        if isinstance(function, PrimFunc) and is_tile_program(function)
        for step in _run(function, every=True)
    ]


def _run(func: PrimFunc, every: bool = False) -> list[Step]:
    """The last step of the lowering that takes a function; with ``every``, all before it too."""
    start = read(func)
    reasons: dict[str, str] = {}
    steps: list[Step] = []
    for lowering in _candidates(start):
        program, taken = start, []
        try:
            for name, run in LOWERINGS[lowering]:
                before, program = program, run(program)
                if every:
                    new = program.decisions[len(before.decisions) :]
                    taken.append(Step(name, program.to_func(), new))
        except Decline as reason:
            reasons[lowering] = str(reason)
            if every:
                declined = f"{lowering} declines: {reason}"
                steps.append(Step(name, program.to_func(), (declined,)))
            continue
        return [*steps, *taken] if every else [Step(name, program.to_func())]
    if len(set(reasons.values())) == 1:
        raise Decline(next(iter(reasons.values())))
    raise Decline("\n".join(f"{name}: {reason}" for name, reason in reasons.items()))


def _candidates(program: TileProgram) -> list[str]:
    wanted = program.hints.specialise
    if wanted is None:
        return list(LOWERINGS)
    return [WARP_SPECIALISED if wanted else MULTISTAGE]
