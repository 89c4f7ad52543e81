"""Who computes a product in ``bench gemm``: this package in several ways, and the libraries.

A backend makes a function of :class:`Operands` for a shape, which writes ``operands.c`` on
PyTorch's current stream; or None if it has nothing for the shape.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from warploom.bench import cublaslt
from warploom.bench import operands as ops
from warploom.bench.competitors import Product, our_product, tile_product
from warploom.bench.suite import GemmShape
from warploom.bench.workloads import arguments, function
from warploom.errors import WarploomError
from warploom.target.dtypes import is_float8

#: ``(torch, shape, operand sets, databases) -> product``
Backend = Callable[[Any, GemmShape, Sequence[Any], Sequence[Path]], Product | None]
#: Executions by which the best of several algorithms is found.
_TRIAL_EXECUTIONS, _TRIALS = 4, 3


def default_product(
    torch: Any, shape: GemmShape, sets: Sequence[Any], databases: Sequence[Path] = ()
) -> Product | None:
    """The ``te`` function of the shape as TVM compiles it with our rule: no tuning."""
    return _scheduled(shape, None)


def tuned_product(
    torch: Any, shape: GemmShape, sets: Sequence[Any], databases: Sequence[Path]
) -> Product | None:
    """The same with the records of ``databases``, or of what the package ships if there are none.

    None where they have nothing for the shape: it would be the default again.
    """
    from warploom.gemm.recognition import recognise
    from warploom.meta_schedule.lookup import Lookup

    lookup = Lookup.of_folders(databases) if databases else Lookup.shipped()
    if lookup.best(recognise(function(shape)).problem) is None:
        return None
    return _scheduled(shape, lookup)


def _scheduled(shape: GemmShape, lookup: Any) -> Product | None:
    import tvm
    from tvm.s_tir import dlight

    from warploom import dlight as rules
    from warploom.gemm.decisions import has_decisions
    from warploom.target.tvm_target import default_target

    target, _ = default_target()
    with target:
        rule = dlight.ApplyDefaultSchedule(rules.Matmul(lookup=lookup))
        mod = rule(tvm.IRModule({"main": function(shape)}))
    if not has_decisions(mod["main"]):
        raise WarploomError(f"The function of {shape} is not taken by warploom.dlight.Matmul.")
    main = tvm.compile(mod, target)["main"]
    return lambda operands: main(*arguments(shape, operands))


def by_hand_product(
    torch: Any, shape: GemmShape, sets: Sequence[Any], databases: Sequence[Path] = ()
) -> Product | None:
    """The kernel of ``warploom.kernels``: float16, bfloat16 and float8, NT, no epilogue."""
    return our_product(shape) if _plain(shape) else None


def tile_program_product(
    torch: Any, shape: GemmShape, sets: Sequence[Any], databases: Sequence[Path] = ()
) -> Product | None:
    """The program of ``warploom.programs`` with the tiles of that kernel."""
    return tile_product(shape) if _plain(shape) else None


def _plain(shape: GemmShape) -> bool:
    dtypes = ("float16", "bfloat16", "float8_e4m3fn")
    return shape.dtype in dtypes and (shape.layout, shape.epilogue) == ("NT", "none")


def cublaslt_product(
    torch: Any, shape: GemmShape, sets: Sequence[Any], databases: Sequence[Path] = ()
) -> Product | None:
    """The first choice of cuBLASLt's heuristic, with the library's own epilogue where it has one.

    After a product with swiglu, which it has not, one kernel of torch.compile.
    """
    return _library_product(torch, shape, sets, best=False)


def cublaslt_best_product(
    torch: Any, shape: GemmShape, sets: Sequence[Any], databases: Sequence[Path] = ()
) -> Product | None:
    """The fastest of the eight best choices of cuBLASLt's heuristic, timed here."""
    return _library_product(torch, shape, sets, best=True)


def _library_product(torch: Any, shape: GemmShape, sets: Sequence[Any], best: bool) -> Product:
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

    def product(number: int) -> Product:
        if after is None:
            return lambda operands: matmul.run(operands, number)

        def run(operands: ops.Operands) -> None:
            matmul.run(dataclasses.replace(operands, c=total), number)
            after(operands)

        return run

    if not best:
        return product(0)
    times = [_seconds(torch, product(i), sets) for i in range(len(matmul.algorithms))]
    return product(times.index(min(times)))


def _seconds(torch: Any, product: Product, sets: Sequence[Any]) -> float:
    """A quick comparison: the least of a few measurements of executions in a row."""
    from warploom.bench.torch_timer import TorchTimer

    timer, found = TorchTimer(torch), []

    def run() -> None:
        for number in range(_TRIAL_EXECUTIONS):
            product(sets[number % len(sets)])

    for _ in range(_TRIALS):
        timer.idle(0.0)
        found.append(timer.elapsed(run, run))
    return min(found)


def torch_product(
    torch: Any, shape: GemmShape, sets: Sequence[Any], databases: Sequence[Path] = ()
) -> Product | None:
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


def torch_compile_product(
    torch: Any, shape: GemmShape, sets: Sequence[Any], databases: Sequence[Path] = ()
) -> Product | None:
    """torch.compile of product and epilogue, which chooses among its templates and cuBLAS."""
    if is_float8(shape.dtype) or shape.dtype == "int8":
        return None

    def whole(a: Any, b: Any, bias: Any, residual: Any, c: Any) -> None:
        operands = ops.Operands(a, b, None, None, c, bias, residual)
        total = ops.left(shape, operands) @ ops.right(shape, operands)
        c.copy_(ops.epilogue(torch, shape, operands, total))

    torch.backends.cuda.matmul.allow_tf32 = shape.dtype == "tfloat32"
    fused = torch.compile(whole, dynamic=False, mode="max-autotune-no-cudagraphs")
    return lambda o: fused(o.a, o.b, o.bias, o.residual, o.c)


#: By name. The first group is ours; ratios refer to the first of the others that competes.
OURS: dict[str, Backend] = {
    "default": default_product,
    "tuned": tuned_product,
    "by-hand": by_hand_product,
    "tile-program": tile_program_product,
}
LIBRARIES: dict[str, Backend] = {
    "cublaslt": cublaslt_product,
    "cublaslt-best": cublaslt_best_product,
    "torch": torch_product,
    "torch-compile": torch_compile_product,
}
