"""``gather`` and ``scatter``: rows of global memory that have an index each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from tvm.ir import TensorRegion

from warploom.errors import TileProgramError
from warploom.language.interpreter.region import Region
from warploom.language.interpreter.running import Running
from warploom.language.rules.ranges import outside
from warploom.language.rules.rows import require_rows, require_whole
from warploom.language.values.dtypes import convert
from warploom.tile_primitives import GATHER, SCATTER


def _gather(evaluate: Running, args: list[Any]) -> None:
    dst, src = _operands(GATHER, evaluate, args, args[1])
    places = _places(evaluate, args[2:], dst, src)
    dst.write(src.storage.gather(places, np.asarray(True), False))


def _scatter(evaluate: Running, args: list[Any]) -> None:
    dst, src = _operands(SCATTER, evaluate, args, args[0])
    places = _places(evaluate, args[2:], src, dst)
    _require_apart(dst, [place[:, 0] for place in places[:-1]])
    values = convert(src.matrix(), dst.dtype)
    everywhere = np.broadcast_arrays(*places)
    dst.storage.scatter(everywhere, values, np.ones(values.shape, bool), False)


def _operands(
    name: str, evaluate: Running, args: list[Any], tensor: TensorRegion
) -> tuple[Region, Region]:
    dst, src = (Region.of(evaluate, argument) for argument in args[:2])
    require_rows(name, dst.operand, src.operand, [len(row.vars) for row in args[2:]])
    require_whole(name, tensor)
    return dst, src


def _places(evaluate: Running, rows: list[Any], tile: Region, tensor: Region) -> list[np.ndarray]:
    """The indices of all elements of a tile in the tensor, to be broadcast."""
    count, columns = tile.extent[-2:]
    numbers = np.arange(count, dtype=np.int32)
    indices = []
    for row in rows:
        (number,) = row.vars
        variables = {**evaluate.variables, number: numbers}
        inner = replace(evaluate, variables=variables, loops=(number,))
        index = np.broadcast_to(inner(row.pred), count).astype(np.int64)
        indices.append(index[:, None])
    return [*indices, tensor.start[-1] + np.arange(columns, dtype=np.int64)[None, :]]


def _require_apart(tensor: Region, indices: list[np.ndarray]) -> None:
    """Rows that are stored differ: a kernel stores them in no certain order."""
    shape = tensor.storage.array.shape[:-1]
    inside = np.flatnonzero(~outside(indices, shape))
    places = np.ravel_multi_index([index[inside] for index in indices], shape)
    _, first, counts = np.unique(places, return_index=True, return_counts=True)
    if (counts > 1).any():
        row = int(first[np.argmax(counts > 1)])
        other = int(np.flatnonzero(places == places[row])[1])
        at = ", ".join(str(int(index[inside[row]])) for index in indices)
        raise TileProgramError(
            f"scatter stores rows {inside[row]} and {inside[other]} of a tile to row {at} of "
            f"{tensor.storage.name}; they have no order, so give each a row of its own, or one "
            "outside of the tensor, which is not stored."
        )


#: Primitive -> what executes it.
ROWS: dict[str, Callable[[Running, list[Any]], None]] = {GATHER: _gather, SCATTER: _scatter}
