"""Which extents of matrices a generated matmul takes."""

from __future__ import annotations

from warploom.errors import IllegalCombination
from warploom.kernels.matmul_spec import MatmulSpec
from warploom.target import TMA
from warploom.target.dtypes import bits_of
from warploom.target.spelling import OobFill


def check_shape(spec: MatmulSpec, m: int | None, n: int, k: int) -> None:
    """Raise unless TMA can load matrices of these extents; others need not divide anything.

    Raises
    ------
    IllegalCombination
        If an extent is too small, or a row pitch is no multiple of 16 bytes.
    """
    for name, extent, least in (("M", m, 1), ("N", n, 2), ("K", k, 2)):
        if extent is not None and extent < least:
            raise IllegalCombination(f"matmul: {name} = {extent}: it must be at least {least}.")
    if spec.oob_fill is OobFill.NAN and k % spec.tile[2]:
        raise IllegalCombination(
            f"matmul: K = {k} with oob_fill 'nan': the last stage would add NaN to every sum; "
            f"use a multiple of {spec.tile[2]}, the K of a stage, or oob_fill 'zeros'."
        )
    pitches = {
        "A": ("M", m) if spec.layout[0] == "T" else ("K", k),
        "B": ("N", n) if spec.layout[1] == "N" else ("K", k),
    }
    for matrix, (name, extent) in pitches.items():
        if extent is None:
            raise IllegalCombination(
                f"matmul: {name} must be known with layout {spec.layout!r}, where it is the "
                f"row pitch of {matrix}."
            )
        size = extent * bits_of(spec.dtype) // 8
        if size % TMA.chunk_bytes:
            raise IllegalCombination(
                f"matmul: {matrix} has rows of {extent} {spec.dtype}, {size} bytes; TMA needs "
                f"a multiple of {TMA.chunk_bytes}, so pad {name} to a multiple of "
                f"{TMA.chunk_bytes * 8 // bits_of(spec.dtype)}."
            )
