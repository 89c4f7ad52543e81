"""Rules of ``gemm_async`` with scales: ``SFA=`` and ``SFB=``, for blocks of elements along K."""

from __future__ import annotations

from warploom.errors import IllegalCombination, TileProgramError
from warploom.language.rules.operands import Extents, Operand, equal, squeezed
from warploom.language.rules.scopes import ACCUMULATORS, SHARED, shape_text
from warploom.target.scaled_formats import (
    ScaledFormat,
    are_in_blocks,
    scale_blocks,
    scaled_format,
)


def require_scaled_gemm(
    acc: Operand, a: Operand, b: Operand, scale_a: Operand, scale_b: Operand,
    trans_a: bool, trans_b: bool,
) -> ScaledFormat:  # fmt: skip
    """Check scopes, dtypes and extents; give the format of the operands.

    Raises
    ------
    TileProgramError
        If a rule is broken; the message names the operand, the rule and the fix.
    """
    if acc.scope not in ACCUMULATORS or acc.dtype != "float32":
        raise TileProgramError(
            f"gemm_async with scales writes {acc.name} of dtype {acc.dtype} in scope {acc.scope}; "
            "it must be an accumulator of float32."
        )
    roles = {"A": a, "B": b, "SFA": scale_a, "SFB": scale_b}
    for role, operand in roles.items():
        if operand.scope not in SHARED:
            raise TileProgramError(
                f"gemm_async with scales has {role}, {operand.name}, in scope {operand.scope}; "
                "operands and scales must be shared tiles, so copy it to one."
            )
    for role, flag in (("A", trans_a), ("B", trans_b)):
        if flag:
            raise TileProgramError(
                f"gemm_async with scales has trans{role}; blocks that share a scale lie along K, "
                f"which must be the last dimension of {roles[role].name}."
            )
    try:
        row = scaled_format(*(operand.dtype for operand in roles.values()))
    except IllegalCombination as error:
        raise TileProgramError(f"gemm_async with scales: {error}.") from error
    c, left, right = (
        acc.matrix("the accumulator"), a.matrix("operand A"), b.matrix("operand B"),
    )  # fmt: skip
    if not (equal((left[0], right[0]), c) and equal(left[1:], right[1:])):
        raise TileProgramError(
            f"gemm_async of A, {a.name}, [M, {_k_text(row)}] = {shape_text(left)} and B, {b.name}, "
            f"[N, {_k_text(row)}] = {shape_text(right)} does not fit {acc.name}, [M, N] = "
            f"{shape_text(c)}."
        )
    for operand, scales in ((left, scale_a), (right, scale_b)):
        _require_scales(row, operand, scales)
    return row


def _k_text(row: ScaledFormat) -> str:
    return "K" if row.packed == 1 else f"K / {row.packed}"


def _require_scales(row: ScaledFormat, operand: Extents, scales: Operand) -> None:
    """The scales of an operand ``[rows, K]``, in rows or in blocks."""
    rows, stored = operand
    if stored is None:
        return
    k = stored * row.packed
    if k % row.block:
        raise TileProgramError(
            f"gemm_async with scales {scales.name} has K = {k}; {row.name} has a scale for each "
            f"{row.block} elements, so K of a tile must be a multiple."
        )
    count = k // row.block
    by_blocks = are_in_blocks(scales.extent, rows, count)
    blocks: Extents = (None, *scale_blocks(1, count)[1:])
    if rows is not None:
        blocks = scale_blocks(rows, count)
    fits = (
        equal(squeezed(scales.extent), squeezed(blocks)) if by_blocks
        else equal(scales.extent[-2:], (rows, count))
        and all(one in (1, None) for one in scales.extent[:-2])
    )  # fmt: skip
    if not fits:
        raise TileProgramError(
            f"the scales {scales.name} have a region of extents {shape_text(scales.extent)}; "
            f"{row.name} has a scale for each {row.block} elements along K, so an operand of "
            f"{shape_text((rows, k))} elements wants {shape_text((rows, count))} in rows, "
            f"or {shape_text(blocks)} in blocks."
        )
