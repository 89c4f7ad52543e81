"""What a layout of images costs and saves: the rule of when convolutions are laid out anew.

A convolution that is no GEMM is TVM's: a thread computes one element of the result, one product
after the other, each with two loads. In NHWC it is a GEMM on tensor cores, whose time is small
beside that; but where images come in, or leave, in NCHW, they are transposed, which reads and
writes all of them in a kernel of its own. The rule compares the two times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from warploom.decide.machine import Machine
from warploom.decide.problem import ALIGN
from warploom.relax.convolution import Convolution
from warploom.relax.group_blocks import GroupBlocks, group_blocks
from warploom.target.dtypes import bits_of

#: Lanes of an SM whose loads go out in a cycle (CUDA C++ Programming Guide, "Throughput of Native
#: Arithmetic Instructions", compute capability 9.0), and loads of a multiply-add.
_LOAD_LANES, _LOADS = 32, 2
#: Cycles from one product of a thread to the next, an estimate: a load from L1 takes some 35 of
#: them, and compilers unroll loops of loads by four.
_CYCLES_A_TERM = 35 / 4
#: Times the elements of a gathered row that it may have with zeros behind all its runs.
_MOST_ZEROS = 1.25


def stock_time(convolution: Convolution, machine: Machine) -> float:
    """Microseconds of TVM's own kernel for a convolution, at the least."""
    sums = convolution.pixels * convolution.filters * convolution.terms
    throughput = machine.gpu.sms * _LOAD_LANES / _LOADS * machine.clock
    return max(sums / throughput, convolution.terms * _CYCLES_A_TERM / machine.clock)


def copy_time(size: float, machine: Machine) -> float:
    """Microseconds to write a tensor of so many bytes in another order, in its own kernel."""
    return machine.serial_launch + 2 * size / machine.dram_bytes


def window_time(convolution: Convolution, machine: Machine) -> float:
    """Microseconds of a depthwise convolution whose channels are last (:mod:`warploom.rows`).

    A product of 16 bits is a multiply-add and a conversion of a thread.
    """
    results = convolution.pixels * convolution.filters
    bytes_ = 2 * results * bits_of(convolution.dtype) / 8
    throughput = machine.gpu.sms * machine.fma_lanes / 2 * machine.clock
    work = max(bytes_ / machine.dram_bytes, results * convolution.terms / throughput)
    return machine.serial_launch + work


def block_time(convolution: Convolution, blocks: GroupBlocks, machine: Machine) -> float:
    """Microseconds of a convolution as a GEMM of blocks of its groups.

    Its MMAs at half of the peak, or its bytes.
    """
    size = bits_of(convolution.dtype) / 8
    products = convolution.pixels * math.prod(convolution.taps) * blocks.work
    peak = machine.gpu.sms * machine.tensor_bytes / size * machine.clock
    images = convolution.pixels * (
        convolution.channels * math.prod(convolution.strides) + convolution.filters
    )
    work = max(2 * products / peak, images * size / machine.dram_bytes)
    return machine.serial_launch + work


@dataclass(frozen=True)
class GatheredRow:
    """The row that a convolution reads of each of its pixels, once it is gathered.

    Attributes
    ----------
    runs : int
        Its runs, of elements that are neighbours in a line of the image; 1 if it is not cut.
    run, padded : int
        Elements of a run, and with the zeros behind them.
    """

    runs: int
    run: int
    padded: int

    @property
    def columns(self) -> int:
        """Elements of the row, in whole units of TMA."""
        return self.runs * self.padded


def gathered_row(convolution: Convolution) -> GatheredRow:
    """A row with zeros behind each run, if those are few, or else behind the last one.

    The runs of a filter of 7 x 7 have 7 elements: with a zero behind each, 16 bytes that a thread
    stores are one run, whose elements have one place in the filter but for the last dimension, and
    the same lines of the image. Without, each element has a place of its own to be found.
    """
    unit = 8 * ALIGN // bits_of(convolution.dtype)
    terms = convolution.terms
    whole = GatheredRow(1, terms, -(-terms // unit) * unit)
    channels_last = convolution.data == convolution.last
    run = convolution.taps[-1] * (convolution.channels if channels_last else 1)
    cut = GatheredRow(terms // run, run, -(-run // unit) * unit)
    return cut if terms % unit and cut.columns <= _MOST_ZEROS * whole.columns else whole


def saved_time(convolution: Convolution, machine: Machine) -> float:
    """Microseconds that a convolution takes less with channels last, transpositions left out.

    Nothing for groups of several channels that are no blocks: they are TVM's in both layouts.
    """
    saved = stock_time(convolution, machine)
    if convolution.is_depthwise:
        return saved - window_time(convolution, machine)
    if convolution.groups > 1:
        blocks = group_blocks(convolution)
        if blocks is None:
            return 0.0
        if set(convolution.taps) == {1}:
            # TVM 0.27 computes others in NCHW: 48 filters of 3 groups of 32 channels differ from
            # its own on a CPU by as much as they are (emulator, 2026-11-26).
            return math.inf
        return saved - block_time(convolution, blocks, machine)
    if convolution.is_gathered:
        row = gathered_row(convolution).columns * bits_of(convolution.dtype) / 8
        saved -= copy_time(convolution.pixels * row, machine)
    return saved
