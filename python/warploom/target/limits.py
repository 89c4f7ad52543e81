"""Limits of the supported architectures; the GPUs that have them are in ``gpus.py``.

Everything that plans a kernel (tiles, pipeline stages, warp roles, clusters, tensor memory) reads
its limits here. Sources: CUDA C++ Programming Guide, "Compute Capabilities" (limits of a block and
of a multiprocessor); PTX ISA, at the sections that the attributes name.
"""

from __future__ import annotations

from dataclasses import dataclass

from warploom.errors import IllegalCombination


@dataclass(frozen=True)
class RegisterRange:
    """The operands of ``setmaxnreg`` (PTX ISA, "setmaxnreg"): multiples of ``step`` in a range."""

    low: int
    high: int
    step: int

    def __post_init__(self) -> None:
        assert 0 < self.low < self.high and self.low % self.step == self.high % self.step == 0

    def check(self, registers: int) -> None:
        """Raise :class:`IllegalCombination` if ``setmaxnreg`` cannot set ``registers``."""
        if not self.low <= registers <= self.high or registers % self.step:
            raise IllegalCombination(
                f"setmaxnreg: {registers} registers are not possible; allowed are multiples of "
                f"{self.step} from {self.low} to {self.high}."
            )


@dataclass(frozen=True)
class TensorMemory:
    """Tensor memory of one multiprocessor (PTX ISA, "Tensor Memory Addressing").

    Attributes
    ----------
    lanes, columns : int
        Its two dimensions; a cell has 32 bits.
    allocation : int
        Fewest columns that ``tcgen05.alloc`` gives; it gives powers of two.
    """

    lanes: int = 128
    columns: int = 512
    allocation: int = 32

    def __post_init__(self) -> None:
        assert self.lanes == 4 * 32, "each warp of a warpgroup reaches 32 lanes"
        assert self.columns & (self.columns - 1) == 0 and self.columns % self.allocation == 0


@dataclass(frozen=True)
class Arch:
    """An architecture, as TVM's ``arch`` attribute and ``nvcc -arch`` name it.

    Attributes
    ----------
    name : str
        With the suffix ``a``: wgmma, tcgen05 and setmaxnreg exist only there.
    compute_capability : tuple of int
        Major and minor version that a device reports.
    shared_bytes_per_sm, shared_bytes_per_block : int
        Shared memory in bytes; a block may have that much if it opts in (TVM does so for dynamic
        shared memory), and the system keeps the difference for itself.
    shared_granularity : int
        The shared memory of a block is rounded up to a multiple of this.
    static_shared_bytes : int
        Shared memory of a block without opting in.
    registers_per_sm, registers_per_thread : int
        32-bit registers.
    threads_per_sm, threads_per_block, blocks_per_sm : int
        Most that can be resident.
    portable_cluster, largest_cluster : int
        Blocks of a thread block cluster that every device grants, and that
        ``cudaFuncAttributeNonPortableClusterSizeAllowed`` may give.
    named_barriers : int
        Barriers of ``bar.sync``; 0 is that of ``__syncthreads`` (PTX ISA, "barrier").
    mbarrier_arrivals, mbarrier_bytes : int
        Largest arrival count and tx-count (PTX ISA, "Contents of the mbarrier object").
    setmaxnreg : RegisterRange
        Registers that a warpgroup may take or release.
    tensor_memory : TensorMemory or None
        None where the accumulators are registers.
    warp, warpgroup : int
        Threads; a warpgroup is four warps whose first has a number divisible by four.
    sms_per_gpc : int
        Most multiprocessors of a GPC, in pairs (TPCs); a cluster lies within one (H100 and
        Blackwell architecture white papers).

    Examples
    --------
    >>> ARCHS["sm_90a"].largest_cluster
    16
    """

    name: str
    compute_capability: tuple[int, int]
    tensor_memory: TensorMemory | None
    shared_bytes_per_sm: int = 228 * 1024
    shared_bytes_per_block: int = 227 * 1024
    shared_granularity: int = 128
    static_shared_bytes: int = 48 * 1024
    registers_per_sm: int = 64 * 1024
    registers_per_thread: int = 255
    threads_per_sm: int = 2048
    threads_per_block: int = 1024
    blocks_per_sm: int = 32
    portable_cluster: int = 8
    largest_cluster: int = 16
    named_barriers: int = 16
    mbarrier_arrivals: int = (1 << 20) - 1
    mbarrier_bytes: int = (1 << 20) - 1
    setmaxnreg: RegisterRange = RegisterRange(24, 256, 8)
    warp: int = 32
    warpgroup: int = 128
    sms_per_gpc: int = 18

    def __post_init__(self) -> None:
        major, minor = self.compute_capability
        assert self.name == f"sm_{major}{minor}a"
        assert self.static_shared_bytes < self.shared_bytes_per_block < self.shared_bytes_per_sm
        assert self.threads_per_block <= self.threads_per_sm
        assert self.threads_per_sm * 32 == self.registers_per_sm, "full occupancy is 32 registers"
        assert self.portable_cluster < self.largest_cluster
        assert self.sms_per_gpc % 2 == 0 and self.sms_per_gpc >= self.largest_cluster
        assert self.warpgroup == 4 * self.warp and self.threads_per_block % self.warpgroup == 0

    def shared_bytes_of_each(self, blocks: int) -> int:
        """Shared memory in bytes of each of so many blocks of one multiprocessor.

        The system keeps as much for each as it does for a single one; the hardware gives out
        multiples of ``shared_granularity``.
        """
        kept = self.shared_bytes_per_sm - self.shared_bytes_per_block
        left = self.shared_bytes_per_sm // blocks - kept
        return max(0, left // self.shared_granularity * self.shared_granularity)

    def registers_of_each(self, blocks: int, threads: int) -> int:
        """Registers of each thread of so many blocks of one multiprocessor, a multiple of 8.

        256 stands for :attr:`registers_per_thread`: that is what such a thread occupies.

        Raises
        ------
        IllegalCombination
            If a multiprocessor does not hold so many blocks or threads.
        """
        if blocks > self.blocks_per_sm or blocks * threads > self.threads_per_sm:
            raise IllegalCombination(
                f"{self.name}: {blocks} blocks of {threads} threads are not possible on a "
                f"multiprocessor; it holds {self.blocks_per_sm} blocks and {self.threads_per_sm} "
                "threads."
            )
        return min(self.registers_per_thread + 1, self.registers_per_sm // (blocks * threads)) & -8

    def check_cluster(self, blocks: int, portable: bool = True) -> None:
        """Raise :class:`IllegalCombination` if no cluster of ``blocks`` blocks can be launched."""
        most = self.portable_cluster if portable else self.largest_cluster
        if not 1 <= blocks <= most or blocks & (blocks - 1):
            kind = "portable" if portable else "non-portable"
            raise IllegalCombination(
                f"{self.name}: a cluster of {blocks} blocks is not possible; allowed are powers "
                f"of two up to {most} ({kind})."
            )


#: Hopper: H100, H200, GH200, H20.
SM90A = Arch("sm_90a", (9, 0), tensor_memory=None)
#: Blackwell: B200.
SM100A = Arch("sm_100a", (10, 0), tensor_memory=TensorMemory(), sms_per_gpc=20)

#: The supported architectures by name, such as ``"sm_90a"``.
ARCHS: dict[str, Arch] = {arch.name: arch for arch in (SM90A, SM100A)}
