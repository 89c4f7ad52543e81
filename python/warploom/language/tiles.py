"""Short forms of the statements that nearly every tile program has.

Each writes statements that an author could write himself, so passes, rules and interpreter know
none of them: ``wl.load`` is an allocation and a copy, ``wl.store`` a cast and a copy. What stands
in the program is shown by ``func.script()``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.script.ir_builder import IRBuilder
from tvm.script.tirx import tile as Tx
from tvm.tirx import Buffer

from warploom.errors import TileProgramError
from warploom.target.dtypes import dtype_name
from warploom.tile import ir

#: Where a tile that is loaded may lie.
_LOADED_INTO = ("shared", "fragment")
#: The accumulator of operands that are not floats.
_ACCUMULATORS = {"int8": "int32", "uint8": "int32"}


def alloc_accumulator(shape: Sequence[int], dtype: str = "float32") -> Buffer:
    """A tile that MMAs write: ``T.alloc_buffer(shape, dtype, scope="accumulator")``.

    Examples
    --------
    .. code-block:: python

        acc = wl.alloc_accumulator((128, 256))
        for k in wl.pipelined(K // 64):
            ...
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
    """
    return T.alloc_buffer(shape, dtype_name(dtype), scope="accumulator")


def alloc_fragment(shape: Sequence[int], dtype: str = "float32") -> Buffer:
    """A tile in registers: ``T.alloc_buffer(shape, dtype, scope="fragment")``.

    Examples
    --------
    .. code-block:: python

        largest = wl.alloc_fragment((BM,))
        Tx.cta.max(largest, acc, axes=(1,))
    """
    return T.alloc_buffer(shape, dtype_name(dtype), scope="fragment")


def tile(buffer: Buffer, index: Sequence[Any], shape: Sequence[int] | Buffer) -> TensorRegion:
    """The tile of a buffer with a number in each dimension: a region.

    Parameters
    ----------
    buffer : Buffer
        In any memory.
    index : sequence of int or int32 expressions
        One for each dimension of the buffer. In the dimensions of ``shape``, which are the last
        ones, they count tiles; in those before, elements.
    shape : sequence of int, or Buffer
        Extents of the tile; or a tile that has them.

    Returns
    -------
    TensorRegion
        ``buffer[index[0] * shape[0] : index[0] * shape[0] + shape[0], ...]``. It may reach over the
        edges of a buffer in global memory.

    Raises
    ------
    TileProgramError
        If there are more or fewer numbers than the buffer has dimensions, more extents, or a tile
        is known to lie outside of the buffer.

    Examples
    --------
    ``Tx.cta.copy_async(A_s, wl.tile(A, (i, k), A_s))`` is, for a tile of 128 x 64,
    ``Tx.cta.copy_async(A_s, A[i * 128 : i * 128 + 128, k * 64 : k * 64 + 64])``.
    """
    index, extents = tuple(index), _extents(shape)
    name, rank = buffer.name, len(buffer.shape)
    if len(index) != rank:
        raise TileProgramError(
            f"wl.tile got {len(index)} numbers for {name}, which has {rank} dimensions; give one "
            "for each dimension."
        )
    if len(extents) > rank:
        raise TileProgramError(
            f"wl.tile got a shape of {len(extents)} extents for {name}, which has {rank} "
            f"dimensions; give at most {rank}, those of the last dimensions."
        )
    ahead = rank - len(extents)
    begins = [*index[:ahead], *(i * n for i, n in zip(index[ahead:], extents, strict=True))]
    for dimension, begin in enumerate(begins):
        _require_in(name, dimension, begin, buffer.shape[dimension])
    ranges = zip(begins[ahead:], extents, strict=True)
    return buffer[(*begins[:ahead], *(slice(begin, begin + n) for begin, n in ranges))]


def load(
    source: Buffer | TensorRegion, index: Sequence[Any] | None = None,
    shape: Sequence[int] | Buffer | None = None, *, scope: str = "shared",
    dtype: str | None = None,
) -> Buffer:  # fmt: skip
    """A new tile with elements of global memory.

    Parameters
    ----------
    source : Buffer or TensorRegion
        A buffer with ``index`` and ``shape``, as in :func:`tile`; or a region, whose extents other
        than 1 the tile has.
    index, shape : sequences
        As in :func:`tile`.
    scope : str
        ``"shared"``: ``Tx.cta.copy_async`` into shared memory, which ``wl.pipelined`` runs ahead.
        ``"fragment"``: threads read elements into registers.
    dtype : str, optional
        Of a fragment, whose elements are cast; that of the source if left out.

    Returns
    -------
    Buffer
        The tile. Elements outside of the source are 0.

    Raises
    ------
    TileProgramError
        As :func:`tile`; or if the scope is another, or a tile in shared memory shall have another
        dtype than its source.

    Examples
    --------
    ``A_s = wl.load(A, (i, k), (BM, BK))``, or ``A_s = wl.load(A[row : row + BM, 0:BK])``.
    """
    region, extents = _region(source, index, shape)
    if scope not in _LOADED_INTO:
        raise TileProgramError(f"wl.load got the scope {scope!r}; it is one of {_LOADED_INTO}.")
    found = str(region.source.dtype)
    dtype = found if dtype is None else dtype_name(dtype)
    if scope == "shared" and dtype != found:
        raise TileProgramError(
            f"wl.load copies {region.source.name}, which is {found}, into shared memory, and a "
            f'copy does not cast to {dtype}; write scope="fragment", or cast the tile.'
        )
    loaded = T.alloc_buffer(extents, dtype, scope=scope)
    if scope == "shared":
        Tx.cta.copy_async(loaded, region)
    else:
        _read_elements(loaded, region.source, _places(region, len(extents)))
    return loaded


def store(to: Buffer | TensorRegion, *index_and_tile: Any) -> None:
    """Store a tile into global memory, cast to its dtype: ``wl.store(C, (i, j), acc)``.

    Parameters
    ----------
    to : Buffer or TensorRegion
        A buffer, followed by the numbers of the tile as in :func:`tile`; or a region.
    *index_and_tile
        The numbers, for a buffer; and the tile, whose extents it has in memory.

    Raises
    ------
    TileProgramError
        As :func:`tile`.

    Examples
    --------
    ``wl.store(C[row : row + BM, 0:BN], acc)`` stores a tile that begins at any row.
    """
    *index, stored = index_and_tile
    region, _ = _region(to, index[0] if index else None, stored if index else None)
    dtype = str(region.source.dtype)
    if str(stored.dtype) != dtype:
        stored = cast(stored, dtype)
        IRBuilder.name(f"{region.source.name}_out", stored)
    Tx.cta.copy(region, stored)


def cast(source: Buffer, dtype: str) -> Buffer:
    """A new fragment with the elements of a tile, cast: ``P = wl.cast(S, "float16")``.

    Examples
    --------
    .. code-block:: python

        P = wl.cast(S, "float16")
        Tx.cta.gemm_async(acc, P, V_s, transB=True, accum=True)
    """
    result = alloc_fragment(_extents(source), dtype)
    Tx.cta.cast(result, source)
    return result


def gemm(
    A: Buffer | TensorRegion, B: Buffer | TensorRegion, transA: bool = False,
    transB: bool = False, dtype: str | None = None, *,
    sparse: Buffer | TensorRegion | None = None,
    scale_a: Buffer | TensorRegion | None = None, scale_b: Buffer | TensorRegion | None = None,
) -> Buffer:  # fmt: skip
    """A new accumulator with ``A Bᵀ``, as ``Tx.cta.gemm_async`` computes it.

    Parameters
    ----------
    A, B : Buffer or TensorRegion
        Tiles ``[M, K]`` and ``[N, K]``; with ``transA`` and ``transB`` ``[K, M]`` and ``[K, N]``.
    dtype : str, optional
        Of the accumulator; float32, or int32 for integers.
    sparse : Buffer or TensorRegion, optional
        Metadata of a sparse A, which is ``[M, K / 2]`` then (:mod:`warploom.sparse`), in bytes or
        in words (:mod:`warploom.layout.metadata_words`).
    scale_a, scale_b : Buffer or TensorRegion, optional
        Scales of blocks of 32 or 16 elements along K: ``SFA`` and ``SFB`` of the primitive. The
        formats and orders are in :mod:`warploom.target.scaled_formats`.

    Raises
    ------
    TileProgramError
        If a tile has not two dimensions, or one operand alone has scales.

    Examples
    --------
    ``S = wl.gemm(Q_s, K_s)``; a sum over a loop needs an accumulator that is declared before it.
    ``S = wl.gemm(A_s, B_s, scale_a=SA_s, scale_b=SB_s)`` multiplies mxfp8, mxfp4 or nvfp4.
    """
    if (scale_a is None) != (scale_b is None):
        raise TileProgramError(
            f"wl.gemm got scale_{'b' if scale_a is None else 'a'} alone; both operands have "
            "scales, or none: give a tile of ones."
        )
    rows, columns = (
        _extents_of_operand(name, operand)[transposed]
        for name, operand, transposed in (("A", A, transA), ("B", B, transB))
    )
    source = A.source if isinstance(A, TensorRegion) else A
    integer = None if scale_a is not None else _ACCUMULATORS.get(str(source.dtype))
    result = alloc_accumulator((rows, columns), dtype or integer or "float32")
    options = {} if sparse is None else {"sparse": sparse}
    Tx.cta.gemm_async(result, A, B, scale_a, scale_b, transA=transA, transB=transB, **options)
    return result


def _extents(shape: Sequence[int] | Buffer) -> tuple[Any, ...]:
    return tuple(_known(n) for n in (shape.shape if ir.is_buffer(shape) else shape))


def _extents_of_operand(name: str, operand: Buffer | TensorRegion) -> list[Any]:
    """Extents other than 1 of a region, all of a buffer: two."""
    extents = list(_region(operand, None, None)[1])
    if len(extents) != 2:
        raise TileProgramError(
            f"operand {name} of wl.gemm has {len(extents)} dimensions; give it two."
        )
    return extents


def _region(
    source: Buffer | TensorRegion, index: Sequence[Any] | None,
    shape: Sequence[int] | Buffer | None,
) -> tuple[TensorRegion, tuple[Any, ...]]:  # fmt: skip
    """A region, and the extents of a tile that has its elements."""
    if isinstance(source, TensorRegion):
        extents = (_known(part.extent) for part in source.region)
        return source, tuple(n for n in extents if not (isinstance(n, int) and n == 1))
    if index is None or shape is None:
        whole = tuple(slice(0, n) for n in source.shape)
        return source[whole], _extents(source)
    return tile(source, index, shape), _extents(shape)


def _known(size: Any) -> Any:
    return int(size) if isinstance(size, tirx.IntImm) else size


def _require_in(name: str, dimension: int, begin: Any, size: Any) -> None:
    begin, size = _known(begin), _known(size)
    if isinstance(begin, int) and (begin < 0 or (isinstance(size, int) and begin >= size)):
        raise TileProgramError(
            f"the tile of {name} begins at {begin} in dimension {dimension}, whose elements are 0 "
            f"to {size} - 1; its number must be of a tile in it."
        )


def _places(region: TensorRegion, rank: int) -> Any:
    """A function from the place of an element in a tile to its place in memory."""
    parts = [(part.min, _known(part.extent)) for part in region.region]
    # A tile of the rank of its buffer has extents of 1, too.
    all_of_them = rank == len(parts)

    def at(place: Any) -> tuple[Any, ...]:
        places = iter([place] if isinstance(place, tirx.Var) else place)
        return tuple(begin + next(places) if all_of_them or n != 1 else begin for begin, n in parts)

    return at


@T.inline
def _read_elements(to, source, at):
    for place in T.grid(*to.shape):
        to[place] = T.cast(source[at(place)], to.dtype)
