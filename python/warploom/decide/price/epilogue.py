"""The time in which a tile's results leave: registers, shared memory, TMA, and the L2 cache."""

from __future__ import annotations

import math
from typing import NamedTuple

from warploom.decide.machine import Machine
from warploom.decide.price.chunks import chunks_of
from warploom.decide.price.launch import Launch
from warploom.decide.price.step import joined
from warploom.decide.price.work import TileOut, Work
from warploom.target import SM90A, WGMMA_M

#: Chunks of a warpgroup that TMA stores while it goes on.
_BUFFERS = 2
#: Cycles of the SM's shared memory for an element of each thread of a warpgroup, where each store
#: is of single 16-bit elements to the transpose: four warps, of whose threads four have elements of
#: the same banks (rows of whole 128 bytes below each other).
_WHOLE_CYCLES = 4 * 4


class Epilogue(NamedTuple):
    """Cycles from the last MMA of a tile on.

    Attributes
    ----------
    last : float
        Until the results of the last tile of each CTA are stored.
    between : float
        Until the warpgroups may begin the next tile: TMA still stores the last chunks.
    stores : float
        In which TMA stores a tile of each CTA of an SM, or in which functions of its elements are
        computed: the longer of both.
    """

    last: float
    between: float
    stores: float


def finish_cycles(work: Work, machine: Machine) -> float:
    """Cycles in which an SM computes what the epilogue of a tile does beside its store.

    Each of its schedulers issues one instruction a cycle, for whichever warpgroup; neither MMAs nor
    stores of other tiles were found to hide that (80 configs with bias and GELU, H200, 2026-11-26).
    """
    nest = work.finish
    return (nest.fma + nest.alu + nest.mufu + nest.convert) / machine.fma_lanes


def epilogue_of(work: Work, machine: Machine, launch: Launch, loop: float = 0.0) -> Epilogue:
    """The epilogue of a tile: warpgroups write chunks while TMA stores the chunks before.

    Parameters
    ----------
    work : Work
    machine : Machine
    launch : Launch
    loop : float
        Cycles of the steps of a tile, behind which its first inputs are loaded.
    """
    # The first tile of a CTA waits for its operands, too.
    hidden = loop + (machine.first_load * machine.clock if launch.waves == 1 else 0.0)
    cycles = moved = behind = 0.0
    for tile in work.epilogue:
        elements = tile.rows * tile.columns
        if not tile.stored:
            cycles += launch.busy * elements * tile.size * tile.times / machine.receive_bytes
            cycles += _waits_for_input(tile, work, machine, hidden) * tile.times
            continue
        threads = work.consumers * SM90A.warpgroup
        each = machine.element_cycles * (1 + machine.transpose * tile.transposed)
        if tile.whole:
            each += work.consumers * _WHOLE_CYCLES
        chunks = _chunks(tile, work)
        cycles += (elements / threads * each + chunks * machine.chunk_cycles) * tile.times
        bytes_ = elements * tile.times * _stored(tile, machine)
        moved += bytes_
        behind += bytes_ * max(0.0, 1 - _BUFFERS / chunks)
    busy, ctas = launch.busy / machine.store_bytes, launch.last / work.split_k
    stores = busy * moved
    last = joined(machine.overlap, cycles, max(stores, ctas * moved / machine.l2_store_bytes))
    functions = launch.busy * work.finish.mufu / machine.mufu_lanes
    return Epilogue(
        last, joined(machine.overlap, cycles, busy * behind), max(stores, functions)
    )


def _chunks(tile: TileOut, work: Work) -> float:
    """Chunks that a warpgroup stores, or loads, of a tile."""
    return max(1.0, tile.rows / WGMMA_M / work.consumers) * chunks_of(tile)


def _waits_for_input(tile: TileOut, work: Work, machine: Machine, hidden: float) -> float:
    """Cycles in which a warpgroup waits for an input of the size of a tile, such as a residual.

    Chunks come into the buffers that results leave through. Those that have buffers from the start
    are asked for when the tile begins, the others when stores have left theirs: they take as long
    as a load from memory once more for each round of buffers. Tiles of 64 x 64, which are one
    chunk, took 1.1 us longer each with a residual and one step, and 0.65 with four; 128 x 160 of
    one warpgroup, six chunks, 3.9 us (H100, 2026-11-26).
    """
    latency = machine.latency * machine.clock
    rounds = math.ceil(_chunks(tile, work) / _BUFFERS)
    return max(0.0, latency - hidden) + (rounds - 1) * latency


def _stored(tile: TileOut, machine: Machine) -> float:
    """Bytes that the store of an element takes as long as, if all lines were whole."""
    return tile.size * (1 + machine.partial_lines * (tile.lines - 1))


def store_cycles(work: Work, machine: Machine, launch: Launch) -> float:
    """Cycles in which the L2 cache takes the results of all waves but the last."""
    if launch.waves == 1:
        return 0.0
    bytes_ = sum([
        tile.rows * tile.columns * tile.times * _stored(tile, machine)
        for tile in work.epilogue if tile.stored
    ])  # fmt: skip
    tiles = launch.units / work.split_k
    return bytes_ * tiles * (1 - 1 / launch.waves) / machine.l2_store_bytes
