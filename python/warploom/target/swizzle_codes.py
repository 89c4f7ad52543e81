"""How each interface of NVIDIA numbers the swizzle modes of shared memory: one table.

The tensor map counts up with the width, the descriptor of wgmma counts down, that of tcgen05 has
steps of two. Nobody needs to know these numbers: :func:`warploom.target.spelling.read_swizzle`
takes a name or the bytes of a row everywhere.

Sources: CUDA Driver API, ``CUtensorMapSwizzle``; PTX ISA, "Matrix Descriptor Format" of wgmma and
"Shared memory descriptor" of tcgen05.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SwizzleCodes:
    """A swizzle mode.

    Attributes
    ----------
    name : str
        Its name here and in CUDA: ``CU_TENSOR_MAP_SWIZZLE_<name>``.
    row_bytes : int
        Bytes of the row within which chunks are exchanged; 16, one chunk, if none are.
    chunk_bytes : int
        Bytes that stay together.
    tensor_map : int
        ``CUtensorMapSwizzle``; up to 3 also the ``mode`` of TVM's ``mma_shared_layout``.
    wgmma : int or None
        Bits 62-63 of a matrix descriptor; None if wgmma has no such mode.
    tcgen05 : int
        Bits 61-63 of a shared memory descriptor.
    """

    name: str
    row_bytes: int
    chunk_bytes: int
    tensor_map: int
    wgmma: int | None
    tcgen05: int


SWIZZLE_CODES = (
    SwizzleCodes("none", 16, 16, 0, 0, 0),
    SwizzleCodes("32B", 32, 16, 1, 3, 6),
    SwizzleCodes("64B", 64, 16, 2, 2, 4),
    SwizzleCodes("128B", 128, 16, 3, 1, 2),
    SwizzleCodes("128B_ATOM_32B", 128, 32, 4, None, 1),
)

for _column in ("name", "tensor_map", "wgmma", "tcgen05"):
    _values = [getattr(codes, _column) for codes in SWIZZLE_CODES]
    assert len(set(_values)) == len(_values), f"two modes have the same {_column}"
for _one in SWIZZLE_CODES:
    assert _one.row_bytes % _one.chunk_bytes == 0
    assert _one.wgmma is None or _one.wgmma == (4 - _one.tensor_map) % 4
    assert _one.tcgen05 == (1 if _one.chunk_bytes == 32 else 2 * (4 - _one.tensor_map) % 8)
