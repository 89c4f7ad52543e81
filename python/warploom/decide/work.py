"""How much there is to do of a GEMM: its sizes, its tiles, the bytes of its operands."""

from __future__ import annotations

from warploom.decide.config import Config
from warploom.decide.pixels import pixels_of_images, tiles_of_pixels
from warploom.decide.price.work import UNKNOWN_EXTENT
from warploom.decide.problem import GemmProblem

__all__ = ["UNKNOWN_EXTENT", "operand_bytes", "sizes", "tiles_along", "tiles_of"]


def sizes(problem: GemmProblem) -> tuple[int | None, ...]:
    """M, N, K and the batch of a problem."""
    return problem.m, problem.n, problem.k, problem.batch


def tiles_along(problem: GemmProblem, config: Config) -> tuple[int, int]:
    """Tiles along M and along N; boxes of pixels may be more than rows divided by rows of a tile.

    Parameters
    ----------
    problem : GemmProblem
    config : Config
        A legal one.
    """
    m, n, _, _ = (extent or UNKNOWN_EXTENT for extent in sizes(problem))
    across = -(-n // config.tile_n)
    box = config.box(problem) if problem.pixels else None
    if box is None:
        return -(-m // config.tile_m), across
    return tiles_of_pixels(problem.pixels, box, m), across


def tiles_of(problem: GemmProblem, config: Config) -> int:
    """How many tiles there are, those included that fill the last cluster of a row or column."""
    down, across = tiles_along(problem, config)
    tiles = _rounded(down, config.cluster_m) * _rounded(across, config.cluster_n)
    return tiles * (problem.batch or UNKNOWN_EXTENT)


def operand_bytes(problem: GemmProblem) -> tuple[float, float]:
    """Bytes of A and of B in memory; taps of a convolution read the same image."""
    m, n, k, batch = (extent or UNKNOWN_EXTENT for extent in sizes(problem))
    a = pixels_of_images(problem.pixels, m) * k / problem.taps * problem.a_bits / 8
    return a * batch, n * problem.products * k * problem.b_bits / 8 * batch


def _rounded(count: int, step: int) -> int:
    return -(-count // step) * step
