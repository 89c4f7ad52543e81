"""Runs the kernels of tutorials, on a GPU or on its emulator, and compares them with numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from warploom import emulator
from warploom.errors import WarploomError

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc

#: Largest ``|C - A B^T| / |A B^T|`` (Frobenius norms) of a right float16 result: half a unit in
#: the last place, on average, and room for the order of the summation.
ALLOWED_ERROR = 5e-4


def check_matmul(
    make: Callable[..., PrimFunc], cases: Iterable[Sequence[int]], arch: str = "sm_90a"
) -> None:
    """Run the kernels of ``C = A B^T`` that ``make`` builds and compare C with numpy.

    They run on the GPU of this machine if it is of that architecture, otherwise on the emulator,
    which also looks for races.

    Parameters
    ----------
    make : callable
        ``make(m, n, k, ...)`` returns a kernel ``(A, B, C)`` of float16 matrices: A ``[m, k]``,
        B ``[n, k]``, C ``[m, n]``.
    cases : iterable of sequence of int
        Arguments of ``make``, the extents first.
    arch : str
        ``"sm_90a"`` or ``"sm_100a"``.

    Raises
    ------
    WarploomError
        If a result is wrong or incomplete.
    EmulatorError
        The emulator's reports.
    """
    for case in cases:
        m, n, k = case[:3]
        rng = np.random.default_rng(m + n + k)
        a, b = (rng.standard_normal((rows, k)).astype(np.float16) for rows in (m, n))
        # Poison: an element that the kernel leaves out makes the error NaN.
        c = np.full((m, n), np.nan, np.float16)
        result, place = _run(make(*case), [a, b, c], arch)
        expected = a.astype(np.float64) @ b.astype(np.float64).T
        error = np.linalg.norm(result - expected) / np.linalg.norm(expected)
        print(f"C[{m}, {n}], K = {k}: relative error {error:.1e} on {place}")
        if not error <= ALLOWED_ERROR:
            raise WarploomError(
                f"C[{m}, {n}] = A[{m}, {k}] B[{n}, {k}]^T has a relative error of {error:.1e}; "
                f"at most {ALLOWED_ERROR:.0e} is right."
            )


def check_program(
    func: PrimFunc, inputs: Sequence[np.ndarray], expected: np.ndarray,
    arch: str = "sm_90a", tolerance: float = 5e-3,
) -> None:  # fmt: skip
    """Run a tile program by the interpreter and as a kernel, and compare its last parameter.

    Parameters
    ----------
    func : PrimFunc
        Its parameters are the inputs and, last, a result; or the inputs alone, of which the last
        is changed in place.
    inputs : sequence of numpy.ndarray
    expected : numpy.ndarray
        The result.
    arch : str
        ``"sm_90a"`` or ``"sm_100a"``.
    tolerance : float
        Allowed error, in terms of the largest element of the result.

    Raises
    ------
    WarploomError
        If a result is wrong or incomplete.
    EmulatorError
        The emulator's reports.
    """
    from warploom import language as wl

    arrays = [one.copy() for one in inputs]
    if len(func.params) > len(inputs):
        kind = str(func.params[-1].dtype)
        arrays.append(np.full(expected.shape, np.nan, kind))
    meant = [one.copy() for one in arrays]
    wl.interpret(func, meant)
    found, place = _run(func, arrays, arch, "warploom")
    for where, result in (("the interpreter", meant[-1]), (place, found)):
        difference = np.abs(result.astype(np.float64) - expected.astype(np.float64)).max()
        error = difference / max(np.abs(expected.astype(np.float64)).max(), 1e-30)
        if not error <= tolerance:
            raise WarploomError(
                f"The result of {where} has an error of {error:.1e}, in terms of its largest "
                f"element; at most {tolerance:.1e} is right."
            )


def _run(
    func: PrimFunc, arrays: list[np.ndarray], arch: str, pipeline: str = "tirx"
) -> tuple[np.ndarray, str]:
    """The last array after a call, and where it was computed."""
    import tvm

    from warploom.target import cuda_target, default_target

    emulator.enable_without_gpu()
    is_own = default_target()[0].attrs.get("arch") == arch
    if emulator.is_enabled() or not tvm.cuda(0).exist or not is_own:
        outputs = emulator.run(func, arrays, arch=arch).outputs
        return outputs[-1], f"an emulated GPU ({arch})"
    executable = tvm.compile(
        tvm.IRModule({"main": func}), cuda_target(arch), tir_pipeline=pipeline
    )
    tensors = [tvm.runtime.tensor(array, tvm.cuda(0)) for array in arrays]
    executable["main"](*tensors)
    return tensors[-1].numpy(), tvm.cuda(0).device_name


def check_assembled(func: PrimFunc, arch: str = "sm_100a") -> None:
    """Let ptxas assemble a kernel, and print its resources; needs no GPU.

    Raises
    ------
    WarploomError
        If registers were spilled or something else has to be repaired.
    """
    from warploom.compiler.report import compile_report

    report = compile_report(func, {"kind": "cuda", "arch": arch})
    for kernel in report.kernels:
        print(
            f"assembled for {arch}: {kernel.info.registers} registers, "
            f"{kernel.spill_store_bytes} bytes spilled"
        )
    if report.problems:
        raise WarploomError(f"The kernel for {arch} has problems:\n{report}")
