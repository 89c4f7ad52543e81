"""Something to call that multiplies matrices: a config, its tile program, compiled."""

from __future__ import annotations

import tvm
from tvm.target import Target

from warploom.compiler.module_cache import remembered
from warploom.decide.config import Config
from warploom.decide.selector import choose
from warploom.programs.gemm import gemm
from warploom.programs.gemm_matrices import problem_of_matrices
from warploom.target import default_target
from warploom.target.dtypes import with_dtype_names
from warploom.warn import remember_author


@with_dtype_names
def compile_gemm(
    m: int | None,
    n: int,
    k: int,
    dtype: str = "float16",
    out_dtype: str | None = None,
    layout: str = "NT",
    config: Config | None = None,
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
        Of C: float16 or bfloat16; by default that of A and B, bfloat16 for float8.
    layout : str
        ``"NT"``: B is ``[N, K]``; ``"NN"``: B is ``[K, N]``.
    config : Config, optional
        By default the model's choice, :func:`warploom.decide.ranking`.
    target : Target, optional
        A GPU of compute capability 9.0.

    Returns
    -------
    tvm.runtime.Executable
        Call it with the arguments of :func:`gemm`.

    Raises
    ------
    IllegalCombination
        If there is no kernel for these dtypes and sizes, no kernel for them can have ``config``, or
        the GPU is not supported.

    Examples
    --------
    >>> product = compile_gemm(None, 4096, 4096, dtype="bfloat16")
    """
    problem = problem_of_matrices(m, n, k, dtype, out_dtype, layout)
    config = config or choose(problem)
    target = target or default_target()[0]

    def build() -> tvm.runtime.Module:
        func = gemm(config, n, k, m, dtype, out_dtype, layout)
        remember_author(str(func.attrs["global_symbol"]), None)
        module = tvm.IRModule({"main": func})
        return tvm.compile(module, target=target, tir_pipeline="warploom").mod

    # Not even parsed, if it was compiled before.
    arguments = [str(problem), repr(config), str(target)]
    return tvm.runtime.Executable(remembered(lambda: {"compile_gemm": arguments}, build))
