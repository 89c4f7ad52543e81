"""The TMA copies that bring the tiles of one stage of a ring."""

from __future__ import annotations

from typing import Any

from tvm.ir import TensorRegion
from tvm.tirx import Buffer, ForKind, Stmt, Var
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.errors import Decline
from warploom.layout.smem_matrix import SharedMatrix
from warploom.lower.analysis.gather_rows import gathered, rows_of
from warploom.lower.analysis.rings import Ring
from warploom.lower.analysis.shared_tiles import region_bytes, shared_matrix, tile_bytes
from warploom.lower.analysis.tma_boxes import boxes
from warploom.lower.analysis.tma_regions import why_not_tma
from warploom.lower.emit import barriers
from warploom.lower.emit.copy_by_threads import is_by_threads
from warploom.lower.emit.wide_dimensions import wide_dimensions
from warploom.ops.copy_gather import GATHERED, ROWS
from warploom.ops.copy_prefetch import PREFETCHES
from warploom.ops.copy_strided import CACHE_HINT, STEPS, knows_strides
from warploom.target.tcgen05 import PAIR
from warploom.tile import ir
from warploom.tile.annotations import BY_THREADS
from warploom.tile.leaves import CTA_GROUP
from warploom.tile.primitives import primitive, tile_call
from warploom.tile.program import TileProgram


def announce(ring: Ring, stage: Any) -> Stmt:
    """Tell the stage's ``full`` barrier how many bytes TMA will bring, to both CTAs of a pair."""
    copied = [load.args[0] for load in ring.loads if is_by_threads(load)]
    size = sum(tile_bytes(tile) for tile in ring.tiles) - sum(map(region_bytes, copied))
    return barriers.expect(ring.full, stage, size * (PAIR if ring.pairs else 1))


def copies(
    load: TilePrimitiveCall, ring: Ring, stage: Any, program: TileProgram,
    full: Buffer | None = None,
) -> list[Stmt]:  # fmt: skip
    """Copies of one load into a stage, one swizzle atom of columns at a time.

    They complete at the barriers ``full``, those of the ring in this CTA unless told otherwise.

    Raises
    ------
    Decline
        If TMA cannot describe its source.
    """
    tile = load.args[0].source
    source = load.args[1]
    destination = ir.ranges(load.args[0])
    if is_by_threads(load):
        reason = load.config.get(BY_THREADS, f"Rows of {source.source.name} have an index each.")
        raise Decline(f"{reason} Threads copy it, and the thread that loads cannot alone.")
    require_tma(source, f"which {tile.name} is loaded from")
    group = gathered(load, ring.loads)
    if group is not None:
        return _gather(load, group, ring, stage, ring.full if full is None else full)
    ranges = ir.ranges(source)
    wide = wide_dimensions(ranges, len(tile.shape))
    config: dict[str, Any] = {"mbar": ir.address(ring.full if full is None else full, stage)}
    if ring.pairs:
        config[CTA_GROUP] = PAIR
    if CACHE_HINT in load.config:
        config[CACHE_HINT] = load.config[CACHE_HINT]
    steps = [1] * len(ranges)
    if STEPS in load.config:
        config[STEPS] = load.config[STEPS]
        steps = [int(step) for step in config[STEPS]]
    peers = ring.peers_of(load)
    if peers is not None:
        rank = program.var("cta_in_cluster")
        number = peers.number(rank)
        first, height = destination[0]
        rows, outer = (int(e) // peers.count for e in (height, ranges[wide[0]][1]))
        destination[0] = (first + number * rows, rows)
        ranges[wide[0]] = (ranges[wide[0]][0] + number * (outer * steps[wide[0]]), outer)
        config["cta_mask"] = peers.mask(rank)
    to = ir.region(ring.tiles[tile], (stage, 1), *destination)
    made = _by_atoms(to, ir.region(source.source, *ranges), wide[-1], shared_matrix(tile), config)
    return [ir.written_at(statement, load.span) for statement in made]


def _gather(
    load: TilePrimitiveCall, group: list[TilePrimitiveCall], ring: Ring, stage: Any, full: Buffer
) -> list[Stmt]:
    """Copies of four rows, in place of the last of their loads."""
    if not load.same_as(group[-1]):
        return []
    tile = load.args[0].source
    first, *others = rows_of(group)
    config = {"mbar": ir.address(full, stage), ROWS: others}
    config |= {CTA_GROUP: PAIR} if ring.pairs else {}
    config |= {CACHE_HINT: load.config[CACHE_HINT]} if CACHE_HINT in load.config else {}
    (start, _), columns = ir.ranges(group[0].args[0])
    to = ir.region(ring.tiles[tile], (stage, 1), (start, GATHERED), columns)
    _, of_source = ir.ranges(load.args[1])
    source = ir.region(load.args[1].source, (first, GATHERED), of_source)
    made = _by_atoms(to, source, 1, shared_matrix(tile), config)
    return [ir.written_at(statement, load.span) for statement in made]


def prefetches(load: TilePrimitiveCall, ring: Ring, program: TileProgram) -> list[Stmt]:
    """As :func:`copies`, but into the L2 cache alone; none of rows that have an index each."""
    if gathered(load, ring.loads) is not None:
        return []

    def into_l2(copy: TilePrimitiveCall) -> TilePrimitiveCall:
        return tile_call(copy, *copy.args, dispatch=PREFETCHES[copy.dispatch])

    return [
        ir.map_nodes(copy, {TilePrimitiveCall: into_l2}, {})
        for copy in copies(load, ring, 0, program)
    ]


def own_copies(load: TilePrimitiveCall) -> list[Stmt]:
    """Copies of a load whose mbarrier and other options are the author's.

    Raises
    ------
    Decline
        If TMA cannot describe its source, or it fills a part of the columns of a swizzled tile.
    """
    to, source = load.args[:2]
    require_tma(source, f"which {to.source.name} is loaded from")
    ranges = ir.ranges(source)
    matrix = shared_matrix(to.source)
    if matrix is not None and not ir.is_constant(ir.ranges(to)[-1][1], matrix.shape[1]):
        raise Decline(
            f"A load fills a part of the columns of {to.source.name}, which is swizzled; load all "
            "of them, or give it a layout without swizzle."
        )
    wide = [d for d, (_, extent) in enumerate(ranges) if not ir.is_constant(extent, 1)]
    along = wide[-1] if wide else len(ranges) - 1
    made = _by_atoms(to, source, along, matrix, dict(load.config))
    return [ir.written_at(statement, load.span) for statement in made]


def _by_atoms(
    to: TensorRegion,
    source: TensorRegion,
    along: int,
    matrix: SharedMatrix | None,
    config: dict[str, Any],
) -> list[Stmt]:
    """Copies by TMA, one swizzle atom of columns at a time; ``along`` are columns of the source."""
    destination, ranges = ir.ranges(to), ir.ranges(source)
    columns = int(destination[-1][1])
    width = columns if matrix is None else matrix.atom_columns

    own_way = bool({STEPS, ROWS} & set(config)) or not knows_strides(source.source)
    dispatch = "tma_gather4" if ROWS in config else "tma_strided" if own_way else "tma_auto"
    if columns == width:
        parts = [(to, source)] if own_way else boxes(to, source)
        return [primitive("copy_async", *regions, dispatch=dispatch, **config) for regions in parts]
    atom = Var("atom", "int32")
    destination[-1] = (destination[-1][0] + atom * width, width)
    ranges[along] = (ranges[along][0] + atom * width, width)
    regions = ir.region(to.source, *destination), ir.region(source.source, *ranges)
    copy = primitive("copy_async", *regions, dispatch=dispatch, **config)
    return [ir.loop(atom, columns // width, [copy], kind=ForKind.UNROLLED)]


def require_tma(region: TensorRegion, use: str) -> None:
    """Whether TMA can describe a region of global memory.

    Parameters
    ----------
    region : TensorRegion
    use : str
        Of its buffer, such as ``"which A_s is loaded from"``.

    Raises
    ------
    Decline
        If it cannot; :mod:`warploom.lower.analysis.tma_regions` has the reasons.
    """
    if (reason := why_not_tma(region, use)) is not None:
        raise Decline(reason)
