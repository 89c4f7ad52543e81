"""The reference result of a function, computed in another way than the measured kernel.

Small functions run on the CPU as they are; large ones run on the same device with schedules that
use no tensor cores: those of TVM's dlight, or one of our own. Inputs for checks are small multiples
of 1/2, whose sums of products are exact in any order, so that any step of a sum left out shows.
Functions that are no GEMMs may compute anything of them, and differ by what roundings in another
order make of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm.runtime import Executable
from tvm.s_tir import SBlock
from tvm.s_tir import dlight as dl
from tvm.s_tir.analysis import estimate_tir_flops
from tvm.target import Target
from tvm.tirx import BufferStore, PrimFunc

from warploom.meta_schedule.plain_schedule import scheduled_apart
from warploom.target.dtypes import bits_of
from warploom.tile import ir

#: Operations that a CPU executes in about a second, without any schedule.
_HOST_OPERATIONS = 1e9
#: Values that inputs of checks are drawn from.
_VALUES = np.array([-1.0, -0.5, 0.5, 1.0])
_INTEGERS = np.array([-2, -1, 1, 2])
#: The same where integers may be indices.
_INDICES = np.array([0, 1])
#: Length of the random sequence that inputs repeat; a prime, so that rows of a matrix differ.
_PERIOD = 1_000_003
#: Largest difference from the reference, in units of the last place of the largest result.
_UNITS = 4.0
#: The same where results are not exact, in parts of the largest result, by bits of an element.
_PARTS = {64: 1e-6, 32: 1e-3, 16: 0.03, 8: 0.25}
#: Bits of a sum that is not rounded much on the way.
_SUM_BITS = 32
#: Elements that are compared at once, as float64.
_AT_ONCE = 1 << 22


def outputs_of(func: PrimFunc) -> tuple[int, ...]:
    """The positions of the tensor parameters that a function stores to."""
    stored: set[Any] = set()
    tvm_ffi.structural_walk(func.body, (BufferStore, lambda store: stored.add(store.buffer)))
    tensors = [param for param in func.params if ir.is_buffer(param)]
    return tuple(number for number, param in enumerate(tensors) if param in stored)


def updated_of(func: PrimFunc) -> tuple[int, ...]:
    """The positions of the tensor parameters that a function stores to and also reads.

    Reading a sum in order to add to it, in a block that sets it first, is not counted.
    """
    read: set[Any] = set()

    def visit(block: SBlock) -> None:
        own: set[Any] = set()
        if block.init is not None:
            tvm_ffi.structural_walk(block.init, (BufferStore, lambda store: own.add(store.buffer)))
        read.update(region.source for region in block.reads if region.source not in own)

    tvm_ffi.structural_walk(func.body, (SBlock, visit))
    tensors = [param for param in func.params if ir.is_buffer(param)]
    return tuple(number for number in outputs_of(func) if tensors[number] in read)


def rounds_sums(func: PrimFunc) -> bool:
    """Whether a function keeps partial sums in fewer than 32 bits.

    Sums of small multiples of 1/2 are exact even so, but not those of dequantised weights: over
    4096 of them TVM's own kernel was 11 off, of 567.
    """
    sums: list[str] = []

    def visit(block: SBlock) -> None:
        if block.init is not None:
            tvm_ffi.structural_walk(
                block.init, (BufferStore, lambda store: sums.append(str(store.buffer.dtype)))
            )

    tvm_ffi.structural_walk(func.body, (SBlock, visit))
    return any("float" in dtype and bits_of(dtype) < _SUM_BITS for dtype in sums)


def build_reference(func: PrimFunc, target: Target, path: Path) -> None:
    """Compile a function as it is, for the CPU if it is small.

    Parameters
    ----------
    func : PrimFunc
        Without decisions.
    target : Target
        Of the candidates.
    path : Path
        The library to write.
    """
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    built = tvm.compile(mod, Target("llvm")) if runs_on_host(mod) else _compiled(mod, target)
    built.export_library(str(path))


def _compiled(mod: tvm.IRModule, target: Target) -> Executable:
    """The module as kernels, by TVM's rules where they lead to some."""
    rules = (
        dl.gpu.Matmul(), dl.gpu.GEMV(), dl.gpu.Reduction(), dl.gpu.GeneralReduction(),
        dl.gpu.Fallback(),
    )  # fmt: skip
    try:
        with target:
            return tvm.compile(dl.ApplyDefaultSchedule(*rules)(mod), target)
    # Each rule fails in a way of its own: an operand that is read twice is an AssertionError, one
    # row of packed weights a KeyError, and what a rule made of a block may not compile.
    except Exception:
        made = scheduled_apart(mod)
        if made is None:
            raise
        return tvm.compile(made, target)


def runs_on_host(mod: tvm.IRModule) -> bool:
    """Whether a module is small enough for the CPU."""
    return estimate_tir_flops(mod) <= _HOST_OPERATIONS


def exact_input(
    shape: Sequence[int], dtype: str, rng: np.random.Generator, indices: bool = False
) -> np.ndarray:
    """Numbers whose sums of products are exact; integers that may be indices, if they are."""
    whole = _INDICES if indices else _INTEGERS
    return _fill(shape, dtype, rng.choice(whole if _is_integer(dtype) else _VALUES, _PERIOD))


def normal_input(
    shape: Sequence[int], dtype: str, rng: np.random.Generator, indices: bool = False
) -> np.ndarray:
    """Numbers as the ones in real tensors, which cost a GPU the same energy."""
    if _is_integer(dtype):
        return _fill(shape, dtype, rng.integers(*((0, 2) if indices else (-100, 100)), _PERIOD))
    return _fill(shape, dtype, rng.standard_normal(_PERIOD))


def _is_integer(dtype: str) -> bool:
    return dtype.startswith(("int", "uint", "bool"))


def _fill(shape: Sequence[int], dtype: str, values: np.ndarray) -> np.ndarray:
    if dtype.startswith("u"):  # packed small integers: all bits matter
        values = values.astype("int64") * 0x9E3779B1 & (2 ** min(32, int(dtype[4:])) - 1)
    return np.resize(values.astype(_numpy_dtype(dtype)), tuple(shape))


def _numpy_dtype(dtype: str) -> Any:
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, dtype, dtype))


def is_wrong(result: np.ndarray, right: np.ndarray, exact: bool = True) -> str | None:
    """How a result differs from the reference; None if it does not by more than rounding.

    Parameters
    ----------
    found, right : ndarray
        Of the same shape and dtype.
    exact : bool
        Whether only the last step rounds. If not, much of the accuracy may be lost, and what is no
        number in the reference may be so in the result.

    Notes
    -----
    An infinite element counts as the largest number: rounding decides which of the two is stored.
    """
    if _same_bits(result, right):
        return None
    places = np.flatnonzero(_words(result) != _words(right))
    flat = result.reshape(-1), right.reshape(-1)
    difference = np.empty(len(places))
    is_near = True
    for begin in range(0, len(places), _AT_ONCE):
        part = slice(begin, begin + _AT_ONCE)
        difference[part], near = _differences(*(values[places[part]] for values in flat), exact)
        is_near = is_near and near
    if is_near:
        return None
    finite = np.abs(right.astype("float32"))
    allowed = _allowed(float(finite[np.isfinite(finite)].max(initial=0.0)), right.dtype, exact)
    wrong = int(np.count_nonzero(difference > allowed))
    if wrong == 0:
        return None
    worst = int(places[difference.argmax()])
    place = divmod(worst, right.shape[-1] if right.ndim else 1)
    return (
        f"{wrong} of {result.size} elements differ; the worst, at {place}, is "
        f"{float(flat[0][worst]):g} and should be {float(flat[1][worst]):g}"
    )


def _differences(result: np.ndarray, right: np.ndarray, exact: bool) -> tuple[np.ndarray, bool]:
    """The largest difference of elements, and whether each is within the error for its size.

    The largest of all results allows no less, and is not looked for if that is enough.
    """
    mine, other = _finite(result), _finite(right)
    difference = np.abs(mine - other)
    difference = np.where(np.isnan(difference), np.inf, difference)
    if not exact:
        difference[np.isnan(mine) & np.isnan(other)] = 0.0
    return difference, bool(np.all(difference <= _allowed(np.abs(other), right.dtype, exact)))


def _same_bits(result: np.ndarray, right: np.ndarray) -> bool:
    """Whether all bytes are equal; in words, which takes a small part of the time."""
    bytes_of = [array.reshape(-1).view("uint8") for array in (result, right)]
    whole = result.nbytes // 8 * 8
    words = (array[:whole].view("uint64") for array in bytes_of)
    ends = (array[whole:] for array in bytes_of)
    return result.nbytes == right.nbytes and np.array_equal(*words) and np.array_equal(*ends)


def _allowed(size: Any, dtype: Any, exact: bool) -> Any:
    """Return the allowed error of results of a size."""
    epsilon = _epsilon(dtype)
    if exact or epsilon == 0:
        return _UNITS * epsilon * np.maximum(1.0, size)
    return _PARTS[dtype.itemsize * 8] * size


def _words(array: np.ndarray) -> np.ndarray:
    """The bits of each element, in one dimension."""
    return array.reshape(-1).view(f"u{array.itemsize}")


def _finite(array: np.ndarray) -> np.ndarray:
    """As float64, with the largest number of the dtype for infinite elements."""
    if _epsilon(array.dtype) == 0:
        return array.astype("float64")
    largest = float(_limits(array.dtype).max)
    return np.clip(array.astype("float64"), -largest, largest)


def _epsilon(dtype: Any) -> float:
    if np.issubdtype(dtype, np.integer) or np.issubdtype(dtype, np.bool_):
        return 0.0
    return float(_limits(dtype).eps)


def _limits(dtype: Any) -> Any:
    import ml_dtypes

    return ml_dtypes.finfo(dtype)
