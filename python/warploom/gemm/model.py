"""The analytic model: how long a product takes with certain knobs, and where the time goes.

A product is bound by the slowest of three streams, each counted for the whole GPU: tensor cores,
which work in turns of tiles (the last turn may leave SMs idle); operand tiles from the L2 cache;
and memory traffic. Streams disturb each other, the more the closer their times are. To that comes
what no turn hides: launch, the first loads, the last stores.

The constants of a :class:`Machine` are fitted to measured times; everything else is counting.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from warploom.gemm.knobs import GemmKnobs
from warploom.gemm.machine import H200, Machine
from warploom.gemm.problem import GemmProblem, kind_of
from warploom.target import SM90A, WGMMA_M
from warploom.target.dtypes import bits_of

#: What a size that is known only at launch counts as.
UNKNOWN_EXTENT = 4096
#: Columns of the widest instructions.
_WIDEST = 256
#: Bytes of a line of the L2 cache.
_LINE_BYTES = 128


@dataclass(frozen=True)
class Prediction:
    """Microseconds, by where they go; :attr:`total` is the time of one launch.

    Attributes
    ----------
    tensor, l2, dram : float
        The three streams, of which the slowest counts.
    fill, drain : float
        First loads and last stores.
    launch : float
        Before and after the kernel's own work.
    reduce : float
        Adding the parts of a split sum.
    turns : int
        Tiles, or parts of tiles, that the busiest CTA computes.
    disturbance : float
        As in :class:`Machine`.
    """

    tensor: float
    l2: float
    dram: float
    fill: float
    drain: float
    launch: float
    reduce: float
    turns: int
    disturbance: float

    @property
    def total(self) -> float:
        """All of it."""
        stream = _joined(self.disturbance, self.tensor, self.l2, self.dram)
        return stream + self.fill + self.drain + self.launch + self.reduce

    def terms(self) -> dict[str, float]:
        """The parts by name."""
        return {field.name: float(getattr(self, field.name)) for field in fields(self)}


def predict(problem: GemmProblem, knobs: GemmKnobs, machine: Machine = H200) -> Prediction:
    """The time of one launch.

    Parameters
    ----------
    problem : GemmProblem
        What is computed; sizes that are not known count as :data:`UNKNOWN_EXTENT`.
    knobs : GemmKnobs
        Legal ones: see :meth:`GemmKnobs.why_not`.
    machine : Machine
        The GPU.
    """
    work = _work_of(problem, knobs, machine)
    step = _cycles_of_a_step(problem, knobs, machine, work)
    between = drain = _cycles_between_tiles(problem, knobs, machine)
    if knobs.ping_pong:  # results hide behind the products of the next tile
        between = max(0.0, (between - work.steps * step) / 2)
    in_turn = (
        work.turns * work.steps
        if not knobs.stream_k
        else max(work.steps, math.ceil(work.units * work.steps / work.slots))
    )
    cycles = in_turn * step + (work.turns - 1) * between / work.busy
    load = min(1.0, work.units / work.slots)
    clock = machine.idle_clock - load * (machine.idle_clock - machine.clock)
    ctas = min(work.slots, work.units)
    return Prediction(
        tensor=cycles / clock / 1e3,
        l2=_l2_time(problem, knobs, machine, work),
        dram=_dram_bytes(problem, knobs, machine, ctas) / machine.dram_bytes,
        fill=machine.first_load,
        drain=drain / clock / 1e3,
        launch=machine.launch + (machine.cluster if work.cluster > 1 else 0.0),
        reduce=_split_time(problem, knobs, machine, work),
        turns=work.turns,
        disturbance=machine.disturbance,
    )


@dataclass(frozen=True)
class _Work:
    """How a GPU divides the work of a launch.

    Attributes
    ----------
    cluster : int
        CTAs of a cluster.
    slots : int
        CTAs that run at a time.
    steps : int
        Steps of a tile's sum, or of a part of it.
    units : int
        Tiles, or parts of them.
    turns : int
        Units that a CTA computes one after the other, at most.
    busy : int
        CTAs of an SM that have work.
    """

    cluster: int
    slots: int
    steps: int
    units: int
    turns: int
    busy: int


def _work_of(problem: GemmProblem, knobs: GemmKnobs, machine: Machine) -> _Work:
    k = sizes(problem)[2] or UNKNOWN_EXTENT
    cluster = knobs.cluster_m * knobs.cluster_n * (knobs.split_k if knobs.in_cluster else 1)
    slots = min(
        machine.gpu.resident(cluster, knobs.ctas_per_sm),
        knobs.sms * knobs.ctas_per_sm // cluster * cluster,
    )
    steps = problem.taps * math.ceil(k / problem.taps / knobs.tile_k)
    units = tiles_of(problem, knobs) * knobs.split_k
    return _Work(
        cluster, slots, math.ceil(steps / knobs.split_k), units, math.ceil(units / slots),
        min(knobs.ctas_per_sm, math.ceil(units / machine.sms)),
    )  # fmt: skip


def _cycles_of_a_step(
    problem: GemmProblem, knobs: GemmKnobs, machine: Machine, work: _Work
) -> float:
    """Cycles of an SM for one step of the sum, of each of its CTAs."""
    multiply = problem.products * _step_cycles(problem, knobs, machine)
    if not any(problem.computed):  # such an operand comes from registers
        multiply *= 1 + machine.narrow * (1 - knobs.accumulator[1] / _WIDEST)
    compute = _compute_cycles(problem, knobs, machine)
    # CTAs of one SM take turns on its tensor cores, and hide each other's waits.
    own = compute + multiply + machine.step_cycles / knobs.warpgroups
    # Warps that compute an operand share the schedulers of the SM.
    issue = knobs.consumers * (compute + machine.step_cycles) if compute else 0.0
    alone = _joined(machine.disturbance, work.busy * issue, own / knobs.turns)
    step = max(work.busy * multiply, alone)
    # A stage is multiplied, given back one step later, and loaded anew.
    step = max(step, (max(own, step) + step + machine.latency_cycles) / knobs.stages)
    if work.cluster > 1:
        step *= 1 + machine.coupling
    if not knobs.specialise:  # nobody loads ahead while warpgroups wait
        step += machine.step_cycles
    return step


def _cycles_between_tiles(problem: GemmProblem, knobs: GemmKnobs, machine: Machine) -> float:
    """Cycles of the epilogue of a tile, and of the first loads of the next."""
    out_bytes = sum(bits_of(dtype) / 8 for dtype in problem.outputs)
    read = sum(bits_of(dtype) / 8 for dtype, shape in problem.inputs if shape == "tile")
    tile_bytes = knobs.tile_m * knobs.tile_n * (out_bytes + read)
    between = machine.tile_cycles + tile_bytes / machine.store_bytes
    if not knobs.persistent:  # the first tiles of the next CTA are not loaded ahead
        between += machine.latency_cycles
    return between


def _l2_time(problem: GemmProblem, knobs: GemmKnobs, machine: Machine, work: _Work) -> float:
    """The time in which L2 delivers what all CTAs load."""
    m, n, k, _ = (extent or UNKNOWN_EXTENT for extent in sizes(problem))
    of_a, of_b = knobs.multicast(problem)
    a_part = knobs.tile_m / of_a
    b_part = problem.products * knobs.tile_n / of_b
    depth = work.units * work.steps * knobs.tile_k
    loaded = depth * (a_part * problem.a_bits + b_part * problem.b_bits) / 8
    # SMs that have nothing to do load nothing: the last turn counts as a whole one.
    whole = work.turns * work.slots / work.units if work.units > work.slots else 1.0
    l2 = loaded * whole / machine.l2_bytes
    l2 *= max(1.0, machine.sms / min(work.units, machine.sms) * 0.35)
    run, size = k / problem.taps, bits_of(problem.a_dtype) / 8
    pitches = (run if problem.layout[0] == "N" else m, run if problem.layout[1] == "T" else n)
    if any(pitch * size % _LINE_BYTES for pitch in pitches):
        l2 *= machine.ragged
    return l2


def _split_time(problem: GemmProblem, knobs: GemmKnobs, machine: Machine, work: _Work) -> float:
    """The time that CTAs need to add the sums of a tile that they share."""
    if knobs.split_k <= 1 and not knobs.stream_k:
        return 0.0
    m, n, _, batch = (extent or UNKNOWN_EXTENT for extent in sizes(problem))
    shared = m * n * batch if not knobs.stream_k else work.slots * knobs.tile_m * knobs.tile_n
    parts = max(1, knobs.split_k - 1) * shared * 4 * 2 * problem.products
    fixed = machine.exchange if knobs.in_cluster else machine.reduce
    return fixed + parts / machine.l2_bytes


def _joined(order: float, *times: float) -> float:
    """The time of things that run at once and disturb each other."""
    return sum(time**order for time in times) ** (1 / order)


def sizes(problem: GemmProblem) -> tuple[int | None, ...]:
    """M, N, K and the batch of a problem."""
    return problem.m, problem.n, problem.k, problem.batch


def tiles_of(problem: GemmProblem, knobs: GemmKnobs) -> int:
    """How many tiles there are, those included that fill the last cluster of a row or column."""
    m, n, _, batch = (extent or UNKNOWN_EXTENT for extent in sizes(problem))
    tiles_m = _rounded(math.ceil(m / knobs.tile_m), knobs.cluster_m)
    tiles_n = _rounded(math.ceil(n / knobs.tile_n), knobs.cluster_n)
    return tiles_m * tiles_n * batch


def operand_bytes(problem: GemmProblem) -> tuple[float, float]:
    """Bytes of A and of B in memory; taps of a convolution read the same image."""
    m, n, k, batch = (extent or UNKNOWN_EXTENT for extent in sizes(problem))
    a = m * k / problem.taps * problem.a_bits / 8
    return a * batch, n * problem.products * k * problem.b_bits / 8 * batch


def _rounded(count: int, step: int) -> int:
    return -(-count // step) * step


def _step_cycles(problem: GemmProblem, knobs: GemmKnobs, machine: Machine) -> float:
    """Cycles that the tensor cores of an SM need for one step of one product."""
    kind = kind_of(problem)
    size = bits_of(problem.a_dtype) / 8
    rows, columns = knobs.accumulator
    rate = machine.tensor_bytes / size  # products a cycle
    total = 0.0
    for width in kind.split_n(columns):
        cycles = WGMMA_M * width * kind.k / rate
        # Both operands come from shared memory, 128 bytes a cycle: A once for each instruction.
        operands = (WGMMA_M + width) * kind.k * size / 128
        total += max(cycles, operands)
    return total * rows / WGMMA_M * knobs.tile_k / kind.k


def _compute_cycles(problem: GemmProblem, knobs: GemmKnobs, machine: Machine) -> float:
    """Cycles in which a warpgroup issues what computes its part of operands for one step."""
    if not any(problem.computed):
        return 0.0
    rows, _ = knobs.accumulator
    # B is one of each product.
    rows *= problem.products if problem.computed[1] else 1
    elements = rows / knobs.consumers * knobs.tile_k / SM90A.warpgroup
    return elements * machine.element_cycles


def _dram_bytes(problem: GemmProblem, knobs: GemmKnobs, machine: Machine, running: int) -> float:
    """Bytes between memory and the L2 cache."""
    m, n, k, batch = (extent or UNKNOWN_EXTENT for extent in sizes(problem))
    a_size, b_size = problem.a_bits / 8, problem.b_bits / 8
    a_bytes, b_bytes = operand_bytes(problem)
    out = sum(bits_of(dtype) / 8 for dtype in problem.outputs)
    read = sum(bits_of(dtype) / 8 for dtype, shape in problem.inputs if shape == "tile")
    fixed = m * n * batch * (out + read)
    # Tiles that run at a time form a block of `rows` x `columns` tiles; each loads its operands.
    tiles_m, tiles_n = math.ceil(m / knobs.tile_m), math.ceil(n / knobs.tile_n)
    rows = min(tiles_m, knobs.group * knobs.cluster_m)
    columns = max(1.0, min(tiles_n, running / rows))
    blocks = max(1.0, tiles_m * tiles_n / (rows * columns)) * batch
    each = k * (rows * knobs.tile_m * a_size + columns * knobs.tile_n * problem.products * b_size)
    # What CTAs of several clusters read at a time passes between the halves of the L2 cache.
    again = b_bytes * (tiles_m > knobs.cluster_m) + a_bytes * (tiles_n > knobs.cluster_n)
    fixed += machine.halves * again
    if a_bytes + b_bytes <= machine.l2_capacity:
        return fixed + a_bytes + b_bytes
    return fixed + max(a_bytes + b_bytes, min(blocks * each, 4 * (a_bytes + b_bytes)))
