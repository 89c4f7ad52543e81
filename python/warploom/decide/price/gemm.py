"""The work of a GEMM with a config, by formulas: microseconds a candidate."""

from __future__ import annotations

from warploom.decide.config import Config
from warploom.decide.price.work import (
    UNKNOWN_EXTENT,
    Load,
    Mma,
    TileOut,
    Work,
    chunk_lines,
    lines_touched,
)
from warploom.decide.problem import GemmProblem, kind_of
from warploom.target import TMA
from warploom.target.dtypes import bits_of
from warploom.target.swizzle import ATOM_ROWS
from warploom.tile.choices import POLICIES

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
    lines_a, lines_b = _lines(problem, config)
    policy_a, policy_b = (policy or "" for policy in POLICIES[config.l2_policy])
    loads = (
        Load(
            tile_m, depth * a_bytes, m, (True, False), of_a, lines_a, tile_m * (k * a_bytes),
            m * k / taps * a_bytes * batch, policy=policy_a, pieces=_pieces(problem, 0),
        ),
        Load(
            products * tile_n, depth * b_bytes, products * n, (False, True), of_b, lines_b,
            products * tile_n * (k * b_bytes), n * products * k * b_bytes * batch, policy=policy_b,
            pieces=_pieces(problem, 1),
        ),
    )  # fmt: skip
    rows, columns = config.accumulator
    dequantised = any(problem.computed)
    joined = _are_side_by_side(problem, config)
    mma = Mma(
        kind_of(problem), rows, columns * products if joined else columns, depth, dequantised,
        1.0 if joined else float(products),
    )  # fmt: skip
    operands = products if problem.computed[1] else 1
    return Work(
        (-(-m // tile_m), -(-n // tile_n)),
        batch,
        taps * -(-(k // taps) // depth),
        loads,
        (mma,),
        tuple(_epilogue(problem, config, m * n * batch, n)),
        dequantised=float(rows * operands * depth) if dequantised else 0.0,
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


def _lines(problem: GemmProblem, config: Config) -> tuple[float, float]:
    """Lines of the L2 cache that rows of a stage touch of A and of B, for each that they fill."""
    run = (problem.k or 0) // problem.taps
    depth, layout = config.tile_k, problem.layout
    a, b = problem.a_bits / 8, problem.b_bits / 8
    if layout[0] == "N":
        of_a = lines_touched(depth * a, run * a)
    else:
        of_a = lines_touched(config.tile_m * a, (problem.m or 0) * a)
    if layout[1] == "T":
        return of_a, lines_touched(depth * b, run * b)
    return of_a, lines_touched(config.tile_n * b, (problem.n or 0) * b)


def _pieces(problem: GemmProblem, side: int) -> int:
    """Rows in memory for each of an operand: what is beyond whole bits of a weight is scales."""
    bits = (problem.a_bits, problem.b_bits)[side]
    return 2 if problem.computed[side] and bits % 1 else 1


def _are_side_by_side(problem: GemmProblem, config: Config) -> bool:
    """Whether one MMA computes all products: see :mod:`warploom.gemm.generate`."""
    if problem.products == 1 or config.swap_ab or config.tile_n % ATOM_ROWS:
        return False
    fits = problem.products * config.tile_n <= TMA.box_extent
    return fits and problem.layout[1] == "T" and not problem.computed[1]


def _epilogue(problem: GemmProblem, config: Config, elements: int, n: int) -> list[TileOut]:
    """The results, and the epilogue inputs of the size of a tile."""
    rows, columns = config.accumulator
    chunk = config.store_columns
    tiles = []
    for dtype in problem.outputs:
        size = bits_of(dtype) / 8
        pitch = n * size
        lines = chunk_lines(min(chunk, config.tile_n) * size, pitch)
        tiles.append(TileOut(rows, columns, size, config.swap_ab, chunk, lines,
                             bool(pitch % 128), elements))  # fmt: skip
    for dtype, shape in problem.inputs:
        if shape == "tile":
            tiles.append(TileOut(rows, columns, bits_of(dtype) / 8, config.swap_ab, chunk, 1.0,
                                 False, elements, False))  # fmt: skip
    return tiles
