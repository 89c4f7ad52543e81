"""How much there is to do of a GEMM: its sizes, its tiles, the bytes of its operands."""

from __future__ import annotations

import math

from warploom.decide.config import Config
from warploom.decide.price.work import UNKNOWN_EXTENT
from warploom.decide.problem import GemmProblem

__all__ = ["UNKNOWN_EXTENT", "operand_bytes", "sizes", "tiles_of"]


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
