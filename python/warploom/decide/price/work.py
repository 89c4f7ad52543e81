"""What a kernel does, as numbers: the description that is priced, of any family.

A :class:`Work` says how many tiles there are and how CTAs share them, what a step of a tile loads,
multiplies and computes, and what a tile stores. It knows no GPU and no buffer. Two front ends make
it: :mod:`~warploom.decide.price.gemm` of a GEMM and a config, in microseconds, for rankings of
thousands; :mod:`~warploom.decide.price.read` of any tile program, in milliseconds.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from warploom.target import WgmmaKind

#: What stands for an extent that is dynamic.
UNKNOWN_EXTENT = 4096
#: Bytes of a line of the L2 cache, and of the sectors that it is filled by.
LINE_BYTES, SECTOR_BYTES = 128, 32
#: Columns of a store chunk, where nothing else is said: a swizzled row of 16-bit elements.
CHUNK_COLUMNS = 64


class Load(NamedTuple):
    """What a step, or the prologue of a tile, loads of a matrix.

    Attributes
    ----------
    rows : int
        Rows of the tile: along M or N of an operand.
    row_bytes : float
        Bytes of each row.
    extent : int
        Rows that the matrix has: a tile over its edge requests no more.
    along : (bool, bool)
        Whether the load differs between tiles along the first and the second dimension of the grid;
        tiles along the others load the same bytes.
    multicast : int
        CTAs of a cluster of which each loads a part for all.
    lines : float
        Lines of the L2 cache that rows touch, for each that they fill.
    tile_bytes : float
        Bytes that a tile loads in all its steps.
    total : float
        Bytes in memory, which all tiles load together.
    tma : bool
        Whether TMA copies the bytes to shared memory; otherwise threads load them.
    times : float
        How often a step does it, on average.
    policy : str
        The L2 eviction policy of the load: ``"evict_first"``, ``"evict_last"``, or none.
    of_taps : bool
        Whether steps load other taps of a convolution: CTAs come to a line at different times.
    cut : float
        Part of the rows that their matrix ends within a sector of: see :func:`cut_rows`.
    pieces : int
        Rows in memory that a row of the tile comes from, such as one of weights and one of their
        scales.
    """

    rows: int
    row_bytes: float
    extent: int
    along: tuple[bool, bool]
    multicast: int
    lines: float
    tile_bytes: float
    total: float
    tma: bool = True
    times: float = 1.0
    policy: str = ""
    of_taps: bool = False
    cut: float = 0.0
    pieces: int = 1


class Mma(NamedTuple):
    """MMAs of a step into one accumulator.

    Attributes
    ----------
    kind : WgmmaKind
        The instruction.
    rows, columns, depth : int
        M and N of the accumulator, of all warpgroups, and K.
    a_in_registers : bool
        Whether operand A comes from registers; otherwise from shared memory, as B does.
    times : float
        How often a step does it, on average.
    """

    kind: WgmmaKind
    rows: int
    columns: int
    depth: int
    a_in_registers: bool = False
    times: float = 1.0


class Nest(NamedTuple):
    """Element-wise code and reductions of a step, which computing warpgroups share by rows.

    Attributes
    ----------
    fma, alu, mufu, convert : float
        Instructions of a thread, all threads together: multiply and add; compare, select, integers;
        exponentials, reciprocals and their like; conversions of dtypes.
    shared : float
        Words of 32 bits that threads load from or store to memory.
    reductions : float
        Reductions of rows, each of which exchanges values between threads.
    """

    fma: float = 0.0
    alu: float = 0.0
    mufu: float = 0.0
    convert: float = 0.0
    shared: float = 0.0
    reductions: float = 0.0


class Wait(NamedTuple):
    """A wait of a step for elements that threads load from memory and use in the same step.

    Attributes
    ----------
    mmas : float
        MMAs of the warpgroup that run between the load and the use.
    times : float
        How often a step does it, on average.
    """

    mmas: float
    times: float = 1.0


class TileOut(NamedTuple):
    """A tile that the epilogue stores, or an epilogue input of the size of a tile.

    Attributes
    ----------
    rows, columns : int
        Of the accumulator that it is computed of, or of the tile itself.
    size : float
        Bytes of an element.
    transposed : bool
        Whether the tile is the transpose of the accumulator.
    chunk_columns : int
        Columns of a store chunk, at most.
    lines : float
        Lines of memory that the chunks of a row touch, for each that they fill.
    aligned : int
        Bytes of a line of memory at whose multiples rows begin.
    elements : float
        Elements in memory, of all tiles.
    stored : bool
        Whether it is stored; otherwise it is read.
    times : float
        How often a tile does it.
    whole : bool
        Whether it is the transpose of the accumulator and goes to shared memory as a whole, element
        by element, before TMA stores it.
    """

    rows: int
    columns: int
    size: float
    transposed: bool
    chunk_columns: int
    lines: float
    aligned: int
    elements: float
    stored: bool = True
    times: float = 1.0
    whole: bool = False


class Work(NamedTuple):
    """What one launch of a kernel does.

    Attributes
    ----------
    tiles : (int, int)
        Tiles along the first and the second dimension of the grid.
    batch : int
        Tiles along all other dimensions.
    steps : float
        Steps of a tile, on average.
    loads, mmas, nest : tuple of Load, tuple of Mma, Nest
        What a step does.
    dequantised : float
        Elements of operands that a step computes of what it has loaded, on their way into an MMA.
    prologue : tuple of Load
        What a tile loads before its first step.
    epilogue : tuple of TileOut
        What a tile stores, and reads of its size, after its last step.
    finish : Nest
        What a tile computes after its last step, beside conversions of results.
    sum_bytes : float
        Bytes of a tile's accumulators, which a split-K or stream-K reduction adds.
    stages : int
        Stages of the ring of loads.
    consumers : int
        Warpgroups that share the rows of a tile.
    slice_k : int
        Warpgroups, each with all rows, that share the steps.
    specialise : bool
        Whether warps of their own load.
    ping_pong : bool
        Whether two warpgroups compute alternate tiles.
    persistent : bool
        Whether a CTA computes tile after tile.
    cluster : (int, int)
        CTAs of a cluster along the first two dimensions of the grid.
    ctas : int or None
        CTAs of a persistent grid; None for as many as the GPU holds.
    ctas_per_sm : int
        CTAs that an SM holds at a time.
    group : int
        Tiles along the first dimension that are visited together, in units of clusters.
    split_k : int
        CTAs that share a tile.
    in_cluster : bool
        Whether these are a cluster, and add through its shared memory; otherwise through a
        workspace.
    stream_k : bool
        Whether CTAs share the tiles of the last wave.
    order_mmas : bool
        Whether warpgroups issue the MMAs of a step in order.
    pdl : bool
        Whether the kernel may start before the kernel before it ends.
    prefetch_l2 : bool
        Whether it then brings its first steps into the L2 cache.
    waits : tuple of Wait
        Elements that threads load from memory in a step, without TMA, and use in it.
    rounds : int
        MMAs of a step whose results nests read in the step; 0 where some run on when it ends.
    lengths : tuple of float
        Steps of the tiles at each place along the second dimension of the grid, where they differ,
        such as those of a causal mask; empty where all tiles have as many.
    """

    tiles: tuple[int, int]
    batch: int
    steps: float
    loads: tuple[Load, ...]
    mmas: tuple[Mma, ...]
    epilogue: tuple[TileOut, ...]
    nest: Nest = Nest()
    dequantised: float = 0.0
    prologue: tuple[Load, ...] = ()
    finish: Nest = Nest()
    sum_bytes: float = 0.0
    stages: int = 4
    consumers: int = 1
    slice_k: int = 1
    specialise: bool = True
    ping_pong: bool = False
    persistent: bool = True
    cluster: tuple[int, int] = (1, 1)
    ctas: int | None = None
    ctas_per_sm: int = 1
    group: int = 8
    split_k: int = 1
    in_cluster: bool = False
    stream_k: bool = False
    order_mmas: bool = False
    pdl: bool = True
    prefetch_l2: bool = False
    waits: tuple[Wait, ...] = ()
    rounds: int = 0
    lengths: tuple[float, ...] = ()


def lines_touched(row_bytes: float, pitch: float) -> float:
    """Lines of the L2 cache that rows of a load touch, for each that they fill.

    Rows begin at all multiples of what their pitch and a line have in common. Where that is half of
    a sector, every other row touches a sector more, which counts as a part of a line.

    Parameters
    ----------
    row_bytes : float
        Contiguous bytes of a row.
    pitch : float
        Bytes from row to row; 0 where that is not known.

    Examples
    --------
    >>> [lines_touched(128, pitch) for pitch in (4096, 4160, 4128, 4112)]
    [1.0, 1.5, 1.75, 2.109375]
    """
    if not pitch % LINE_BYTES:
        return 1.0
    begins = math.gcd(int(pitch), LINE_BYTES)
    lines = (row_bytes + LINE_BYTES - begins) / row_bytes
    return lines * (1 + _half_sectors(begins) * SECTOR_BYTES / row_bytes)


def _half_sectors(begins: int) -> float:
    """Part of the rows that touch a sector more than they fill."""
    return max(0.0, 1 - begins / SECTOR_BYTES)


def lines_of_packed(row_bytes: float, pitch: float) -> float:
    """Lines that rows of packed weights touch, for each that they fill, or that one is part of.

    Rows begin at multiples of what their own bytes, their pitch and a line have in common.

    Examples
    --------
    Rows of 64 bytes cross no line where rows of the matrix begin in the middle of one; rows of
    128 bytes do every other time.

    >>> lines_of_packed(64, 4160), lines_of_packed(128, 4160), lines_of_packed(128, 4096)
    (1.0, 1.5, 1.0)
    """
    begins = math.gcd(int(pitch), LINE_BYTES)
    row = int(row_bytes)
    if not row or begins == LINE_BYTES or (LINE_BYTES % row == 0 and begins % row == 0):
        return 1.0
    return (row + LINE_BYTES - math.gcd(row, begins)) / row


@lru_cache(maxsize=1024)
def lines_of_taps(tap_bytes: float) -> float:
    """Lines that loads of the channels of taps touch, for each that they fill.

    A tap of a filter, or of a pixel, begins behind another, at any multiple of what the bytes of a
    tap and of a line have in common. Each line's worth of it is loaded by itself.
    """
    boxes = math.ceil(tap_bytes / LINE_BYTES)
    return 1 + boxes * (LINE_BYTES - math.gcd(int(tap_bytes), LINE_BYTES)) / tap_bytes


@lru_cache(maxsize=1024)
def cut_rows(row_bytes: float, step_bytes: float) -> float:
    """Part of the rows of all steps that their matrix ends within a sector of the L2 cache.

    A row of which no more than 16 bytes lack counts as half of one.

    Parameters
    ----------
    row_bytes : float
        Of the matrix, along K; of a tap where steps go over taps.
    step_bytes : float
        Of a step.

    Examples
    --------
    >>> cut_rows(80, 128), cut_rows(96, 128), cut_rows(112, 128), cut_rows(272, 128)
    (1.0, 0.0, 0.5, 0.3333333333333333)
    """
    if row_bytes % SECTOR_BYTES == 0:
        return 0.0
    lacks = LINE_BYTES - row_bytes % LINE_BYTES
    return (0.5 if 2 * lacks <= SECTOR_BYTES else 1.0) / math.ceil(row_bytes / step_bytes)
