"""Configs for the GEMM that a function is, of which a tile program can be written."""

from __future__ import annotations

from dataclasses import replace

from warploom.decide.config import Config
from warploom.decide.machine import Machine
from warploom.decide.ranking import Known, choose_by_rows, ranked
from warploom.errors import Decline, IllegalCombination
from warploom.gemm.gemv import gemv_kernel
from warploom.gemm.generate import tile_program
from warploom.gemm.problem import GemmFunction

#: Configs that are tried of a problem where no program can be written with the best one: tiles of
#: pixels are boxes that TMA loads, which the sizes of a problem do not tell.
_TRIED = 12


def decisions_of(
    gemm: GemmFunction, machine: Machine | None = None, known: Known | None = None
) -> list[tuple[int | None, Config]]:
    """Configs for several numbers of rows, as ``choose_by_rows`` returns them.

    Where the program cannot be written with one, the next best of another tile that it can be
    written with.

    Raises
    ------
    Decline, IllegalCombination
        If it can be written with none; the reason is that of the best config.
    """
    return [
        (limit, _possible(gemm, config, limit, machine))
        for limit, config in choose_by_rows(gemm.problem, machine, known)
    ]


def _possible(
    gemm: GemmFunction, config: Config, limit: int | None, machine: Machine | None
) -> Config:
    try:
        _write(gemm, config)
        return config
    except (Decline, IllegalCombination):
        problem = gemm.problem if limit is None else replace(gemm.problem, m=limit)
        for other in _other_tiles(config, [one for _, one in ranked(problem, machine=machine)]):
            try:
                _write(gemm, other)
                return other
            except (Decline, IllegalCombination):
                continue
        raise


def _write(gemm: GemmFunction, config: Config) -> None:
    """Write the program of a config, or the kernel of a GEMV."""
    (gemv_kernel if config.gemv else tile_program)(gemm, config)


def _other_tiles(config: Config, others: list[Config]) -> list[Config]:
    """Of each tile and cluster the best config, but those of a config that failed."""
    found = {_tile(config): config}
    for other in others:
        found.setdefault(_tile(other), other)
    return list(found.values())[1 : _TRIED + 1]


def _tile(config: Config) -> tuple[object, ...]:
    return (
        config.tile_m, config.swap_ab, config.cluster_m, config.cluster_n, config.slice_k,
        config.gemv and config.tile_n,
    )
