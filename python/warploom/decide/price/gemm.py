"""The work of a GEMM with a config, by formulas: microseconds a candidate."""

from __future__ import annotations

from typing import NamedTuple

from warploom.decide.config import Config
from warploom.decide.pixels import pixels_of_images, pixels_seen
from warploom.decide.price.chunks import alignment, store_lines
from warploom.decide.price.finish import finish
from warploom.decide.price.work import (
    LINE_BYTES,
    UNKNOWN_EXTENT,
    Load,
    Mma,
    Nest,
    TileOut,
    Work,
    cut_rows,
    lines_of_packed,
    lines_of_taps,
    lines_touched,
)
from warploom.decide.problem import GemmProblem, kind_of
from warploom.decide.work import tiles_along
from warploom.target.dtypes import bits_of
from warploom.tile.choices import POLICIES

#: What a plain epilogue computes.
_NOTHING = Nest()
#: Bytes of an element of a sum.
_SUM_BYTES = 4


def work_of(problem: GemmProblem, config: Config) -> Work:
    """What a kernel for a GEMM does; sizes that are dynamic count as ``UNKNOWN_EXTENT``.

    Parameters
    ----------
    problem : GemmProblem
    config : Config
        A legal one: see :meth:`Config.why_not`.
    """
    m, n = problem.m or UNKNOWN_EXTENT, problem.n or UNKNOWN_EXTENT
    k, batch = problem.k or UNKNOWN_EXTENT, problem.batch or UNKNOWN_EXTENT
    tile_m, tile_n, depth = config.tile_m, config.tile_n, config.tile_k
    products, taps = problem.products, problem.taps
    of_a, of_b = config.multicast(problem)
    a_bytes, b_bytes = problem.a_bits / 8, problem.b_bits / 8
    tiles = tiles_along(problem, config)
    policy_a, policy_b = (policy or "" for policy in POLICIES[config.l2_policy])
    memory = (_pixels if problem.pixels else _matrices)(problem, config, m, k)
    loads = (
        Load(
            tile_m, depth * a_bytes, m, (True, False), of_a, memory.lines[0],
            memory.seen * a_bytes, memory.total * a_bytes * batch, True, 1.0, policy_a,
            memory.of_taps, memory.cut[0], _pieces(problem, 0),
        ),
        Load(
            products * tile_n, depth * b_bytes, products * n, (False, True), of_b, memory.lines[1],
            products * tile_n * (k * b_bytes), n * products * k * b_bytes * batch, True, 1.0,
            policy_b, memory.of_taps, memory.cut[1], _pieces(problem, 1),
        ),
    )  # fmt: skip
    rows, columns = config.accumulator
    dequantised = any(problem.computed)
    joined = config.is_side_by_side(problem)
    mma = Mma(
        kind_of(problem), rows, columns * products if joined else columns, depth, dequantised,
        1.0 if joined else float(products),
    )  # fmt: skip
    operands = products if problem.computed[1] else 1
    return Work(
        tiles,
        batch,
        taps * -(-(k // taps) // depth),
        loads,
        (mma,),
        tuple(_epilogue(problem, config, m * n * batch, n)),
        dequantised=float(rows * operands * depth) if dequantised else 0.0,
        finish=_finish(problem, config),
        sum_bytes=tile_m * tile_n * products * _SUM_BYTES,
        stages=config.stages,
        consumers=config.consumers,
        slice_k=config.slice_k,
        specialise=config.specialise,
        ping_pong=config.ping_pong,
        persistent=config.persistent,
        cluster=(config.cluster_m, config.cluster_n),
        ctas=config.hints()["ctas"] if config.sms else None,
        ctas_per_sm=config.ctas_per_sm,
        group=config.group,
        split_k=config.split_k,
        in_cluster=config.through_cluster,
        stream_k=config.stream_k,
        pdl=config.pdl,
        prefetch_l2=config.prefetch_l2,
    )


def _finish(problem: GemmProblem, config: Config) -> Nest:
    """What the epilogue computes of a tile."""
    if not problem.finish:
        return _NOTHING
    sides = {"row": (problem.n, config.tile_n), "column": (problem.m, config.tile_m)}
    vectors = [
        (extent or UNKNOWN_EXTENT, tile)
        for _, shape in problem.inputs if shape in sides
        for extent, tile in (sides[shape],)
    ]  # fmt: skip
    return finish(problem.finish, float(config.tile_m * config.tile_n), vectors)


class _Memory(NamedTuple):
    """How the operands lie in memory.

    Attributes
    ----------
    lines, of_taps, cut
        As of :class:`Load`: of A and of B, and of both.
    seen, total : float
        Elements of A that a tile loads, and that there are.
    """

    lines: tuple[float, float]
    seen: float
    total: float
    of_taps: bool = False
    cut: tuple[float, float] = (0.0, 0.0)


def _matrices(problem: GemmProblem, config: Config, m: int, k: int) -> _Memory:
    """Operands that are matrices."""
    run = (problem.k or 0) // problem.taps
    depth, layout = config.tile_k, problem.layout
    a, b = problem.a_bits / 8, problem.b_bits / 8
    cut_a = cut_b = 0.0
    if layout[0] == "N":
        of_a = _lines(problem, 0, depth, run)
        cut_a = 0.0 if problem.computed[0] else cut_rows(run * a, depth * a)
    else:
        of_a = _lines(problem, 0, config.tile_m, problem.m or 0)
    if layout[1] == "T":
        of_b = _lines(problem, 1, depth, run)
        cut_b = 0.0 if problem.computed[1] else cut_rows(run * b, depth * b)
    else:
        of_b = _lines(problem, 1, config.tile_n, problem.n or 0)
    seen, total = config.tile_m * k, m * k / problem.taps
    return _Memory((of_a, of_b), seen, total, cut=(cut_a, cut_b))


def _lines(problem: GemmProblem, side: int, elements: int, pitch: int) -> float:
    """Lines that rows of so many elements of an operand touch, for each that they fill."""
    bits = (problem.a_bits, problem.b_bits)[side]
    if problem.computed[side]:  # what is beyond whole bits of a weight lies elsewhere
        return lines_of_packed(elements * int(bits) / 8, pitch * int(bits) / 8)
    return lines_touched(elements * bits / 8, pitch * bits / 8)


def _pixels(problem: GemmProblem, config: Config, m: int, k: int) -> _Memory:
    """Images and filters; CTAs load the same lines for other taps, at other times."""
    axes, taps, channels = problem.pixels, problem.taps, k // problem.taps
    (of_a, of_b), *_, cut = _matrices(problem, config, m, k)
    if taps > 1:
        of_a = lines_of_taps(channels * problem.a_bits / 8)
    if taps > 1 and problem.layout[1] == "T":
        of_b = lines_of_taps(channels * problem.b_bits / 8)
    seen = min(pixels_seen(axes, config.box(problem) or ()), config.tile_m * taps)
    total = pixels_of_images(axes, m) * channels
    return _Memory((of_a, of_b), seen * channels, total, taps > 1, cut)


def _pieces(problem: GemmProblem, side: int) -> int:
    """Rows in memory for each of an operand: what is beyond whole bits of a weight is scales."""
    bits = (problem.a_bits, problem.b_bits)[side]
    return 2 if problem.computed[side] and bits % 1 else 1


def _epilogue(problem: GemmProblem, config: Config, elements: int, n: int) -> list[TileOut]:
    """The results, and the epilogue inputs of the size of a tile."""
    rows, columns = config.accumulator
    chunk = config.store_columns
    tiles = []
    for dtype in problem.outputs:
        size = bits_of(dtype) / 8
        pitch = n * size
        lines = store_lines(config.tile_n, size, chunk, pitch)
        whole = config.swap_ab and not config.stores_in_chunks(problem, dtype)
        tiles.append(TileOut(rows, columns, size, config.swap_ab, chunk, lines,
                             alignment(pitch), elements, whole=whole))  # fmt: skip
    for dtype, shape in problem.inputs:
        if shape == "tile":
            tiles.append(TileOut(rows, columns, bits_of(dtype) / 8, config.swap_ab, chunk, 1.0,
                                 LINE_BYTES, elements, False))  # fmt: skip
    return tiles
