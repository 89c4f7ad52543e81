"""Legal configs that make sense for the sizes of a problem: tiles, clusters, splits, stages."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from warploom.decide.config import Config
from warploom.decide.machine import H200, Machine
from warploom.decide.problem import GemmProblem
from warploom.decide.work import UNKNOWN_EXTENT, operand_bytes, sizes, tiles_along, tiles_of
from warploom.target.dtypes import bits_of
from warploom.tile.choices import BY_NAME

#: Sides of accumulators: the one of 64-row instructions, and their width.
ROWS = (64, 128, 192, 256)
COLUMNS = (8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256)
#: Bytes of K in a stage: one swizzled row of shared memory, or several for small tiles.
DEPTH_BYTES = (128, 256, 512)
#: Elements of an accumulator below which a matrix of several tiles an SM gains nothing, and above
#: which a stage needs no second row.
_SMALL_TILE, _LARGE_TILE = 8192, 16384
#: Waves for which a width is sought that leaves no SM idle in the last, the least of such
#: widths, as loads of narrow tiles are slow, and their step: stores are slow in chunks of fewer
#: columns, but of fewer rows, as tiles are stored that are computed as the transpose, they are not.
_FITTED_WAVES, _LEAST_FITTED = (1, 2, 3, 4), 64
_FITTED_STEP, _FITTED_ROWS = 16, 8
CLUSTERS = ((1, 1), (2, 1), (1, 2))
#: Fewer of these run at a time than fill the SMs: for products of few tiles, which all do.
LARGE_CLUSTERS = ((2, 2), (4, 1), (1, 4), (4, 2), (2, 4))
#: A kernel whose operands are not loaded ahead waits for every tile.
LEAST_STAGES = 2
#: More stages hide nothing more.
MOST_STAGES = 12
#: Rows and columns of a matrix of which tiles waste little, whichever operand has the rows.
_MANY = 4096
#: Rows from which on many CTAs read each weight.
_FEW = 256
#: Rows of products that take as long as their weights take to arrive.
STREAMING_ROWS = 128


def fitted(
    m: int, n: int, rows: int, step: int = _FITTED_STEP, sms: int = H200.sms
) -> frozenset[int]:
    """Widths with which the tiles of an ``m`` x ``n`` matrix fill whole waves of the SMs.

    Parameters
    ----------
    m, n : int
        Extents along the rows and the columns of an accumulator.
    rows : int
        Of a tile.
    step : int
        Widths are multiples of it.
    sms : int
        Of the GPU.
    """
    widths = set()
    for waves in _FITTED_WAVES:
        across = waves * sms // -(-m // rows)
        if across:
            width = -(-n // across)
            widths.add(-(-width // step) * step)
    return frozenset(width for width in widths if _LEAST_FITTED <= width <= COLUMNS[-1])


def tiles(problem: GemmProblem, machine: Machine = H200) -> Iterator[Config]:
    """All tiles, consumers and orientations that are legal and not absurd for the sizes."""
    m, n, _, _ = (extent or UNKNOWN_EXTENT for extent in sizes(problem))
    size = bits_of(problem.a_dtype) // 8
    fit = {False: (m, n, _FITTED_STEP)}
    # Few rows leave most of 64 empty: such tiles took up to 1.5 times as long as the transpose.
    few = streams_weights(problem) and problem.products == 1 and n >= ROWS[0]
    few = few and not problem.reduced
    least = ROWS[0] // 2 if few else ROWS[0]
    if min(m, n) < _MANY or any(problem.computed):
        fit[True] = n, m, _FITTED_ROWS
    sides = (
        (swap_ab, rows, columns, depth)
        for swap_ab, (long, wide, step) in fit.items()
        for rows in ROWS
        for columns in sorted({*COLUMNS, *fitted(long, wide, rows, step, machine.sms)})
        for depth in DEPTH_BYTES
    )
    for swap_ab, rows, columns, depth in sides:
        tile_m, tile_n = (columns, rows) if swap_ab else (rows, columns)
        # A tile may reach over the edge, but not by more than its smaller neighbour would.
        if tile_m >= 2 * max(m, 8 if swap_ab else least) or tile_n >= 2 * max(n, 8):
            continue
        area = rows * columns
        if depth > DEPTH_BYTES[0] and area > _LARGE_TILE:
            continue
        if depth > DEPTH_BYTES[1] and (not swap_ab or area >= _SMALL_TILE):
            continue
        if area < _SMALL_TILE and m * n > 4 * _SMALL_TILE * machine.sms and min(m, n) > 64:
            continue
        for consumers in (1, 2, 3):
            config = Config(
                tile_m, tile_n, depth // size, stages=2, consumers=consumers, swap_ab=swap_ab
            )
            if rows // 64 % consumers == 0 and config.why_not(problem) is None:
                yield config
                alternate = config.replace(ping_pong=True)
                if not _may_alternate(problem, alternate, machine):
                    continue
                if alternate.why_not(problem) is None:
                    yield alternate


def _may_alternate(problem: GemmProblem, config: Config, machine: Machine) -> bool:
    """Whether a CTA has several tiles of which warpgroups could compute every other one."""
    down, across = tiles_along(problem, config)
    count = down * across * (problem.batch or UNKNOWN_EXTENT)
    plain = not any(problem.computed) and not problem.reduced
    return plain and not config.swap_ab and config.consumers == 1 and count > machine.sms


def candidates(problem: GemmProblem, machine: Machine = H200) -> Iterator[Config]:
    """Legal configs that make sense for the sizes, each with as many stages as fit."""
    # To dequantise takes longer than to multiply: warpgroups share the steps.
    computed = BY_NAME["slice_k"].draws if any(problem.computed) else (1,)
    for tile in tiles(problem, machine):
        shares = product(
            CLUSTERS, _splits(problem, tile, machine), _ctas(tile),
            computed if tile.consumers == 1 else (1,),
        )  # fmt: skip
        for (cluster_m, cluster_n), split, ctas, slice_k in shares:
            if not _has_neighbours(problem, tile, cluster_m, cluster_n):
                continue
            config = tile.replace(
                cluster_m=cluster_m, cluster_n=cluster_n, split_k=split, ctas_per_sm=ctas,
                slice_k=slice_k,
            )  # fmt: skip
            config = with_caching(problem, config, machine)
            stages = most_stages(config, problem) // slice_k * slice_k
            if stages >= 2:
                config = config.replace(stages=stages)
                if config.why_not(problem) is None:
                    yield config


def with_caching(problem: GemmProblem, config: Config, machine: Machine = H200) -> Config:
    """A config with the L2 policy and the prefetch that suit its tile and its cluster.

    Weights that are read once are dropped first: of 35 pairs of configs of GEMMs of 10 to 560 MB
    and up to 128 rows, 15 of them with clusters, 28 took 1 to 15 % less, and none 1 % longer (H100
    and H200, until 2026-11-26). Inputs rotated through twice the cache, which kept a part of them.
    So is B that many rows share, where the cache cannot hold both operands: products of
    150 MB to 1 GB took 0.3 to 1 % less without clusters, but with clusters 1 to 5 % more (H200,
    2026-11-22).

    A kernel that waits for its weights prefetches its first steps of them. Of 54 pairs of up to 128
    rows 33 took 1 to 15 % less, and 9 up to 6 % longer, when A was prefetched, too; without A three
    with clusters took 1 to 7 % less than without prefetches (H200, 2026-11-26).
    """
    alone = config.cluster_size == 1
    if streams_weights(problem):
        down, _ = tiles_along(problem, config)
        once = alone or down <= config.cluster_m
        return config.replace(l2_policy=int(once), prefetch_l2=once)
    many = (problem.m or UNKNOWN_EXTENT) > _FEW
    shared = many and sum(operand_bytes(problem)) > machine.l2_capacity
    return config.replace(l2_policy=int(alone and shared), prefetch_l2=False)


def streams_weights(problem: GemmProblem) -> bool:
    """Whether a product takes as long as its weights of 16 bits take to arrive.

    With weights of 4 and 8 bits prefetches lost up to 20 %: there the first stages are most of the
    weights, and loads queue behind their own prefetches (H200, 2026-11-23 00:40 and 00:50).
    """
    plain = problem.a_bits == problem.b_bits == 16 and not any(problem.computed)
    return plain and (problem.m or UNKNOWN_EXTENT) <= STREAMING_ROWS


def fits_at_once(problem: GemmProblem, config: Config, machine: Machine = H200) -> bool:
    """Whether all tiles, rounded up to whole clusters, are computed at a time."""
    room = machine.gpu.resident(config.cluster_m * config.cluster_n, config.ctas_per_sm)
    return tiles_of(problem, config) * config.split_k <= room


def _splits(problem: GemmProblem, tile: Config, machine: Machine) -> list[int]:
    """Parts of the sum: several only where there are too few tiles for the SMs."""
    down, across = tiles_along(problem, tile)
    _, _, k, batch = (extent or UNKNOWN_EXTENT for extent in sizes(problem))
    count = down * across * batch
    return [
        split
        for split in BY_NAME["split_k"].draws
        if split == 1 or (count * split <= 2 * machine.sms and k >= 2 * split * tile.tile_k)
    ]


def _ctas(tile: Config) -> tuple[int, ...]:
    """CTAs that share an SM: several only with tiles that need a part of it."""
    return (1, 2) if tile.tile_m * tile.tile_n <= _LARGE_TILE else (1,)


def has_neighbours(problem: GemmProblem, config: Config) -> bool:
    """Whether more than half of a cluster has tiles, along each of its dimensions."""
    return _has_neighbours(problem, config, config.cluster_m, config.cluster_n)


def _has_neighbours(problem: GemmProblem, tile: Config, cluster_m: int, cluster_n: int) -> bool:
    down, across = tiles_along(problem, tile)
    return (cluster_m == 1 or down > cluster_m // 2) and (
        cluster_n == 1 or across > cluster_n // 2
    )


def most_stages(config: Config, problem: GemmProblem) -> int:
    """The most stages that fit and help, whatever ``config`` says of stages; 0 if none do."""
    return min(config.most_stages(problem), MOST_STAGES)
