"""Ready-made GEMM kernels, written in TVMScript with the vocabulary that users have.

:func:`gemm` returns the program, :func:`compile_gemm` something to call. Both take the same
arguments and choose between :mod:`sm90_gemm <warploom.kernels.sm90_gemm>` and, for few rows,
:mod:`sm90_gemm_swap_ab <warploom.kernels.sm90_gemm_swap_ab>`. They are for Hopper; the modules
``sm100_gemm*`` hold kernels for Blackwell, each with one idea: one CTA a tile, a pair of CTAs a
tile, block-scaled float8, and a persistent grid whose epilogue overlaps with the next tile.
"""

from __future__ import annotations

import tvm
from tvm.target import Target
from tvm.tirx import PrimFunc

from warploom.compiler.module_cache import remembered
from warploom.errors import IllegalCombination
from warploom.kernels.choose import choose_config
from warploom.kernels.config import GemmConfig
from warploom.kernels.matmul import matmul_multistage, matmul_warp_specialised
from warploom.kernels.sm90_gemm import sm90_gemm
from warploom.kernels.sm90_gemm_swap_ab import sm90_gemm_swap_ab
from warploom.target import default_target
from warploom.target.dtypes import is_float8, with_dtype_names
from warploom.warn import remember_author

__all__ = [
    "GemmConfig",
    "choose_config",
    "compile_gemm",
    "default_out_dtype",
    "default_target",
    "gemm",
    "matmul_multistage",
    "matmul_warp_specialised",
]


@with_dtype_names
def default_out_dtype(dtype: str) -> str:
    """The dtype of C when none is asked for: that of A and B, or bfloat16 for float8."""
    return "bfloat16" if is_float8(dtype) else dtype


@with_dtype_names
def gemm(
    m: int | None,
    n: int,
    k: int,
    dtype: str = "float16",
    out_dtype: str | None = None,
    layout: str = "NT",
    config: GemmConfig | None = None,
) -> PrimFunc:
    """The program of C = A B with float32 accumulation.

    Parameters
    ----------
    m : int or None
        Rows of A and C; None makes a program that takes any number.
    n, k : int
        Columns of C, and columns of A.
    dtype : str
        Of A and B: float16, bfloat16, float8_e4m3fn or float8_e5m2.
    out_dtype : str, optional
        Of C: float16 or bfloat16; see :func:`default_out_dtype`.
    layout : str
        ``"NT"``: B is ``[N, K]``; ``"NN"``: B is ``[K, N]``.
    config : GemmConfig, optional
        Tiles; chosen by :func:`choose_config` if not given.

    Returns
    -------
    PrimFunc
        ``(A, B, C)``, or ``(A, B, scale_a, scale_b, C)`` for float8, as
        :mod:`warploom.kernels.signature` explains.

    Raises
    ------
    IllegalCombination
        If there is no kernel for these dtypes and sizes, or ``config`` was made for others.

    Examples
    --------
    >>> gemm(None, 4096, 4096, config=GemmConfig(tile_n=128)).attrs["global_symbol"]
    'sm90_gemm_n4096_k4096_tilen128'
    """
    out_dtype = out_dtype or default_out_dtype(dtype)
    if config is None:
        config = choose_config(m, n, k, dtype, out_dtype, layout)
    for name, wanted in (("dtype", dtype), ("out_dtype", out_dtype), ("layout", layout)):
        if getattr(config, name) != wanted:
            raise IllegalCombination(
                f"The config has {name} {getattr(config, name)!r}, the call {wanted!r}; they must "
                "be equal."
            )
    build = sm90_gemm_swap_ab if config.swap_ab else sm90_gemm
    return build(config, n, k, m)


@with_dtype_names
def compile_gemm(
    m: int | None,
    n: int,
    k: int,
    dtype: str = "float16",
    out_dtype: str | None = None,
    layout: str = "NT",
    config: GemmConfig | None = None,
    target: Target | None = None,
) -> tvm.runtime.Executable:
    """Compile :func:`gemm`, by default for this machine's GPU.

    Without a GPU, and without a target, the kernel is compiled for an H200, and can be exported.

    Returns
    -------
    tvm.runtime.Executable
        Call it with the tensors of :func:`gemm`'s result.

    Raises
    ------
    IllegalCombination
        As :func:`gemm`, or if the GPU is not supported.
    """
    own_target, ctas = default_target()
    if config is None:
        wanted = out_dtype or default_out_dtype(dtype)
        config = choose_config(m, n, k, dtype, wanted, layout, ctas)
    target = target or own_target

    def build() -> tvm.runtime.Module:
        func = gemm(m, n, k, dtype, out_dtype, layout, config)
        remember_author(str(func.attrs["global_symbol"]), None)
        module = tvm.IRModule({"main": func})
        return tvm.compile(module, target=target, tir_pipeline="tirx").mod

    # Not even parsed, if it was compiled before.
    arguments = [m, n, k, dtype, out_dtype, layout, repr(config), str(target)]
    return tvm.runtime.Executable(remembered(lambda: {"compile_gemm": arguments}, build))
