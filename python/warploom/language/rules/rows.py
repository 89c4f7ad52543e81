"""Rules of ``gather`` and ``scatter``: rows of global memory that have an index each."""

from __future__ import annotations

from collections.abc import Sequence

import tvm_ffi
from tvm.ir import TensorRegion
from tvm.tirx import IntImm

from warploom.errors import TileProgramError
from warploom.language.rules.operands import Operand, equal
from warploom.language.rules.scopes import shape_text
from warploom.tile_primitives import GATHER


def require_rows(name: str, dst: Operand, src: Operand, parameters: Sequence[int]) -> None:
    """A tile of two dimensions, a tensor of the same dtype and columns, an index a dimension.

    ``parameters`` are the numbers of parameters of the functions that give the indices.
    """
    tile, tensor = (dst, src) if name == GATHER else (src, dst)
    tile.require_tile(f"the tile of {name}")
    if tensor.scope != "global":
        raise TileProgramError(
            f"{name} takes rows of {tensor.name} in {tensor.scope} memory; they must be in global "
            "memory: read elements of a tile in a nest."
        )
    if dst.dtype != src.dtype:
        raise TileProgramError(
            f"{name} from {src.name} of dtype {src.dtype} to {dst.name} of dtype {dst.dtype}; it "
            "does not convert, cast does."
        )
    lead = tile.extent[:-2]
    if len(tile.extent) < 2 or any(e not in (1, None) for e in lead) or not equal(
        tile.extent[-1:], tensor.extent[-1:]
    ):  # fmt: skip
        raise TileProgramError(
            f"{name} of extents {shape_text(tensor.extent)} of {tensor.name} and "
            f"{shape_text(tile.extent)} of {tile.name}; the tile has two dimensions, after leading "
            "ones of extent 1, of which the second is the last of the tensor's region."
        )
    if len(parameters) != len(tensor.extent) - 1 or any(count != 1 for count in parameters):
        raise TileProgramError(
            f"{name} of {tensor.name} has {len(parameters)} functions with {list(parameters)} "
            f"parameters; there is one for each of its {len(tensor.extent) - 1} dimensions before "
            "the last, from the number of a row of the tile to an index."
        )


def require_whole(name: str, tensor: TensorRegion) -> None:
    """The region has whole dimensions but the last: indices count from their beginning."""
    sizes = tensor.source.ty.shape
    for number, (part, size) in enumerate(zip(tensor.region, sizes[:-1], strict=False)):
        starts = isinstance(part.min, IntImm) and int(part.min) == 0
        if not starts or not tvm_ffi.structural_equal(part.extent, size):
            raise TileProgramError(
                f"{name} takes a part of dimension {number} of {tensor.source.name}; write "
                f"0:{size} there, for its indices count from the beginning."
            )
