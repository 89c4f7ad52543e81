"""How a GPU divides the work of one launch: units, waves, CTAs of an SM, tiles that run at a time.

These are counts that follow from the problem and the config; no constant of a machine is in them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from warploom.decide.config import Config
from warploom.decide.problem import GemmProblem
from warploom.target.arch import Gpu

#: The extent that stands for one which is dynamic.
UNKNOWN_EXTENT = 4096


@dataclass(frozen=True)
class Work:
    """The counts of one launch.

    Attributes
    ----------
    sizes : (int, int, int, int)
        M, N, K and the batch.
    tiles : (int, int)
        Tiles along M and N that have elements of the result.
    cluster : int
        CTAs of a cluster.
    slots : int
        CTAs that run at a time.
    steps : int
        Steps of a tile's sum, or of a part of it.
    units : int
        Tiles, or parts of them; those included that fill the last cluster of a row or column.
    waves : int
        Units that a CTA computes one after the other, at most.
    busy : int
        CTAs of an SM that have work.
    running : int
        CTAs that have work at a time.
    block : (float, float)
        Tiles along M and N that run at a time.
    """

    sizes: tuple[int, int, int, int]
    tiles: tuple[int, int]
    cluster: int
    slots: int
    steps: int
    units: int
    waves: int
    busy: int
    running: int
    block: tuple[float, float]


def work_of(problem: GemmProblem, config: Config, gpu: Gpu) -> Work:
    """The counts of a launch; sizes that are dynamic count as :data:`UNKNOWN_EXTENT`."""
    m, n, k, batch = (extent or UNKNOWN_EXTENT for extent in sizes(problem))
    tiles_m, tiles_n = -(-m // config.tile_m), -(-n // config.tile_n)
    cluster, slots = config.cluster_size, gpu.resident(config.cluster_size, config.ctas_per_sm)
    if config.sms:
        slots = min(slots, config.sms * config.ctas_per_sm // cluster * cluster)
    steps = problem.taps * math.ceil(k / problem.taps / config.tile_k)
    units = tiles_of(problem, config) * config.split_k
    running = min(units, slots)
    at_once = running / config.split_k
    rows = min(tiles_m, config.group * config.cluster_m)
    columns = max(1.0, min(tiles_n, at_once / rows))
    rows = max(1.0, min(tiles_m, at_once / columns))
    return Work(
        (m, n, k, batch), (tiles_m, tiles_n), cluster, slots, math.ceil(steps / config.split_k),
        units, math.ceil(units / slots), min(config.ctas_per_sm, math.ceil(units / gpu.sms)),
        running, (rows, columns),
    )  # fmt: skip


def sizes(problem: GemmProblem) -> tuple[int | None, ...]:
    """M, N, K and the batch of a problem."""
    return problem.m, problem.n, problem.k, problem.batch


def tiles_of(problem: GemmProblem, config: Config) -> int:
    """How many tiles there are, those included that fill the last cluster of a row or column."""
    m, n, _, batch = (extent or UNKNOWN_EXTENT for extent in sizes(problem))
    tiles_m = _rounded(math.ceil(m / config.tile_m), config.cluster_m)
    tiles_n = _rounded(math.ceil(n / config.tile_n), config.cluster_n)
    return tiles_m * tiles_n * batch


def operand_bytes(problem: GemmProblem) -> tuple[float, float]:
    """Bytes of A and of B in memory; taps of a convolution read the same image."""
    m, n, k, batch = (extent or UNKNOWN_EXTENT for extent in sizes(problem))
    a = m * k / problem.taps * problem.a_bits / 8
    return a * batch, n * problem.products * k * problem.b_bits / 8 * batch


def _rounded(count: int, step: int) -> int:
    return -(-count // step) * step
