"""Two matmuls that are generated for whatever is asked: with roles, and without.

Both compute C = A B with any operand types of the tensor core, ragged edges, any legal tile, any
number of stages. They are plain on purpose, one tile of C a CTA, to be read, changed and compared;
:func:`warploom.programs.gemm` is the fast one. They are no tile programs, because they show what
passes decide there: the emitter's instructions, and a log of who waits for which mbarrier.
"""

from __future__ import annotations

from typing import Any

from tvm.tirx import PrimFunc

from warploom.errors import IllegalCombination
from warploom.kernels.matmul_spec import MatmulSpec
from warploom.kernels.sm90_matmul_multistage import sm90_matmul_multistage
from warploom.kernels.sm90_matmul_warp_specialised import sm90_matmul_warp_specialised
from warploom.target.dtypes import with_dtype_names


@with_dtype_names
def matmul_spec(specialised: bool, dtype: str = "float16", **choices: Any) -> MatmulSpec:
    """A specification in which what is left out follows from the dtype of A.

    B has the same dtype, sums are in float32 (int32 for integers), C holds them as they are.

    Raises
    ------
    IllegalCombination
        If there is no such kernel, or no such choice.
    """
    unknown = sorted(choices.keys() - MatmulSpec.__dataclass_fields__.keys())
    if unknown:
        allowed = ", ".join(sorted(MatmulSpec.__dataclass_fields__.keys() - {"specialised"}))
        raise IllegalCombination(f"matmul: no choice {unknown[0]!r}; allowed are {allowed}.")
    choices.setdefault("b_dtype", dtype)
    choices.setdefault("accumulator", "int32" if "int" in dtype else "float32")
    choices.setdefault("out_dtype", choices["accumulator"])
    return MatmulSpec(specialised=specialised, dtype=dtype, **choices)


@with_dtype_names
def matmul_multistage(
    m: int | None, n: int, k: int, dtype: str = "float16", **choices: Any
) -> PrimFunc:
    """A matmul whose multiplying warpgroups load too, some stages ahead.

    Parameters
    ----------
    m : int or None
        Rows of C; None makes a kernel for any number.
    n, k : int
        Columns of C, and the extent that is summed over.
    dtype : str
        Of A, and of B unless ``b_dtype`` says otherwise.
    **choices
        Fields of :class:`~warploom.kernels.matmul_spec.MatmulSpec`.

    Returns
    -------
    PrimFunc
        ``(A, B, C)`` with the layouts that ``layout=`` names, by default A ``[M, K]`` and B
        ``[N, K]``. Its name says what it was generated for.

    Raises
    ------
    IllegalCombination
        If there is no such kernel, or TMA cannot load such matrices.

    Examples
    --------
    >>> matmul_multistage(None, 1000, 520, stages=4).attrs["global_symbol"]
    'sm90_matmul_multistage_m_any_n1000_k520_specialised0_stages4'
    """
    return sm90_matmul_multistage(matmul_spec(False, dtype, **choices), m, n, k)


@with_dtype_names
def matmul_warp_specialised(
    m: int | None, n: int, k: int, dtype: str = "float16", **choices: Any
) -> PrimFunc:
    """A matmul with a producer, whose single thread loads, and consumer warpgroups, which multiply.

    Parameters, result and errors are those of :func:`matmul_multistage`.

    Examples
    --------
    >>> func = matmul_warp_specialised(
    ...     4096, 4096, 4096, tile=(128, 256, 64), consumers=2, registers=(40, 232)
    ... )
    >>> func.attrs["global_symbol"]
    'sm90_matmul_warp_specialised_m4096_n4096_k4096_tile128x256x64_consumers2_registers40x232'
    """
    return sm90_matmul_warp_specialised(matmul_spec(True, dtype, **choices), m, n, k)
