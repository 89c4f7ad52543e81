"""What the epilogue of a tile computes beside the conversion of its results: bias, GELU, SwiGLU."""

from __future__ import annotations

import math
from collections.abc import Iterable

import tvm_ffi
from tvm.ir import TensorLoad

from warploom.decide.price import instructions
from warploom.decide.price.matrices import Part
from warploom.decide.price.visits import Visit, Visits
from warploom.decide.price.work import Nest
from warploom.tile import ir
from warploom.tile import statement as views
from warploom.tile.scopes import is_global

#: Instructions for each element over whose row or column a tile may reach: its thread loads the
#: vector's element by itself, selects and converts it (machine code of ptxas 13.0: 2.7 to 3).
_GUARDED = 2.7


def finish(counts: Iterable[float], elements: float, vectors: Iterable[tuple[int, int]]) -> Nest:
    """The instructions of an epilogue.

    Parameters
    ----------
    counts : iterable of float
        Of an element: multiply and add, integers, functions, conversions.
    elements : float
        Of a tile.
    vectors : iterable of (int, int)
        Of each vector that the epilogue reads, its extent and that of a tile.
    """
    fma, alu, mufu, convert = counts
    alu += _GUARDED * sum(beyond(extent, tile) for extent, tile in vectors)
    return Nest(*(elements * count for count in (fma, alu, mufu, convert)))


def beyond(extent: int, tile: int) -> float:
    """Part of the elements of a tile that may lie beyond an extent.

    Examples
    --------
    >>> beyond(2480, 128), beyond(2560, 128)
    (0.625, 0.0)
    """
    return 1 - extent % tile / tile if extent % tile else 0.0


def finish_of(visits: Visits, late: Iterable[Visit]) -> Nest:
    """The instructions of the nests behind the last step of a program.

    Parameters
    ----------
    visits : Visits
        All of the program.
    late : iterable of Visit
        Those behind its last step.
    """
    found = []
    for visit in late:
        if isinstance(visit.statement, views.Nest):
            found.append((_of_nest(visits, visit.statement), visit.times))
    return instructions.together(found)


def _of_nest(visits: Visits, nest: views.Nest) -> Nest:
    loops = {loop.loop_var: visits.values.number(loop.extent) or 1 for loop in nest.loops}
    if len(loops) != 2:
        return Nest()
    row, column = loops
    counts = instructions.of_element(
        [store.value for store in nest.stores], (), (row,), column, nest.parts
    )[:4]
    vectors: dict[tuple[str, bool], tuple[int, int]] = {}
    nodes: list[TensorLoad] = []
    tvm_ffi.structural_walk(nest.raw, (TensorLoad, nodes.append))
    for node in nodes:
        if not ir.is_buffer(node.source) or not is_global(node.source):
            continue
        part = Part.of_elements(node.source, node.indices, loops, visits)
        along = [
            (dimension, var) for dimension, index in enumerate(node.indices)
            for var in loops if not isinstance(index, int) and var in ir.uses(index)
        ]  # fmt: skip
        if len(along) == 1:
            (dimension, var), = along
            vectors[str(node.source.dtype), var is row] = (part.shape[dimension], loops[var])
    if not any(counts):
        return Nest()
    return finish(counts, float(math.prod(loops.values())), vectors.values())
