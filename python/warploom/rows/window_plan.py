"""How threads share windows: how many neighbours a thread has, and how many elements of each.

Neighbours share what they read of images, and the vectors of filters; a thread with fewer of them,
and with shorter vectors, leaves more threads to the SMs. The instructions of each choice are
counted, and the one is taken whose instructions and waits take an SM the least time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.tirx import Var

from warploom.decide.machines import machine_for
from warploom.decide.price.step import joined
from warploom.gemm.equations import simplify
from warploom.gemm.memory import static
from warploom.rows.plan import WARP, RowPlan
from warploom.rows.points import last_axis
from warploom.rows.problem import RowFunction, loads_of
from warploom.rows.vectors import moves, widest
from warploom.rows.windows import Window
from warploom.target.dtypes import bits_of
from warploom.tile import ir

#: The most neighbours of a thread, and the most sums: more would take too many registers.
_MOST_POINTS, _MOST_SUMS = 8, 64
#: The fewest bits of a vector: the threads of a warp then read a line of 128 bytes.
_FEWEST_BITS = 32
#: Elements of sums times steps up to which a window is written out.
_WRITTEN = 512
#: Threads of a CTA, and of one where that would leave SMs with less than so many CTAs.
_THREADS, _FEW_THREADS, _FULL_CTAS = 128, 64, 8
#: Schedulers of an SM, and its registers for each thread of a warp.
_SCHEDULERS, _REGISTERS = 4, 2048
# What follows was fitted to 80 kernels of 11 convolutions and poolings: 0.25 rms of the logarithm;
# the plans with the least cycles took 1.09 of the time of the fastest (H200, 2026-11-26).
#: Instructions beside each load, for its place and its condition; and beside each 16-bit element,
#: which is converted.
_BESIDE, _CONVERTED = 11, 0.3
#: Registers of a thread beside its sums, and those that loads in flight have.
_OWN, _IN_FLIGHT = 43, 50
#: Cycles until loads have arrived, and from one instruction of a warp to the next.
_LATENCY, _NEXT = 1100, 3
#: Bytes that memory moves in a cycle.
_MEMORY_BYTES = 1480


class Share(NamedTuple):
    """What a thread has.

    Attributes
    ----------
    points : int
        Neighbours.
    vector : int
        Elements of each.
    written : bool
        Whether all steps of a window are written out, and not only those along its last axis.
    """

    points: int
    vector: int
    written: bool


def window_plan(function: RowFunction) -> RowPlan:
    """The plan for a function with windows.

    Raises
    ------
    Decline
        If it reads elements that do not lie beside each other.
    """
    best = min(_shares(function, widest(function)), key=lambda share: share_cycles(function, share))
    columns = static(function.columns.extent)
    threads = _elements(function) // (best.points * best.vector)
    few = threads < _FULL_CTAS * machine_for().sms * _THREADS
    return RowPlan(
        best.vector, columns, points=best.points, written=best.written,
        map_threads=_FEW_THREADS if few else _THREADS,
    )  # fmt: skip


def window_cycles(function: RowFunction) -> float:
    """About how many cycles an SM takes for a function's windows; 0 where it has none."""
    if not function.windows:
        return 0.0
    return min(share_cycles(function, share) for share in _shares(function, widest(function)))


def share_cycles(function: RowFunction, share: Share) -> float:
    """About how many cycles an SM takes.

    Parameters
    ----------
    function : RowFunction
        Its axes of rows as they are without neighbours.
    share : Share
    """
    warps = _elements(function) / (share.points * share.vector) / WARP / machine_for().sms
    sums = share.points * share.vector
    issued = loaded = 0.0
    rounds = 1
    for window in function.windows:
        steps = math.prod(static(axis.extent) or 1 for axis in window.axes)
        outer = steps // (static(window.axes[-1].extent) or 1)
        rounds = rounds if share.written else max(rounds, outer)
        issued += steps * sums
        for load in loads_of((window.term,)):
            bits = bits_of(str(load.source.dtype))
            width = share.vector if moves(load, function.columns.var) else 1
            count = outer * _distinct(function, window, load, share.points)
            issued += count * (1 + _BESIDE + _CONVERTED * width * (bits < 32))
            loaded += count * width * bits / 32
    registers = _OWN + sums + min(loaded / rounds, _IN_FLIGHT)
    waves = max(1.0, warps * registers / _REGISTERS)
    chain = waves * (max(rounds, loaded / _IN_FLIGHT) * _LATENCY + _NEXT * issued)
    work = max(1.0, warps) * issued / _SCHEDULERS
    return joined(3.0, chain, work, _bytes(function) / _MEMORY_BYTES)


def _bytes(function: RowFunction) -> float:
    """Bytes of all that a function reads and writes."""
    buffers = {load.source for load in (*function.window_loads, *function.loads)}
    buffers |= {output.buffer for output in function.outputs}
    return sum(
        math.prod(static(extent) or 1 for extent in buffer.shape) * bits_of(str(buffer.dtype)) / 8
        for buffer in buffers
    )


def _elements(function: RowFunction) -> int:
    """Elements of a result; sizes that a call decides count as 1."""
    rows = math.prod(static(axis.extent) or 1 for axis in function.rows)
    return rows * (static(function.columns.extent) or 1)


def _shares(function: RowFunction, most: int) -> Iterator[Share]:
    """All that a thread may have, with vectors of at most so many elements."""
    steps = max(
        math.prod(static(axis.extent) or 1 for axis in window.axes) for window in function.windows
    )
    bits = max((bits_of(str(load.source.dtype)) for load in function.window_loads), default=32)
    least = min(most, max(1, _FEWEST_BITS // bits))
    for points in _points(function):
        vector = most
        while vector >= least:
            if points * vector <= max(_MOST_SUMS, most):
                yield Share(points, vector, points * vector * steps <= _WRITTEN)
            vector //= 2


def _points(function: RowFunction) -> Iterator[int]:
    """How many neighbours a thread may have: one where their windows do not overlap."""
    axis = last_axis(function)
    extent = None if axis is None else static(axis.extent)
    if axis is None or extent is None or not _overlap(function, axis.var):
        yield 1
        return
    for points in range(min(_MOST_POINTS, extent), 0, -1):
        if extent % points == 0:
            yield points


def _overlap(function: RowFunction, axis: Var) -> bool:
    inner = {own.var for window in function.windows for own in window.axes}
    return any(
        axis in ir.uses(index) and inner & set(ir.uses(index))
        for load in function.window_loads
        for index in load.indices
    )


def _distinct(function: RowFunction, window: Window, load: TensorLoad, points: int) -> int:
    """Elements that neighbours read along the last axis of a window, each once."""
    axis, inner = last_axis(function), window.axes[-1]
    steps = static(inner.extent) or 1
    if axis is None:
        return steps
    moved = [(_slope(index, axis.var), _slope(index, inner.var)) for index in load.indices]
    if any(None in pair for pair in moved):
        return points * steps
    return len({
        tuple(point * p + step * s for p, s in moved)
        for point in range(points) for step in range(steps)
    })  # fmt: skip


def _slope(index: Any, var: Var) -> int | None:
    """By how much an index grows from 0 to 1 of a variable; None if that is no number."""
    at = [ir.substitute(index, {var: tirx.const(value, "int32")}) for value in (0, 1)]
    grown = simplify(at[1] - at[0])
    return int(grown) if isinstance(grown, tirx.IntImm) else None
