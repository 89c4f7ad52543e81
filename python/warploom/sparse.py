"""2:4 sparse operands: prune a matrix, compress it, and get the dense one back.

The sparse MMAs of Hopper and Blackwell read A compressed. Of each group of four neighbouring
elements of K they hold two, in the order of K; of float32, which they multiply as tf32, one of each
two. Metadata says which. Both are plain row-major arrays, the same for all shapes and for both
architectures:

====================  ==================  =========================
array                 dtype               shape for a dense [M, K]
====================  ==================  =========================
values                that of the matrix  [M, K / 2]
metadata              uint8               [M, K / 8]; float32: K / 4
====================  ==================  =========================

A byte of metadata is two groups of a row: bits 0 to 3 the first, bits 4 to 7 the second. The four
bits of a group are two indices: bits 0 and 1 the place of the first element that is held, bits 2
and 3 the place of the second one. For float32 a group is two elements, and its four bits name both
16-bit halves of the element that is held: ``0x4`` the first element, ``0xe`` the second. Four zero
bits, which hardware does not define, stand for ``0x4``: tiles that reach over the edges of a matrix
have them there.

Blackwell's tensor core reads the same bits in another order
(:mod:`warploom.layout.metadata_words`), which threads bring them into, or the host.

Source: PTX ISA, "Sparse matrix storage" of ``wgmma.mma_async.sp``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from warploom.errors import IllegalCombination
from warploom.target.dtypes import dtype_name

__all__ = ["Sparsity", "compress", "decompress", "prune_2_4", "sparsity"]


@dataclass(frozen=True)
class Sparsity:
    """How elements of one width are held.

    Attributes
    ----------
    group, held : int
        Neighbouring elements of K, and how many of them A holds.

    Examples
    --------
    >>> sparse.sparsity("float16")
    Sparsity(group=4, held=2)
    """

    group: int
    held: int

    def __post_init__(self) -> None:
        assert self.group == 2 * self.held, "half of the elements are held"

    @property
    def metadata_unit(self) -> int:
        """Elements of K that a byte of metadata is for: two groups."""
        return 2 * self.group

    def metadata_columns(self, k: int) -> int:
        """Bytes of metadata of a row of ``k`` dense elements."""
        return k // self.metadata_unit


_TWO_OF_FOUR, _ONE_OF_TWO = Sparsity(4, 2), Sparsity(2, 1)
#: TVM dtype of A -> how it is held.
SPARSITY: dict[str, Sparsity] = {
    "float16": _TWO_OF_FOUR,
    "bfloat16": _TWO_OF_FOUR,
    "float32": _ONE_OF_TWO,
    "float8_e4m3fn": _TWO_OF_FOUR,
    "float8_e5m2": _TWO_OF_FOUR,
    "int8": _TWO_OF_FOUR,
    "uint8": _TWO_OF_FOUR,
}
#: Metadata of a group whose first elements are held; zero stands for it.
FIRST = 0b0100
#: Metadata of a group of two elements of which the first, or the second, is held.
_OF_TWO = np.array([FIRST, 0b1110], np.uint8)


def sparsity(dtype: Any) -> Sparsity:
    """How elements of a dtype are held.

    Raises
    ------
    IllegalCombination
        If no sparse MMA has such operands.

    Examples
    --------
    >>> sparsity("float16").group, sparsity("float32").group
    (4, 2)
    """
    name = dtype_name(dtype)
    if name not in SPARSITY:
        raise IllegalCombination(
            f"sparse: A has dtype {name}; sparse MMAs take {', '.join(SPARSITY)}."
        )
    return SPARSITY[name]


def prune_2_4(dense: Any) -> np.ndarray:
    """A copy with the smaller half of each group set to zero, so that it can be compressed.

    Of four neighbouring elements of a row the two of largest magnitude stay, of two float32 one;
    of equal ones, the first.

    Parameters
    ----------
    dense : array
        ``[M, K]``: of NumPy, or any array with DLPack (TVM, PyTorch, also on a GPU).

    Raises
    ------
    IllegalCombination
        If it has not two dimensions, K is no multiple of what a byte of metadata is for (8
        elements; float32: 4), or no sparse MMA has its dtype.

    Examples
    --------
    >>> prune_2_4(np.array([[1, -4, 3, 2, 0, 0, 0, 5]], "float16"))
    array([[ 0., -4.,  3.,  0.,  0.,  0.,  0.,  5.]], dtype=float16)
    """
    dense, groups, rule = _groups(dense)
    wide: Any = groups.astype(np.int64 if groups.dtype.kind in "iu" else np.float64)
    size = np.where(np.isnan(wide), np.inf, np.abs(wide))  # a NaN stays
    order = np.argsort(-size, axis=2, kind="stable")
    rank = np.argsort(order, axis=2, kind="stable")
    return np.where(rank < rule.held, groups, groups.dtype.type(0)).reshape(dense.shape)


def compress(dense: Any) -> tuple[np.ndarray, np.ndarray]:
    """The elements that a sparse MMA holds of a matrix, and the metadata that says which.

    Parameters
    ----------
    dense : array
        ``[M, K]``, of NumPy or any array with DLPack, with at most two non-zeros in each group of
        four of a row (float32: at most one of two). :func:`prune_2_4` makes any matrix one.

    Returns
    -------
    values : np.ndarray
        ``[M, K / 2]``, of the same dtype. Zeros fill groups that have fewer.
    metadata : np.ndarray
        uint8, ``[M, K / 8]``; of float32 ``[M, K / 4]``.

    Raises
    ------
    IllegalCombination
        As :func:`prune_2_4`; or if a group has more non-zeros: the message has its place.

    Examples
    --------
    >>> values, metadata = compress(np.array([[0, 7, 0, 8, 5, 6, 0, 0]], "float16"))
    >>> values, hex(metadata[0, 0])
    (array([[7., 8., 5., 6.]], dtype=float16), '0x4d')
    """
    dense, groups, rule = _groups(dense)
    filled = groups != 0
    crowded = np.argwhere(filled.sum(axis=2) > rule.held)
    if len(crowded):
        row, group = (int(place) for place in crowded[0])
        first = group * rule.group
        raise IllegalCombination(
            f"sparse: row {row}, columns {first} to {first + rule.group - 1} of A are "
            f"{groups[row, group].tolist()}; at most {rule.held} of them may differ from 0, so "
            "prune the matrix, for instance with warploom.sparse.prune_2_4."
        )
    # Elements that are not zero come first, in the order of K; then zeros fill the rest.
    places = np.sort(np.argsort(~filled, axis=2, kind="stable")[..., : rule.held], axis=2)
    values = np.take_along_axis(groups, places, axis=2).reshape(dense.shape[0], -1)
    return values, _packed(places.astype(np.uint8), rule)


def decompress(values: Any, metadata: Any) -> np.ndarray:
    """The dense matrix of compressed values: the inverse of :func:`compress`.

    Parameters
    ----------
    values, metadata : array
        As :func:`compress` gives them, of NumPy or with DLPack.

    Raises
    ------
    IllegalCombination
        If shapes or dtypes do not fit, or metadata names no two elements: the message has its
        place.

    Examples
    --------
    >>> decompress(*compress(np.array([[0, 7, 0, 8, 5, 6, 0, 0]], "float16")))
    array([[0., 7., 0., 8., 5., 6., 0., 0.]], dtype=float16)
    """
    values, metadata = _on_host(values), _on_host(metadata)
    rule = sparsity(values.dtype)
    if values.ndim != 2 or metadata.ndim != 2 or metadata.dtype != np.uint8:
        raise IllegalCombination(
            f"sparse: values have shape {values.shape}, metadata is {metadata.dtype} of shape "
            f"{metadata.shape}; both are matrices, and metadata is uint8."
        )
    rows, k = values.shape[0], 2 * values.shape[1]
    wanted = (rows, rule.metadata_columns(k))
    if k % rule.metadata_unit or metadata.shape != wanted:
        raise IllegalCombination(
            f"sparse: metadata has shape {metadata.shape}; values of shape {values.shape} and "
            f"dtype {values.dtype} need [M, K / {rule.metadata_unit}] = {wanted}, and K = {k} to "
            f"be a multiple of {rule.metadata_unit}."
        )
    nibbles = np.stack([metadata & 15, metadata >> 4], axis=2).reshape(rows, -1)
    places = _unpacked(nibbles, rule)
    groups = np.zeros((rows, k // rule.group, rule.group), values.dtype)
    held = values.reshape(rows, k // rule.group, rule.held)
    np.put_along_axis(groups, places, held, axis=2)
    return groups.reshape(rows, k)


def _groups(dense: Any) -> tuple[np.ndarray, np.ndarray, Sparsity]:
    """A matrix, the same as groups ``[M, groups, elements]``, and how they are held."""
    dense = _on_host(dense)
    rule = sparsity(dense.dtype)
    if dense.ndim != 2 or dense.shape[1] % rule.metadata_unit:
        raise IllegalCombination(
            f"sparse: A has shape {dense.shape}; it is a matrix [M, K] with a K that is a multiple "
            f"of {rule.metadata_unit}, so pad K with zeros."
        )
    return dense, dense.reshape(dense.shape[0], -1, rule.group), rule


def _packed(places: np.ndarray, rule: Sparsity) -> np.ndarray:
    nibbles = _OF_TWO[places[..., 0]] if rule.held == 1 else places[..., 0] | places[..., 1] << 2
    return (nibbles[:, 0::2] | nibbles[:, 1::2] << 4).astype(np.uint8)


def _unpacked(nibbles: np.ndarray, rule: Sparsity) -> np.ndarray:
    """Places of the held elements in each group: ``[M, groups, held]``."""
    nibbles = np.where(nibbles == 0, FIRST, nibbles)
    low, high = nibbles & 3, nibbles >> 2
    if rule.held == 1:
        legal, need = np.isin(nibbles, _OF_TWO), "0x4 or 0xe, one of two elements"
        places = (low // 2)[..., None]
    else:
        legal, need = low != high, "two different indices"
        places = np.stack([low, high], axis=2)
    if not legal.all():
        row, group = (int(place) for place in np.argwhere(~legal)[0])
        raise IllegalCombination(
            f"sparse: the metadata of row {row}, group {group} (columns {group * rule.group} to "
            f"{group * rule.group + rule.group - 1}) is 0x{int(nibbles[row, group]):x}; it must be "
            f"{need}. warploom.sparse.compress makes it."
        )
    return places.astype(np.int64)


def _on_host(array: Any) -> np.ndarray:
    """An array as NumPy has it; those of other libraries through DLPack."""
    if isinstance(array, np.ndarray) or not hasattr(array, "__dlpack__"):
        return np.asarray(array)
    import tvm

    return tvm.runtime.from_dlpack(array).numpy()
