"""Rules of the operands of tile primitives: scopes, dtypes and extents.

The same rules serve the check before anything runs, which does not know every extent, and the
interpreter, which does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from warploom.errors import TileProgramError
from warploom.language.rules.scopes import ACCUMULATORS, SHARED, TILES, shape_text
from warploom.layout.metadata_words import WORD, WORD_BYTES, WORD_ROWS
from warploom.sparse import SPARSITY
from warploom.target import TMA

#: Dtypes of A and B -> dtypes of the accumulator, as tensor cores have them.
_FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
_INT8 = ("int8", "uint8")
GEMM_DTYPES: dict[tuple[str, str], tuple[str, ...]] = {
    ("float16", "float16"): ("float32", "float16"),
    ("bfloat16", "bfloat16"): ("float32",),
    ("float32", "float32"): ("float32",),
    **{(a, b): ("float32", "float16") for a in _FLOAT8 for b in _FLOAT8},
    **{(a, b): ("int32",) for a in _INT8 for b in _INT8},
}
#: The same in words.
_PAIRS = (
    "float16 x float16, bfloat16 x bfloat16, float32 x float32, pairs of float8_e4m3fn and "
    "float8_e5m2, pairs of int8 and uint8"
)
#: Extents of a region; None for those that are not known.
Extents = tuple[int | None, ...]


@dataclass(frozen=True)
class Operand:
    """A region of a buffer, as far as rules ask.

    Attributes
    ----------
    name, scope, dtype : str
        Those of the buffer.
    extent : tuple of (int or None)
        Extents of the region.
    """

    name: str
    scope: str
    dtype: str
    extent: Extents

    def require_tile(self, noun: str) -> None:
        """The operand ``what`` must be a tile."""
        if self.scope not in TILES:
            raise TileProgramError(
                f"{noun}, {self.name}, is in {self.scope} memory; it must be a shared, fragment or "
                "accumulator tile."
            )

    def matrix(self, noun: str) -> Extents:
        """Its two extents, without leading ones of 1."""
        self.require_tile(noun)
        lead = len(self.extent) - 2
        if lead < 0 or any(e not in (1, None) for e in self.extent[:lead]):
            raise TileProgramError(
                f"{noun}, {self.name}, has a region of extents {shape_text(self.extent)}; it must "
                "have two dimensions, after leading ones of extent 1."
            )
        return self.extent[lead:]


def require_copy(dst: Operand, src: Operand) -> None:
    """A copy has one dtype, and extents that are equal apart from those of 1."""
    if dst.dtype != src.dtype:
        raise TileProgramError(
            f"copy from {src.name} of dtype {src.dtype} to {dst.name} of dtype {dst.dtype}; a copy "
            "does not convert, cast does."
        )
    if not _same_shape(squeezed(dst.extent), squeezed(src.extent)):
        raise TileProgramError(
            f"copy of extents {shape_text(src.extent)} of {src.name} to extents "
            f"{shape_text(dst.extent)} of {dst.name}; without extents of 1 they must be equal, or "
            "one of them is a matrix and the other has its rows in several dimensions."
        )


def require_steps(name: str, dst: Operand, src: Operand, steps: Sequence[int]) -> None:
    """``steps=`` of a load: the distance of elements along each dimension of its source."""
    if name != "copy_async" or dst.scope not in SHARED or src.scope != "global":
        raise TileProgramError(
            f"steps = {list(steps)} of a {name} from {src.scope} to {dst.scope} memory; only "
            "copy_async from global to shared memory takes every few elements."
        )
    if (
        len(steps) != len(src.extent)
        or steps[-1] != 1
        or not all(1 <= step <= TMA.element_stride for step in steps)
    ):
        raise TileProgramError(
            f"steps = {list(steps)} for {len(src.extent)} dimensions of {src.name}: there is one "
            f"for each, from 1 to {TMA.element_stride}, and 1 for the last."
        )


def require_gemm(
    acc: Operand, a: Operand, b: Operand, trans_a: bool, trans_b: bool, k: str = "K"
) -> None:
    """``gemm_async``: scopes, dtypes that tensor cores have, and extents that fit.

    ``k`` is what the error calls the columns of A.
    """
    if acc.scope not in ACCUMULATORS:
        raise TileProgramError(
            f"gemm_async writes {acc.name} in scope {acc.scope}; it must be an accumulator."
        )
    if a.scope not in (*SHARED, "fragment") or b.scope not in SHARED:
        raise TileProgramError(
            f"gemm_async has A, {a.name}, in scope {a.scope} and B, {b.name}, in scope {b.scope}; "
            "A must be shared or a fragment, B shared."
        )
    allowed = GEMM_DTYPES.get((a.dtype, b.dtype), ())
    if acc.dtype not in allowed:
        fix = (
            f"the accumulator of these operands has dtype {' or '.join(allowed)}"
            if allowed
            else f"no tensor core multiplies these; allowed are {_PAIRS}, so cast an operand"
        )
        raise TileProgramError(
            f"gemm_async of A, {a.name}, of dtype {a.dtype} and B, {b.name}, of dtype {b.dtype} "
            f"into {acc.name} of dtype {acc.dtype}; {fix}."
        )
    c = acc.matrix("the accumulator")
    left, right = a.matrix("operand A"), b.matrix("operand B")
    left, right = (left[::-1] if trans_a else left), (right[::-1] if trans_b else right)
    if not (equal((left[0], right[0]), c) and equal(left[1:], right[1:])):
        raise TileProgramError(
            f"gemm_async of A, {a.name}, [M, {k}] = {shape_text(left)} and B, {b.name}, [N, K] = "
            f"{shape_text(right)} does not fit {acc.name}, [M, N] = {shape_text(c)}."
        )


def require_sparse(
    acc: Operand, a: Operand, b: Operand, metadata: Operand, trans_a: bool, trans_b: bool
) -> None:
    """``gemm_async`` with ``sparse=``: A holds half of the elements of K, metadata says which."""
    if a.scope not in SHARED:
        raise TileProgramError(
            f"gemm_async with sparse= has A, {a.name}, in scope {a.scope}; a sparse A must be "
            "shared."
        )
    if metadata.scope not in SHARED or metadata.dtype not in ("uint8", WORD):
        raise TileProgramError(
            f"gemm_async has the metadata {metadata.name}, of dtype {metadata.dtype} in scope "
            f"{metadata.scope}; it must be uint8 and shared, as warploom.sparse.compress makes it, "
            f"or {WORD}, as warploom.layout.metadata_words.to_words does."
        )
    if a.dtype not in SPARSITY:
        raise TileProgramError(
            f"gemm_async of a sparse A, {a.name}, of dtype {a.dtype}; sparse MMAs take "
            f"{', '.join(SPARSITY)}."
        )
    rule = SPARSITY[a.dtype]
    shape = a.matrix("operand A")
    rows, held = shape[::-1] if trans_a else shape
    k = None if held is None else 2 * held
    whole = (rows, k) if not trans_a else (k, rows)
    require_gemm(acc, replace(a, extent=whole), b, trans_a, trans_b, "K / 2, here doubled")
    unit = rule.metadata_unit * (WORD_BYTES if metadata.dtype == WORD else 1)
    columns = None if k is None else k // unit
    found = metadata.matrix("the metadata")
    if (k or 0) % unit or not equal(found, (rows, columns)):
        raise TileProgramError(
            f"gemm_async has the metadata {metadata.name} of extents {shape_text(found)}; for A, "
            f"{a.name}, of dtype {a.dtype} with M = {rows} and K = {k} it must have [M, "
            f"K / {unit}]."
        )
    if metadata.dtype == WORD and rows is not None and rows % WORD_ROWS:
        raise TileProgramError(
            f"gemm_async has the metadata {metadata.name} in words for {rows} rows; words are of a "
            f"multiple of {WORD_ROWS} rows."
        )


def require_elementwise(dst: Operand, sources: Sequence[Operand]) -> None:
    """Tiles of one dtype that broadcast to the destination."""
    dst.require_tile("the destination of an elementwise primitive")
    for source in sources:
        source.require_tile("an operand of an elementwise primitive")
        shape = source.extent
        aligned = zip(shape[::-1], dst.extent[::-1], strict=False)
        if len(shape) > len(dst.extent) or any(
            s != 1 and not equal((s,), (d,)) for s, d in aligned
        ):
            raise TileProgramError(
                f"{source.name} of extents {shape_text(shape)} does not broadcast to {dst.name} of "
                f"extents {shape_text(dst.extent)}; each extent, aligned at the right, must be "
                "equal or 1."
            )
    tiles = {source.dtype for source in sources}
    if len(tiles) > 1:
        raise TileProgramError(
            f"the operands of a primitive that writes {dst.name} have dtypes "
            f"{' and '.join(sorted(tiles))}; cast them to one dtype first."
        )


def require_select(dst: Operand, parameters: int) -> None:
    """The predicate of ``select`` has a parameter for each dimension."""
    if parameters != len(dst.extent):
        raise TileProgramError(
            f"the predicate of select has {parameters} parameters; {dst.name} has "
            f"{len(dst.extent)} dimensions."
        )


def require_reduction(dst: Operand, src: Operand, axes: Sequence[int]) -> set[int]:
    """A reduction of tiles of one dtype; gives its axes as numbers from 0."""
    for operand, noun in ((dst, "the destination"), (src, "the source")):
        operand.require_tile(f"{noun} of a reduction")
    if dst.dtype != src.dtype:
        raise TileProgramError(
            f"reduction of {src.name} of dtype {src.dtype} into {dst.name} of dtype {dst.dtype}; "
            "they must have one dtype."
        )
    rank = len(src.extent)
    dimensions = {axis + rank if axis < 0 else axis for axis in axes}
    if not dimensions or not all(0 <= axis < rank for axis in dimensions):
        raise TileProgramError(
            f"axes {sorted(dimensions)} of a reduction are not dimensions of {src.name}, which has "
            f"{rank}."
        )
    if any(src.extent[axis] == 0 for axis in dimensions):
        raise TileProgramError(
            f"the reduction of {src.name} is over a region of extents {shape_text(src.extent)}, "
            "which has no elements; reduce at least one."
        )
    kept = tuple(extent for d, extent in enumerate(src.extent) if d not in dimensions)
    if not equal(squeezed(dst.extent), squeezed(kept)):
        raise TileProgramError(
            f"{dst.name} has a region of extents {shape_text(dst.extent)}; reducing "
            f"{shape_text(src.extent)} over axes {sorted(dimensions)} gives {shape_text(kept)}."
        )
    return dimensions


def squeezed(extent: Extents) -> Extents | None:
    """Extents without those of 1; None where an extent that is not known may be 1."""
    return None if None in extent else tuple(e for e in extent if e != 1)


def equal(a: Extents | None, b: Extents | None) -> bool:
    """Whether extents are equal, as far as they are known."""
    if a is None or b is None:
        return True
    return len(a) == len(b) and all(
        x == y or x is None or y is None for x, y in zip(a, b, strict=True)
    )


def _same_shape(a: Extents | None, b: Extents | None) -> bool:
    """Whether extents are equal, or those of one matrix and of its rows in several dimensions."""
    if a is None or b is None or a == b:
        return True
    few, many = sorted((a, b), key=len)
    return len(few) == 2 and few == (math.prod(many[:-1]), many[-1])
