"""What families share: legal configs in the order of their prices, and stages that fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from warploom.decide.config import Config
from warploom.decide.problem import GemmProblem
from warploom.target.arch import Arch
from warploom.target.swizzle import Swizzle
from warploom.tile.choices import BY_NAME

#: A kernel whose operands are not loaded ahead waits for every tile; more than so many stages hide
#: nothing more.
LEAST_STAGES, MOST_STAGES = 2, 12
#: Times that the model cannot tell apart: its median error is 6 % (results of 2026-11-24).
_ALIKE = 1.02


def ranked(
    configs: Iterable[Config], time_of: Callable[[Config], float]
) -> list[Config]:
    """Configs without duplicates, the fastest by the model first.

    Those that take as long as the fastest of them, as far as the model can tell, stay in the order
    in which they are given.

    Parameters
    ----------
    configs : iterable of Config
        Legal ones.
    time_of : function
        The predicted microseconds of a kernel with a config.
    """
    times = {config: time_of(config) for config in configs}
    places = {config: place for place, config in enumerate(times)}
    found: list[Config] = []
    alike: list[Config] = []
    for config in sorted(times, key=times.__getitem__):
        if alike and times[config] > _ALIKE * times[alike[0]]:
            found += sorted(alike, key=places.__getitem__)
            alike = []
        alike.append(config)
    return [*found, *sorted(alike, key=places.__getitem__)]


def why_no_room(
    config: Config, problem: GemmProblem, tiles: Iterable[int], arch: Arch, aside: int = 0
) -> str | None:
    """Why a CTA has no room for what a kernel keeps in shared memory; None if it has.

    Parameters
    ----------
    config : Config
    problem : GemmProblem
        Of which results and sums in shared memory are those of the kernel.
    tiles : iterable of int
        Bytes of each tile of a stage; all stages of a tile are aligned together.
    arch : Arch
    aside : int
        Bytes of other tiles in shared memory.
    """
    needed = _shared_bytes(config, problem, tiles) + aside
    limit = arch.shared_bytes_of_each(config.ctas_per_sm)
    if needed <= limit:
        return None
    return (
        f"{config.stages} stages of a {config.tile_m} x {config.tile_n} x {config.tile_k} tile "
        f"need {needed} bytes of shared memory, a CTA has {limit}; use fewer stages or smaller "
        "tiles."
    )


def why_not_usual(config: Config, names: Iterable[str], because: str) -> str | None:
    """Why choices that a program does not follow must be the default ones; None if they are.

    Parameters
    ----------
    config : Config
    names : iterable of str
        Of choices.
    because : str
        The reason, as a clause.
    """
    for name in names:
        value, usual = getattr(config, name), BY_NAME[name].default
        if value != usual:
            return f"{name} = {value!r}: {because}; it must be {usual!r}."
    return None


def with_stages(
    config: Config, problem: GemmProblem, tiles: Iterable[int], arch: Arch, aside: int = 0
) -> Config | None:
    """A config with as many stages as fit and help; None if too few fit.

    Parameters are those of :func:`why_no_room`; warpgroups that share steps have as many stages
    each.
    """
    tiles = tuple(tiles)
    limit, shared = arch.shared_bytes_of_each(config.ctas_per_sm) - aside, config.slice_k
    least = -(-LEAST_STAGES // shared) * shared
    # Ends of tiles may lie in the middle of an atom, so the last stages are tried.
    fixed = _shared_bytes(config.replace(stages=shared), problem, ())
    stages = min(MOST_STAGES, (limit - fixed) // sum(tiles)) // shared * shared
    while stages >= least:
        found = config.replace(stages=stages)
        if _shared_bytes(found, problem, tiles) <= limit:
            return found
        stages -= shared
    return None


def _shared_bytes(config: Config, problem: GemmProblem, tiles: Iterable[int]) -> int:
    align = Swizzle.B128.atom_bytes
    ring = sum(-(-config.stages * tile // align) * align for tile in tiles)
    others = config.shared_bytes(problem) - config.stages * config.stage_bytes(problem)
    return ring + others
