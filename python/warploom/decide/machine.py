"""What the model of costs knows of a GPU: rates, latencies and sizes, each with its unit."""

from __future__ import annotations

from dataclasses import dataclass

from warploom.target.arch import GPUS, Gpu


@dataclass(frozen=True)
class Machine:
    """The constants of one GPU.

    Rates of an SM are per cycle of :attr:`clock`, rates of the whole GPU per cycle or microsecond.

    Attributes
    ----------
    gpu : Gpu
        The GPU, with its SMs and the clusters that fit.
    clock : float
        Cycles of an SM per microsecond, in a kernel that power does not throttle.
    tensor_bytes : int
        Multiply-adds of one SM and cycle, times the bytes of an operand's element.
    shared_bytes : int
        Bytes of shared memory that the tensor cores of an SM read per cycle.
    receive_bytes : float
        Bytes per cycle that an SM receives from the L2 cache.
    l2_bytes, distinct_bytes : float
        Bytes per cycle that the L2 cache delivers to all SMs: if eight SMs ask for a line at the
        same time, and if each line has one reader (measured on an H100, 10,740 and 3,970, which has
        5 of 6 parts of the cache).
    joining : float
        Part of the readers of a line whose requests join where they can: found on 680 GEMMs of
        H100s and H200s, and on clusters of all shapes of three of them (2026-11-26).
    joining_pairs : float
        The same of clusters of two CTAs, where all tiles are computed at a time: nothing brings
        their readers together again. Why it is the pairs is not known.
    crossing : float
        Times as long as whole lines that rows across lines of the L2 cache take, of as many bytes
        (``tma-bandwidth``, H200: 4,612 bytes a cycle to 3,795). K of 7200 took 1.02 to 1.07 times
        as long as of 7168 (H100, 2026-11-26).
    l2_capacity : float
        Bytes of operands that stay in the L2 cache from one wave to the next.
    dram_bytes : float
        Bytes per microsecond between memory and the L2 cache.
    halves : float
        Part of an operand that memory delivers once more where several clusters read it: the halves
        of the L2 cache keep a copy each.
    launch : float
        Microseconds between two empty kernels of a stream.
    serial_launch : float
        The same of kernels without programmatic dependent launch, of which each is launched when
        the one before has ended.
    ctas : float
        Microseconds more until all SMs have their CTAs.
    roles : float
        Microseconds more until warps with roles of their own have their registers.
    persistent : float
        Microseconds more for the loop over tiles.
    first_load : float
        Microseconds from the first request to the first step.
    fill : float
        Times that the first stage of all CTAs takes from the L2 cache, cold, instead of once.
    latency : float
        Microseconds from the request for a stage to its arrival, in the loop.
    load_cycles : float
        Cycles from a thread's load of an element in memory to its value (H100, 2026-11-26).
    copy_cycles : float
        Cycles for a box of a stage, of a unit that a pair of SMs shares: where both have a CTA, the
        boxes of both take 2.06 times as long (470 GEMMs of random shapes on H100s and H200s).
    cut_cycles : float
        Cycles of that unit for a row that its matrix ends within a sector of 32 bytes, such as
        rows of 40 or 328 elements of 16 bits: a tile of 192 rows of 40 elements takes 1,300 cycles
        longer than of 64 (H200, 2026-11-26). Rows of both SMs took 1.99 times as long as of one.
    same_line : float
        Cycles of a step for each CTA that reads the same line of the L2 cache at the same time: one
        is served after the other (4 to 8 where 30 to 130 CTAs read one to twelve rows, H200).
    outside_rows : float
        Rows of a line beyond the end of their matrix that TMA fills with zeros in a cycle, for all
        SMs together: 7.1 to 11.5 in seven configs in which nothing else took as long, 50 to 124
        CTAs with tiles of 64 rows of matrices of 4 to 20 (H100 and H200, 2026-11-26).
    partial_loads : float
        Part by which rows of a load take longer at an SM for each line of 128 bytes that they touch
        beyond the least: they have one of its four sectors.
    wait_cycles : float
        Cycles of one step in which a warpgroup waits for a stage.
    issue_cycles : float
        Cycles to issue one MMA.
    order_cycles : float
        Cycles until a warpgroup knows that the one before has issued its MMAs: a named barrier of
        two warpgroups.
    narrow : float
        Part by which MMAs take longer for each part of the widest instruction's columns that they
        lack.
    self_load_cycles : float
        Cycles of one step where no warps of their own load.
    dequantise_cycles, dequantise_issue : float
        Cycles in which a warpgroup that is alone computes an element of each thread, such as a
        weight of 4 bits, and the part of them in which it keeps the SM's schedulers busy: 2.3 to
        2.4 instructions in machine code (H200, 2026-11-26: kernels with 4 bits, which one to six
        warpgroups compute).
    dequantise_latency : float
        Cycles of a step in which such a warpgroup waits: for loads from shared memory and for the
        end of its MMAs (the same kernels).
    skip_instructions, skip_cycles : float
        Cycles in which a warpgroup goes through an iteration of a loop whose step another one
        computes: of a scheduler, and of the warpgroup beside (the same kernels).
    dequantise_first : float
        Microseconds until the first step is dequantised, which no MMA hides (H100, 2026-11-26: 200
        GEMMs with weights of 4 bits).
    element_cycles, transpose : float
        Cycles of an epilogue for each element of a thread, and part of it that comes on top for a
        transposed tile.
    chunk_cycles : float
        Cycles of an epilogue for each chunk that a warpgroup stores.
    store_bytes, l2_store_bytes : float
        Bytes per cycle that TMA stores of an SM, and that the L2 cache takes from all SMs beside
        what it delivers: 31.9 of an SM that stores alone, 2,131 if all store and nothing else
        (``store-bandwidth``, H100). Found on kernels of several waves.
    sum_bytes : float
        Bytes per cycle of partial sums that an SM writes to a workspace (``workspace``: 64 KB take
        1.6 us more than 8 KB, and reading takes 0.4 of it).
    partial_lines, partial_lines_dram : float
        Part by which stores take longer for each line of 128 bytes beyond the least, in the L2
        cache, and by which a line takes longer in memory that two clusters share.
    kept_inputs : float
        Part of the L2 cache with inputs that are still there from earlier launches, where loads
        drop their lines first: found with inputs that rotate through more than the cache, as
        ``warploom bench`` measures.
    dram_rows : float
        Part by which memory takes longer for a load whose rows are of one line; rows of several
        lines lose less (13 GEMMs of up to 128 rows, H200).
    pair_bytes : float
        Bytes per cycle that a pair of neighbouring SMs loads from memory while all other pairs load
        too. GEMMs of up to 128 rows with 82 to 108 CTAs took as long as two CTAs' bytes at this
        rate: 1.1 to 1.35 times what all bytes take (12 GEMMs, H200 and H100).
    next_cta : float
        Microseconds between two CTAs of a grid that is not persistent, on one SM.
    part : float
        Microseconds of a sum that CTAs share through a workspace, beside its bytes: flags are set
        and seen. It was 3.0 of 51 configs on an H100, 2026-11-26, with a kernel before that cleared
        flags; the launch of such a kernel is not counted any more, here and in ``stream_k``.
    part_each : float
        Microseconds more of split-K for each CTA whose sum is added: its owner waits for its flag,
        and asks for its sum when the one before has come.
    dsmem, dsmem_each, dsmem_bytes : float
        Microseconds of a sum in a cluster, more for each CTA that gives a part, and bytes of it per
        cycle.
    stream_k, stream_k_steps : float
        Microseconds of the sums of stream-K, and part by which its steps take longer.
    stream_k_bytes : float
        Bytes per cycle of other CTAs' sums that a warpgroup adds in stream-K, where operands are
        dequantised (H100 and H200, 2026-11-26: 121 kernels).
    throttle, throttle_us : float
        Part by which a kernel takes longer whose tensor cores are always busy, after many times the
        second number of microseconds.
    fma_lanes, alu_lanes, mufu_lanes, convert_lanes : float
        Lanes of an SM that execute an instruction per cycle: multiply-adds of float32; comparisons;
        exponentials, reciprocals and their like; conversions between dtypes (CUDA C++ Programming
        Guide, "Throughput of Native Arithmetic Instructions", compute capability 9.0).
    step_instructions, mma_instructions : float
        Instructions of a warp in a step, and for each of its MMAs, beside nests: descriptors,
        addresses, barriers. They count where a warpgroup waits for its MMAs in the step. Machine
        code of ptxas 13.0 has 81 to 112 in a step of one MMA of 128 bytes along K, and 118 to 155
        of two (twelve block-scaled kernels).
    reduction_cycles : float
        Cycles in which the threads of a warpgroup exchange what they have reduced of a row; fitted
        to attention of 4096 to 16384 tokens and heads of 64 and 128 elements.
    overlap, overlap_dram : float
        Orders of the norms that join what runs at once in a step, and with memory: infinite if the
        longest hid all others.
    """

    gpu: Gpu = GPUS["h200"]
    clock: float = 1980.0
    tensor_bytes: int = 4096
    shared_bytes: int = 128
    receive_bytes: float = 78.8
    l2_bytes: float = 12890.0
    distinct_bytes: float = 4760.0
    joining: float = 0.794
    joining_pairs: float = 0.288
    crossing: float = 1.2
    l2_capacity: float = 50e6
    dram_bytes: float = 4.72e6
    halves: float = 0.134
    launch: float = 0.7
    serial_launch: float = 1.07
    ctas: float = 0.122
    roles: float = 0.236
    persistent: float = 0.078
    first_load: float = 0.426
    fill: float = 2.25
    latency: float = 0.845
    load_cycles: float = 701.0
    copy_cycles: float = 33.5
    cut_cycles: float = 7.0
    same_line: float = 4.31
    outside_rows: float = 6.7
    partial_loads: float = 0.468
    wait_cycles: float = 1.76
    issue_cycles: float = 0.229
    order_cycles: float = 36.0
    narrow: float = 0.017
    self_load_cycles: float = 196.0
    dequantise_cycles: float = 4.5
    dequantise_issue: float = 0.467
    dequantise_latency: float = 130.0
    skip_instructions: float = 20.0
    skip_cycles: float = 60.0
    dequantise_first: float = 0.4
    element_cycles: float = 1.02
    transpose: float = 1.98
    chunk_cycles: float = 80.6
    store_bytes: float = 31.9
    l2_store_bytes: float = 3500.0
    sum_bytes: float = 22.0
    partial_lines: float = 0.615
    partial_lines_dram: float = 0.418
    kept_inputs: float = 0.0608
    dram_rows: float = 0.125
    pair_bytes: float = 30.0
    next_cta: float = 1.9
    part: float = 1.21
    part_each: float = 0.102
    dsmem: float = 0.748
    dsmem_each: float = 0.242
    dsmem_bytes: float = 18.3
    stream_k: float = 0.619
    stream_k_steps: float = 0.0373
    stream_k_bytes: float = 22.0
    fma_lanes: float = 128.0
    alu_lanes: float = 64.0
    mufu_lanes: float = 16.0
    convert_lanes: float = 64.0
    step_instructions: float = 45.0
    mma_instructions: float = 40.0
    reduction_cycles: float = 60.0
    throttle: float = 0.104
    throttle_us: float = 5740.0
    overlap: float = 3.64
    overlap_dram: float = 3.5

    @property
    def sms(self) -> int:
        """SMs of the GPU."""
        return self.gpu.sms


#: The GPU that the constants were found on.
H200 = Machine()
