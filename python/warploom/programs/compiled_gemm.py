"""Something to call that multiplies matrices: a configuration, its tile program, compiled."""

from __future__ import annotations

import tvm
from tvm.target import Target

from warploom.compiler.module_cache import remembered
from warploom.errors import IllegalCombination
from warploom.programs.choose_gemm import choose_config
from warploom.programs.gemm import gemm
from warploom.programs.gemm_config import GemmConfig
from warploom.target import default_target
from warploom.target.dtypes import is_float8, with_dtype_names
from warploom.warn import remember_author


@with_dtype_names
def default_out_dtype(dtype: str) -> str:
    """The dtype of C when none is asked for: that of A and B, or bfloat16 for float8."""
    return "bfloat16" if is_float8(dtype) else dtype


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
    """Compile C = A B with float32 accumulation, by default for this machine's GPU.

    Without a GPU, and without a target, the kernel is compiled for an H200, and can be exported.

    Parameters
    ----------
    m : int or None
        Rows of A and C; None makes a kernel that takes any number.
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
    target : Target, optional
        A GPU of compute capability 9.0.

    Returns
    -------
    tvm.runtime.Executable
        Call it with the arguments of :func:`gemm`.

    Raises
    ------
    IllegalCombination
        If there is no kernel for these dtypes and sizes, ``config`` was made for others, or the
        GPU is not supported.

    Examples
    --------
    >>> product = compile_gemm(None, 4096, 4096, dtype="bfloat16")
    """
    own_target, ctas = default_target()
    out_dtype = out_dtype or default_out_dtype(dtype)
    if config is None:
        config = choose_config(m, n, k, dtype, out_dtype, layout, ctas)
    for name, wanted in (("dtype", dtype), ("out_dtype", out_dtype), ("layout", layout)):
        if getattr(config, name) != wanted:
            raise IllegalCombination(
                f"The config has {name} {getattr(config, name)!r}, the call {wanted!r}; they must "
                "be equal."
            )
    target = target or own_target

    def build() -> tvm.runtime.Module:
        func = gemm(config, n, k, m)
        remember_author(str(func.attrs["global_symbol"]), None)
        module = tvm.IRModule({"main": func})
        return tvm.compile(module, target=target, tir_pipeline="warploom").mod

    # Not even parsed, if it was compiled before.
    arguments = [m, n, k, repr(config), str(target)]
    return tvm.runtime.Executable(remembered(lambda: {"compile_gemm": arguments}, build))
