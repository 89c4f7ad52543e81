"""What the model of costs knows of a GPU: rates, latencies and sizes, each with its unit."""

from __future__ import annotations

from dataclasses import dataclass

from warploom.target.arch import GPUS, Gpu


@dataclass(frozen=True)
class Machine:
    """What the model knows of a GPU.

    Attributes
    ----------
    gpu : Gpu
        The product, with its multiprocessors.
    clock, idle_clock : float
        GHz with all tensor cores under load, where power limits it, and with few.
    tensor_bytes : int
        Products of one SM and cycle, times the bytes of an operand's element.
    l2_bytes, dram_bytes : float
        Bytes per microsecond that the L2 cache and the memory deliver, all SMs together.
    l2_capacity : float
        Bytes of operands that stay in the L2 cache between turns.
    launch : float
        Microseconds between the kernel before this one and the first instruction after its wait.
    first_load : float
        Microseconds until the first tile has arrived.
    latency_cycles : float
        Cycles from the request for a tile to its arrival.
    step_cycles : float
        Cycles of one step that the products of one warpgroup do not hide: waits, barriers.
    element_cycles : float
        Cycles that a thread takes to compute an element of an operand, such as a weight of 4 bits
        in natural order.
    tile_cycles : float
        Cycles between two tiles of a CTA, apart from the stores.
    store_bytes : float
        Bytes per cycle that an SM brings from registers to memory.
    reduce : float
        Microseconds that adding the parts of a split sum takes beside its traffic.
    exchange : float
        The same where a cluster exchanges them: not measured, but by what it spares.
    cluster : float
        Microseconds that clusters take to start and to end together.
    halves : float
        Part of an operand that counts once more where several clusters read it, through the other
        half of the L2 cache.
    coupling : float
        Part by which steps take longer where CTAs of a cluster wait for the slower of them.
    disturbance : float
        Order of the norm that joins the streams: infinite if they never met.
    ragged : float
        How much longer tiles take from the L2 cache whose rows do not start at its lines.
    narrow : float
        Part by which products take longer for each part of the widest instruction's columns that
        theirs lack: they read A from shared memory more often, which costs power.
    """

    gpu: Gpu = GPUS["h200"]
    clock: float = 1.64
    idle_clock: float = 1.8
    tensor_bytes: int = 4096
    l2_bytes: float = 20.7e6
    dram_bytes: float = 4.23e6
    l2_capacity: float = 127e6
    launch: float = 1.58
    first_load: float = 0.181
    latency_cycles: float = 2090.0
    step_cycles: float = 94.5
    element_cycles: float = 3.7
    tile_cycles: float = 1.94
    store_bytes: float = 45.3
    reduce: float = 4.06
    exchange: float = 1.5
    cluster: float = 0.17
    halves: float = 0.245
    coupling: float = 0.0235
    disturbance: float = 3.6
    ragged: float = 2.88
    narrow: float = 0.04

    @property
    def sms(self) -> int:
        """Multiprocessors."""
        return self.gpu.sms


#: The GPU that the constants were fitted on.
H200 = Machine()
