"""From a tile program to an orchestrated kernel: the passes, in order, and a record of each.

The first passes keep the sequential meaning of the program; from the roles on, barriers carry it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import tvm
from tvm.tirx import PrimFunc

from warploom.errors import Decline, WarploomError
from warploom.language.printing import is_on
from warploom.language.rules import check_program
from warploom.messages.blame import with_place
from warploom.target import SM90A, SM100A
from warploom.target.arch import GPUS
from warploom.tile.program import TileProgram, is_by_hand, is_tile_program, read
from warploom.tile.spans import drop_spans
from warploom.transform.allocate_shared import allocate_shared
from warploom.transform.budget import ctas_per_sm
from warploom.transform.canonicalize import canonicalize
from warploom.transform.check_hints import check_hints
from warploom.transform.exchange_sums import exchange_sums
from warploom.transform.infer_layouts import infer_layouts
from warploom.transform.lower_nests import lower_nests
from warploom.transform.multistage import multistage
from warploom.transform.order_products import order_products
from warploom.transform.own_barriers import check_own_barriers, own_barriers
from warploom.transform.pair_ctas import pair_ctas
from warploom.transform.persistent import DEFAULT_GROUP, persistent_grid
from warploom.transform.ping_pong import ping_pong
from warploom.transform.prints import without_prints
from warploom.transform.resolve_by_hand import resolve_by_hand
from warploom.transform.resolve_scopes import resolve_scopes
from warploom.transform.resolve_tensor_memory import resolve_tensor_memory
from warploom.transform.share_operands import share_operands
from warploom.transform.specialize_warps import specialize_warps
from warploom.transform.specialize_warps_sm100 import specialize_warps_sm100
from warploom.transform.split_tiles import split_tiles
from warploom.transform.squeeze_vectors import squeeze_vectors
from warploom.transform.stage_stores import stage_stores
from warploom.transform.strip_annotations import strip_annotations
from warploom.transform.take_turns import take_turns
from warploom.transform.verify import verify
from warploom.transform.warn_of_lowering import warn_of_lowering
from warploom.transform.warpgroups import not_followed

Pass = Callable[[TileProgram], TileProgram]


#: The GPU that a persistent grid is sized for.
_GPU = {SM90A.name: "h200", SM100A.name: "b200"}


def _persistent(program: TileProgram) -> TileProgram:
    hints = program.hints
    shared = bool(hints.stream_k or (hints.split_k or 1) > 1)
    own = own_barriers(program)
    if own and hints.persistent:
        raise Decline(
            f"A persistent CTA would initialise the mbarrier {own[0].name} anew for each tile, "
            "while phases go on; leave the hint out."
        )
    if own or hints.persistent is False:
        why = "as the program initialises mbarriers" if own else "as the hint says"
        if shared:
            raise Decline(
                "CTAs that share tiles wait for each other, so all must be on the GPU at a time, "
                f"and the grid has a CTA for each tile, {why}; leave out split_k and stream_k."
            )
        program = program.decided(f"grid: a CTA for each tile, {why}")
        for name in ("cluster", "scheduler", "raster", "group", "ctas"):
            if getattr(hints, name) not in (None, (1, 1)):
                program = program.not_followed(
                    name, f"the grid has a CTA for each tile, {why}; leave out one of them"
                )
        return program
    cluster = hints.cluster or (1, 1)
    size = cluster[0] * cluster[1]
    group = {"rows": 1, "columns": None}.get(hints.raster, hints.group or DEFAULT_GROUP)
    if hints.scheduler == "clc":
        if program.arch != SM100A.name:
            raise Decline(
                f"scheduler='clc': {program.arch} has no cluster launch control; leave the hint "
                f"out, or compile for {SM100A.name}."
            )
        if shared:
            raise Decline(
                "scheduler='clc' hands out whole tiles; leave it out, or split_k and stream_k."
            )
        if hints.ctas is not None:
            program = program.not_followed(
                "ctas", "with scheduler='clc' the grid has a CTA for each tile; leave out either"
            )
        return persistent_grid(program, None, group, cluster)
    size *= hints.split_k if hints.exchange == "cluster" else 1
    resident = GPUS[_GPU[program.arch]].resident(size, ctas_per_sm(program))
    ctas = hints.ctas or resident
    if not shared:
        return persistent_grid(program, ctas, group, cluster)
    if ctas > resident:
        raise Decline(
            f"{ctas} CTAs that share tiles wait for each other, and the GPU holds {resident} at a "
            "time; ask for fewer, or leave out split_k and stream_k."
        )
    return split_tiles(program, ctas, group, cluster)


_FIRST: tuple[tuple[str, Pass], ...] = (
    ("check hints", check_hints),
    ("canonicalize", canonicalize),
    ("check own barriers", check_own_barriers),
    ("squeeze vectors", squeeze_vectors),
    ("persistent grid", _persistent),
    ("infer layouts", infer_layouts),
    ("resolve scopes", resolve_scopes),
    ("exchange sums", exchange_sums),
    ("stage stores", stage_stores),
)
#: What takes a thread that loads for several warpgroups of Hopper.
_WITHOUT_ROLES: tuple[tuple[str, Pass], ...] = (
    ("order products", not_followed("order_products")),
    ("take turns", not_followed("turns")),
    ("ping-pong", not_followed("ping_pong")),
)
_LAST: tuple[tuple[str, Pass], ...] = (
    ("lower nests", lower_nests),
    ("allocate shared memory", allocate_shared),
    ("strip annotations", strip_annotations),
    ("verify", verify),
)
WARP_SPECIALISED, MULTISTAGE = "warp specialisation", "multistage"
TENSOR_MEMORY, BY_HAND = "tensor memory", "orchestrated by hand"
#: The lowerings: their passes by name.
LOWERINGS: dict[str, tuple[tuple[str, Pass], ...]] = {
    WARP_SPECIALISED: (
        *_FIRST, ("order products", order_products), ("take turns", take_turns),
        ("ping-pong", ping_pong),
        ("specialize warps", specialize_warps), *_LAST,
    ),
    MULTISTAGE: (*_FIRST, *_WITHOUT_ROLES, ("multistage", multistage), *_LAST),
    TENSOR_MEMORY: (
        *_FIRST[:3],
        ("share operands", share_operands),
        *_FIRST[3:5],
        ("pair CTAs", pair_ctas),
        *_FIRST[5:],
        *_WITHOUT_ROLES,
        ("resolve tensor memory", resolve_tensor_memory),
        ("specialize warps", specialize_warps_sm100),
        *_LAST,
    ),
    BY_HAND: (("check hints", check_hints), ("resolve scopes", resolve_by_hand), *_LAST[1:]),
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


def lower(
    func: PrimFunc, arch: str | None = None, with_roles: Pass | None = None
) -> PrimFunc:
    """The kernel of a tile program, by the first lowering that takes it.

    Parameters
    ----------
    arch : str, optional
        ``"sm_90a"`` or ``"sm_100a"``; without it that of the function's target, or of the target
        in whose scope this is called, or sm_90a.
    with_roles : callable, optional
        A further pass, for when roles have parted and tiles have no place in registers yet.

    Raises
    ------
    TileProgramError
        If the program breaks a rule of the language; :func:`warploom.language.interpret` refuses
        it with the same sentence.
    Decline
        If no lowering takes it; the message says why, one line for each lowering.
    """
    return _run(func, arch, with_roles=with_roles)[-1].func


def _arch_of(func: PrimFunc) -> str:
    target = (func.attrs or {}).get("target", None) or tvm.target.Target.current()
    return SM90A.name if target is None else str(target.attrs.get("arch", SM90A.name))


def lower_trace(mod: tvm.IRModule | PrimFunc, arch: str | None = None) -> list[Step]:
    """Every tile program of a module after every pass that it goes through.

    ``print(step)`` shows the decisions of a pass and the program that it made. A lowering that was
    tried in vain is there with the pass that declined. ``arch`` is that of :func:`lower`.
    """
    module = tvm.IRModule({"main": mod}) if isinstance(mod, PrimFunc) else mod
    return [
        step
        for function in module.functions.values()
        if isinstance(function, PrimFunc) and is_tile_program(function)
        for step in _run(function, arch, every=True)
    ]


def _run(
    func: PrimFunc, arch: str | None, every: bool = False, with_roles: Pass | None = None
) -> list[Step]:
    """The last step of the lowering that takes a function; with ``every``, all before it too."""
    try:
        if not is_by_hand(func):
            check_program(func)
        func = func if is_on() else without_prints(func)
        return _first_that_takes(func, arch or _arch_of(func), every, with_roles)
    except WarploomError as error:
        raise type(error)(with_place(str(error), func)) from error


def _first_that_takes(
    func: PrimFunc, arch: str, every: bool, with_roles: Pass | None
) -> list[Step]:
    start = read(func, arch)
    if with_roles is None or not start.by_hand:
        start = read(drop_spans(func), arch)
    reasons: dict[str, str] = {}
    steps: list[Step] = []
    for lowering in _candidates(start):
        program, taken = start, []
        try:
            for name, run in _passes(lowering, with_roles):
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
        if every:
            return [*steps, *taken]
        warn_of_lowering(program, lowering, reasons)
        return [Step(name, program.to_func())]
    raise Decline(_together(reasons))


def _together(reasons: dict[str, str]) -> str:
    """Why each lowering declined; once, if the reasons differ in nothing but numbers."""
    first = next(iter(reasons.values()))
    if len({re.sub(r"\d+", "0", reason) for reason in reasons.values()}) == 1:
        return first
    return "\n".join(f"{name}: {reason}" for name, reason in reasons.items())


def _passes(lowering: str, with_roles: Pass | None) -> tuple[tuple[str, Pass], ...]:
    """The passes of a lowering, with a further one before those that all of them end with."""
    passes = LOWERINGS[lowering]
    if with_roles is None:
        return passes
    count = len(_LAST) - (lowering == BY_HAND)
    return (*passes[:-count], ("with roles", with_roles), *passes[-count:])


def _candidates(program: TileProgram) -> list[str]:
    """The lowerings to try for an architecture, the preferred one first."""
    if program.by_hand:
        return [BY_HAND]
    if program.arch == SM100A.name:
        return [TENSOR_MEMORY]
    if program.arch != SM90A.name:
        raise Decline(
            f"There is no lowering of tile programs for {program.arch}; compile for {SM90A.name} "
            f"or {SM100A.name}."
        )
    wanted = program.hints.specialise
    if wanted is None:
        return [WARP_SPECIALISED, MULTISTAGE]
    return [WARP_SPECIALISED if wanted else MULTISTAGE]
