"""Waits of a step for elements that threads load from memory themselves: scales, masks."""

from __future__ import annotations

import tvm_ffi
from tvm.ir import TensorLoad
from tvm.tirx import Buffer

from warploom.decide.price.visits import Visit
from warploom.decide.price.work import Wait
from warploom.tile import ir
from warploom.tile import statement as views
from warploom.tile.scopes import TILE_SCOPES, is_global, is_shared


def waits_of(step: list[Visit], dequantising: list[Visit], steps: float) -> tuple[Wait, ...]:
    """The waits of a step.

    A nest loads; the first nest behind it that reads what it has stored waits, or it waits itself.
    Loads that are issued before such a wait arrive with it. An MMA runs meanwhile if it is issued
    before the use, and nothing has read its accumulator before the load.

    Parameters
    ----------
    step : list of Visit
        Statements of steps, in order.
    dequantising : list of Visit
        Nests that compute operands, whose time is known as a whole.
    steps : float
        Iterations of the loops of steps, all together.
    """
    found: dict[Wait, float] = {}
    reads = [_read(visit) for visit in step]
    waiting = -1
    for at, visit in enumerate(step):
        if at <= waiting or visit in dequantising or not any(map(is_global, reads[at])):
            continue
        waiting = _use(step, reads, at)
        wait = Wait(float(_mmas_between(step, reads, at, waiting)))
        found[wait] = found.get(wait, 0.0) + visit.times / steps
    return tuple(wait._replace(times=times) for wait, times in found.items())


def rounds_of(step: list[Visit]) -> int:
    """MMAs of a step whose results nests read in the step.

    0 if some run on when the step ends, as those do that add to what earlier steps have computed.
    """
    count = 0
    written: set[Buffer] = set()
    for visit in step:
        if isinstance(visit.statement, views.Mma):
            if visit.statement.accumulates is not False:
                return 0
            written.add(visit.statement.d)
            count += 1
        else:
            written -= _read(visit)
    return 0 if written else count


def _use(step: list[Visit], reads: list[set[Buffer]], at: int) -> int:
    """The statement that waits for what a nest loads."""
    if not all(map(is_global, reads[at])):
        return at  # it computes with other tiles, too
    made = {store.buffer for store in step[at].statement.stores}
    return next((i for i in range(at + 1, len(step)) if reads[i] & made), len(step))


def _mmas_between(step: list[Visit], reads: list[set[Buffer]], at: int, use: int) -> int:
    """MMAs that run between a load and a use."""
    return sum(
        isinstance(visit.statement, views.Mma)
        and not any(visit.statement.d in read for read in reads[number + 1 : at + 1])
        for number, visit in enumerate(step[:use])
    )


def _read(visit: Visit) -> set[Buffer]:
    """The tiles and matrices that a nest reads; nothing of other statements."""
    found: list[TensorLoad] = []
    if isinstance(visit.statement, views.Nest):
        tvm_ffi.structural_walk(visit.statement.raw, (TensorLoad, found.append))
    return {node.source for node in found if ir.is_buffer(node.source) and _is_wide(node.source)}


def _is_wide(buffer: Buffer) -> bool:
    """Whether a buffer is a tile or a matrix, and no scalar of a thread."""
    return buffer.scope() in TILE_SCOPES or is_shared(buffer) or is_global(buffer)
