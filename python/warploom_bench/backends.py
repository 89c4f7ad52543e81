"""The competitors of ``bench gemm``: several ways of this package, and the libraries.

Ours are functions that compile a kernel (:mod:`warploom_bench.competitors`). A library makes a
function of :class:`Operands` for a shape, which writes ``operands.c`` on PyTorch's current stream;
or None if it has nothing for the shape.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

from warploom.errors import WarploomError
from warploom.gemm_shape import GemmShape
from warploom.target.dtypes import bits_of, is_float8
from warploom_bench import competitors, cublaslt
from warploom_bench import operands as ops
from warploom_bench.compete import GRAPH_OPERATIONS

#: Computes ``operands.c`` from the other operands.
Competitor = Callable[[ops.Operands], object]
#: ``(torch, shape, operand sets) -> competitor``
Library = Callable[[Any, GemmShape, Sequence[Any]], Competitor | None]
#: Executions by which the best of several algorithms is found.
_TRIAL_EXECUTIONS, _MOST_EXECUTIONS, _TRIALS = 4, 40, 3
#: Algorithms of a library that compete with everybody else, after a quick comparison of all.
_FINALISTS = 3


def cublaslt_gemm(torch: Any, shape: GemmShape, sets: Sequence[Any]) -> Competitor | None:
    """The first choice of cuBLASLt's heuristic, with the library's own epilogue where it has one.

    After a GEMM with swiglu, which it has not, one kernel of torch.compile.
    """
    return _library_gemms(torch, shape, sets, most=1)[0]


def cublaslt_algorithms(torch: Any, shape: GemmShape, sets: Sequence[Any]) -> list[Competitor]:
    """The fastest few of the eight best choices of cuBLASLt's heuristic, by a quick comparison."""
    algorithms = _library_gemms(torch, shape, sets, most=8)
    seconds = {competitor: _seconds(torch, shape, competitor, sets) for competitor in algorithms}
    able = [competitor for competitor in algorithms if math.isfinite(seconds[competitor])]
    return sorted(able, key=seconds.__getitem__)[:_FINALISTS]


def _library_gemms(
    torch: Any, shape: GemmShape, sets: Sequence[Any], most: int
) -> list[Competitor]:
    plain, after = shape, None
    if shape.epilogue not in cublaslt.EPILOGUES:
        plain = dataclasses.replace(shape, epilogue="none")
        total = torch.empty(
            (shape.m, shape.n), dtype=getattr(torch, shape.result_dtype), device="cuda"
        )

        def finish(total: Any, c: Any) -> None:
            c.copy_(ops.epilogue(torch, shape, ops.Operands(*[None] * 4, c), total))

        fused = torch.compile(finish, dynamic=False)

        def after(operands: ops.Operands) -> None:
            fused(total, operands.c)

    matmul = cublaslt.Matmul(torch, plain, sets[0])

    def competitor(number: int) -> Competitor:
        if after is None:
            return lambda operands: matmul.run(operands, number)

        def run(operands: ops.Operands) -> None:
            matmul.run(dataclasses.replace(operands, c=total), number)
            after(operands)

        return run

    return [competitor(i) for i in range(min(most, len(matmul.algorithms)))]


def fastest(
    torch: Any, shape: GemmShape, competitors: Sequence[Competitor], sets: Sequence[Any]
) -> Competitor:
    """Return the fastest GEMM, timed as the benchmark times it: short GEMMs as CUDA graphs.

    Those that fail are left out; the first of all if every one does.
    """
    times = [_seconds(torch, shape, competitor, sets) for competitor in competitors]
    return competitors[times.index(min(times))]


def _seconds(torch: Any, shape: GemmShape, competitor: Competitor, sets: Sequence[Any]) -> float:
    """A quick comparison: the least of a few measurements of executions in a row."""
    from warploom_bench.torch_timer import TorchTimer, capture

    try:
        competitor(sets[0])
    except WarploomError:  # an algorithm of cuBLASLt's heuristic may decline when it is called
        return math.inf
    timer, seconds = TorchTimer(torch), []
    executions = max(_TRIAL_EXECUTIONS, min(len(sets), _MOST_EXECUTIONS))

    def launch(number: int) -> None:
        competitor(sets[number % len(sets)])

    def run() -> None:
        for number in range(_TRIAL_EXECUTIONS):
            launch(number)

    if shape.operations < GRAPH_OPERATIONS:
        run = capture(torch, launch, executions, executions)
    for _ in range(_TRIALS):
        timer.idle(0.0)
        seconds.append(timer.elapsed(run, run))
    return min(seconds)


def torch_gemm(torch: Any, shape: GemmShape, sets: Sequence[Any]) -> Competitor | None:
    """PyTorch, kernel by kernel."""
    if shape.dtype == "int8":
        a, b = ops.left, ops.right
        return lambda o: torch._int_mm(a(shape, o), b(shape, o), out=o.c)
    if is_float8(shape.dtype):
        return lambda o: torch._scaled_mm(
            o.a, o.b.T, o.scale_a, o.scale_b, out_dtype=o.c.dtype, use_fast_accum=True, out=o.c
        )

    def run(operands: ops.Operands) -> None:
        torch.backends.cuda.matmul.allow_tf32 = shape.dtype == "tfloat32"
        a, b, c = ops.left(shape, operands), ops.right(shape, operands), operands.c
        if shape.epilogue == "none":
            torch.matmul(a, b, out=c)
        elif shape.epilogue in ("bias", "residual"):
            added = operands.bias if shape.epilogue == "bias" else operands.residual
            torch.addmm(added, a, b, out=c)
        elif shape.epilogue == "bias_gelu":
            total = torch.addmm(operands.bias, a, b)
            torch._C._nn.gelu(total, approximate="tanh", out=c)
        else:
            gate, up = (a @ b).chunk(2, dim=1)
            torch.mul(torch.nn.functional.silu(gate), up, out=c)

    return run


def torch_compile_gemm(torch: Any, shape: GemmShape, sets: Sequence[Any]) -> Competitor | None:
    """torch.compile of GEMM and epilogue, which chooses among its templates and cuBLAS."""
    if is_float8(shape.dtype) or shape.dtype == "int8":
        return None

    def whole(a: Any, b: Any, bias: Any, residual: Any, c: Any) -> None:
        operands = ops.Operands(a, b, None, None, c, bias, residual)
        total = ops.left(shape, operands) @ ops.right(shape, operands)
        c.copy_(ops.epilogue(torch, shape, operands, total))

    torch.backends.cuda.matmul.allow_tf32 = shape.dtype == "tfloat32"
    fused = torch.compile(whole, dynamic=False, mode="max-autotune-no-cudagraphs")
    return lambda o: fused(o.a, o.b, o.bias, o.residual, o.c)


def triton_gemm(torch: Any, shape: GemmShape, sets: Sequence[Any]) -> Competitor | None:
    """A kernel in Triton, autotuned over a few tiles; without epilogues."""
    if shape.epilogue != "none":
        return None
    return importlib.import_module("warploom_bench.triton_gemm").gemm(torch, shape, sets)


def tilelang_gemm(torch: Any, shape: GemmShape, sets: Sequence[Any]) -> Competitor | None:
    """A kernel in TileLang, the fastest of a few tiles; 16-bit types, NT, without epilogues."""
    if (shape.layout, shape.epilogue) != ("NT", "none") or bits_of(shape.storage_dtype) != 16:
        return None
    module = importlib.import_module("warploom_bench.tilelang_gemm")
    return fastest(torch, shape, module.gemms(torch, shape), sets)


#: By name: ``(shape, databases) -> executable``.
OURS: dict[str, Callable[..., Any]] = {
    "default": competitors.default,
    "tuned": competitors.tuned,
    "tile-program": competitors.tile_program,
}
#: Ratios refer to the first of those that compete.
LIBRARIES: dict[str, Library] = {
    "cublaslt": cublaslt_gemm,
    "torch": torch_gemm,
    "torch-compile": torch_compile_gemm,
    "triton": triton_gemm,
    "tilelang": tilelang_gemm,
}
#: Algorithms of a library that compete one by one; the best of them gets an entry.
SEVERAL: dict[str, Callable[[Any, GemmShape, Sequence[Any]], list[Competitor]]] = {
    "cublaslt-best": cublaslt_algorithms,
}
