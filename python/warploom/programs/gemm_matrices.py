"""The matrices that :func:`warploom.programs.gemm` takes: dtypes, layouts, extents."""

from __future__ import annotations

from warploom.decide.config import Config
from warploom.decide.problem import GemmProblem, plain_gemm
from warploom.errors import IllegalCombination
from warploom.target import TMA, wgmma_kind
from warploom.target.dtypes import bits_of

#: Operand layouts by the BLAS name of the GEMM: how A and B lie in global memory.
LAYOUTS = {"NT": "A [M, K], B [N, K]", "NN": "A [M, K], B [K, N]"}
#: Operand dtypes; float8 ones are multiplied by a scale for each tensor.
DTYPES = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
#: Result dtypes.
OUT_DTYPES = ("float16", "bfloat16")


def problem_of_matrices(
    m: int | None, n: int, k: int, dtype: str, out_dtype: str | None, layout: str
) -> GemmProblem:
    """The problem of the program's matrices.

    Raises
    ------
    IllegalCombination
        If a dtype or layout is none that the program has, or an extent is not positive.
    """
    allowed = "; ".join(f"{name}: {how}" for name, how in LAYOUTS.items())
    for holds, sentence in (
        (dtype in DTYPES, f"dtype {dtype!r}: allowed are {', '.join(DTYPES)}."),
        (
            out_dtype is None or out_dtype in OUT_DTYPES,
            f"out_dtype {out_dtype!r}: allowed are {', '.join(OUT_DTYPES)}.",
        ),
        (layout in LAYOUTS, f"layout {layout!r}: allowed are {allowed}."),
    ):
        if not holds:
            raise IllegalCombination(sentence)
    if layout != "NT" and not wgmma_kind(dtype, dtype, "float32").transpose:
        raise IllegalCombination(
            f"layout {layout!r} with {dtype}: the tensor core reads 8-bit operands K-major only; "
            "store B as [N, K] and use layout 'NT'."
        )
    for name, extent in (("M", m), ("N", n), ("K", k)):
        if extent is not None and extent < 1:
            raise IllegalCombination(f"{name} = {extent} is not a positive extent.")
    if n == 1:
        raise IllegalCombination(
            "N = 1 is a matrix-vector product, which this program does not compute; pass at least "
            "2 columns."
        )
    return plain_gemm(m, n, k, dtype, out_dtype, layout)


def check_pitches(problem: GemmProblem, config: Config) -> None:
    """Raise unless TMA can load and store the matrices.

    Raises
    ------
    IllegalCombination
        If a row pitch is no multiple of 16 bytes; with ``swap_ab`` that of C may be any.
    """
    n, k, dtype = problem.n, problem.k, problem.a_dtype
    by_rows = problem.layout == "NT"
    pitches = [("A", "K", k, dtype), ("B", "NK"[by_rows], k if by_rows else n, dtype)]
    if not config.swap_ab:
        pitches.append(("C", "N", n, problem.outputs[0]))
    for matrix, dimension, extent, of in pitches:
        size = bits_of(of) // 8
        if extent * size % TMA.chunk_bytes:
            raise IllegalCombination(
                f"{matrix} has rows of {extent} {of}, {extent * size} bytes; TMA needs a multiple "
                f"of {TMA.chunk_bytes}, so pad {dimension} to a multiple of "
                f"{TMA.chunk_bytes // size}."
            )
