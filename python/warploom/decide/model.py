"""The model of costs: how long a GEMM takes with a certain config, and where the time goes.

One SM is a pipeline. Each step of K has a time: that of the slowest of the tensor cores, the SM's
and the GPU's loads, the latency that the stages have to hide, and what a warpgroup does itself;
times that come close to each other add up in part. Steps make a loop, a loop and its epilogue make
a tile, tiles make the waves of the busiest CTA. Memory runs beside all of it. What no wave hides
comes on top: launch, first loads, last epilogue, sums of parts.

The constants are those of a :class:`~warploom.decide.machine.Machine`; all else is counting
(:mod:`~warploom.decide.work`). A prediction takes about 50 microseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from warploom.decide.config import Config
from warploom.decide.machine import H200, Machine
from warploom.decide.problem import GemmProblem
from warploom.decide.step import LINE_BYTES, Step, joined
from warploom.decide.work import Work, operand_bytes, work_of
from warploom.target import SM90A, WGMMA_M
from warploom.target.dtypes import bits_of

#: Bytes of an element of a sum.
_SUM_BYTES = 4
#: Times that memory delivers operands at most: beyond that the L2 cache always helps.
_MOST_READS = 4


@dataclass(frozen=True)
class Prediction:
    """Microseconds, by where they go; :attr:`total` is the time of one launch.

    Attributes
    ----------
    tensor, l2 : float
        The MMAs of the busiest SM, and the loads of all SMs from the L2 cache.
    loop : float
        All waves of the busiest CTA, with those two and what they do not hide.
    dram : float
        Bytes between memory and the L2 cache, which move beside the loop.
    fill, drain : float
        First loads and last epilogue.
    launch : float
        Before and after the kernel's own work.
    reduce : float
        Adding the parts of a split sum.
    waves : int
        Tiles, or parts of tiles, that the busiest CTA computes.
    overlap : float
        As ``overlap_dram`` of :class:`~warploom.decide.machine.Machine`.
    throttle : float
        Factor on the loop and memory, for a clock that power limits.
    """

    tensor: float
    l2: float
    loop: float
    dram: float
    fill: float
    drain: float
    launch: float
    reduce: float
    waves: int
    overlap: float
    throttle: float

    @property
    def total(self) -> float:
        """Microseconds of one launch."""
        stream = joined(self.overlap, self.loop, self.dram) * self.throttle
        return stream + self.fill + self.drain + self.launch + self.reduce

    def terms(self) -> dict[str, float]:
        """The parts by name."""
        return {field.name: float(getattr(self, field.name)) for field in fields(self)}


def predict(problem: GemmProblem, config: Config, machine: Machine = H200) -> Prediction:
    """The time of one launch, back to back with others.

    Parameters
    ----------
    problem : GemmProblem
        The GEMM; sizes that are dynamic count as :data:`~warploom.decide.work.UNKNOWN_EXTENT`.
    config : Config
        A legal config: see :meth:`Config.why_not`.
    machine : Machine
        The GPU.
    """
    work = work_of(problem, config, machine.gpu)
    step = Step.of(problem, config, machine, work)
    epilogue = _epilogue_cycles(problem, config, machine, work)
    meeting = _cluster_sum_cycles(problem, config, machine)
    between = epilogue + meeting + (0.0 if config.persistent else machine.next_cta * machine.clock)
    loop = _waves(config, work, work.steps * step.cycles, between)
    tensor = work.waves * work.steps * step.tensor
    dram = _dram_bytes(problem, config, machine, work) / machine.dram_bytes * machine.clock
    micro = machine.clock
    part = machine.part * config.split_k if config.split_k > 1 else 0.0
    reduce = meeting / micro if config.through_cluster else part
    return Prediction(
        tensor=tensor / micro,
        l2=work.waves * work.steps * step.l2 / micro,
        loop=loop / micro,
        dram=dram / micro,
        fill=machine.first_load + machine.fill * step.arrival / micro,
        drain=epilogue / micro,
        launch=machine.launch
        + machine.ctas * min(1.0, work.running / machine.sms)
        + machine.roles * config.specialise
        + machine.persistent * config.persistent,
        reduce=machine.stream_k if config.stream_k else reduce,
        waves=work.waves,
        overlap=machine.overlap_dram,
        throttle=_throttle(machine, work, tensor, loop, dram),
    )


def _waves(config: Config, work: Work, loop: float, between: float) -> float:
    """Cycles of the busiest CTA, from its first step to its last."""
    if config.stream_k:
        units = max(1.0, work.units / work.slots)
        return units * loop + (math.ceil(units) - 1) * between
    hidden = max(loop, (loop + between) / 2)  # behind the MMAs of the other warpgroup
    inner = hidden if config.ping_pong else loop + between / work.busy
    return (work.waves - 1) * inner + loop


def _epilogue_cycles(
    problem: GemmProblem, config: Config, machine: Machine, work: Work
) -> float:
    """Cycles from the last MMA of a tile until its results are stored."""
    rows, columns = config.accumulator
    reads = sum(bits_of(dtype) / 8 for dtype, shape in problem.inputs if shape == "tile")
    count = len(problem.outputs) + sum(shape == "tile" for _, shape in problem.inputs)
    elements = rows * columns / config.consumers / SM90A.warpgroup
    each = machine.element_cycles * (1 + machine.transpose * config.swap_ab)
    chunks = max(1.0, rows / WGMMA_M / config.consumers) * -(-columns // config.store_columns)
    tile = config.tile_m * config.tile_n
    store = sum(
        bits_of(dtype) / 8 * (1 + machine.partial_lines * (_chunk_lines(config, n, dtype) - 1))
        for dtype in problem.outputs
        for n in [work.sizes[1]]
    )
    moved = work.busy * tile * (store + reads) / machine.store_bytes
    return count * (elements * each + chunks * machine.chunk_cycles) + moved


def _chunk_lines(config: Config, n: int, dtype: str) -> float:
    """Lines of memory that a row of a chunk touches, for each that it could fill."""
    size = bits_of(dtype) / 8
    row = min(config.store_columns, config.tile_n) * size / LINE_BYTES
    return (row + 1) / row if n * size % LINE_BYTES else max(1.0, 1 / row)


def _cluster_sum_cycles(problem: GemmProblem, config: Config, machine: Machine) -> float:
    """Cycles in which the CTAs of a cluster add the parts of a tile."""
    if not config.through_cluster:
        return 0.0
    tile = config.tile_m * config.tile_n * problem.products * _SUM_BYTES
    return machine.dsmem * machine.clock + (config.split_k - 1) * tile / machine.dsmem_bytes


def _throttle(machine: Machine, work: Work, tensor: float, loop: float, dram: float) -> float:
    """The factor by which a kernel takes longer because power limits the clock."""
    busy = min(1.0, tensor / max(loop, 1.0)) * min(1.0, work.running / work.busy / machine.sms)
    time = joined(machine.overlap_dram, loop, dram) / machine.clock
    return 1 + machine.throttle * busy * (1 - math.exp(-time / machine.throttle_us))


def _dram_bytes(problem: GemmProblem, config: Config, machine: Machine, work: Work) -> float:
    """Bytes between memory and the L2 cache."""
    m, n, k, batch = work.sizes
    a_bytes, b_bytes = operand_bytes(problem)
    written = sum(
        bits_of(dtype) / 8 * (1 + machine.partial_lines_dram * bool(n * bits_of(dtype) / 8 % 128))
        for dtype in problem.outputs
    )
    read = sum(bits_of(dtype) / 8 for dtype, shape in problem.inputs if shape == "tile")
    fixed = m * n * batch * (written + read)
    tiles_m, tiles_n = work.tiles
    # Several clusters that read the same rows make both halves of the L2 cache read them.
    fixed += machine.halves * b_bytes * (tiles_m > config.cluster_m)
    fixed += machine.halves * a_bytes * (tiles_n > config.cluster_n)
    if a_bytes + b_bytes <= machine.l2_capacity:
        return fixed + a_bytes + b_bytes
    # Tiles that run at a time form a block; each block loads its operands.
    rows = min(tiles_m, config.group * config.cluster_m)
    columns = max(1.0, min(tiles_n, work.running / config.split_k / rows))
    blocks = max(1.0, tiles_m * tiles_n / (rows * columns)) * batch
    a_row, b_row = k * problem.a_bits / 8, k * problem.b_bits / 8 * problem.products
    each = rows * config.tile_m * a_row + columns * config.tile_n * b_row
    least = a_bytes + b_bytes
    return fixed + max(least, min(blocks * each, _MOST_READS * least))
