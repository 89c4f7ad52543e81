"""cuBLASLt, called directly: its heuristic's first choice, and the best of the choices it offers.

PyTorch's ``matmul`` decides for itself when to call cuBLAS and when cuBLASLt, and offers no
epilogues. This module asks ``cublasLtMatmulAlgoGetHeuristic`` for algorithms of a GEMM and runs
one of them. The library is the one that PyTorch has loaded. Numbers of enumerations are those of
``cublasLt.h`` and ``library_types.h`` of CUDA 13.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_float, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import Any

from warploom.errors import WarploomError
from warploom.gemm_shape import GemmShape
from warploom.target.dtypes import is_float8
from warploom_bench.operands import Operands

#: cudaDataType_t
_TYPES = {
    "float16": 2, "bfloat16": 14, "float32": 0, "int8": 3, "int32": 10, "float8_e4m3fn": 28
}  # fmt: skip
#: cublasComputeType_t
_COMPUTE_32F, _COMPUTE_32I, _COMPUTE_TF32 = 68, 72, 77
#: cublasLtMatmulDescAttributes_t
_TRANSA, _TRANSB, _EPILOGUE, _BIAS, _SCALE_A, _SCALE_B = 3, 4, 7, 8, 17, 18
_FAST, _BIAS_TYPE = 25, 26
#: cublasLtMatmulPreferenceAttributes_t
_MOST_WORKSPACE = 1
#: cublasOperation_t
_TRANSPOSED = 1
#: cublasLtEpilogue_t of the epilogues that the library computes; a residual is its ``beta C``.
EPILOGUES = {"none": 1, "residual": 1, "bias": 4, "bias_gelu": 32 | 4}
#: NVIDIA's recommendation for Hopper.
_WORKSPACE_BYTES = 32 << 20


class _Algorithm(ctypes.Structure):
    """cublasLtMatmulAlgo_t, opaque."""

    _fields_ = [("data", c_uint64 * 8)]


class _Found(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [
        ("algorithm", _Algorithm),
        ("workspace", c_size_t),
        ("state", c_int32),
        ("waves", c_float),
        ("reserved", c_int32 * 4),
    ]


class _Library:
    """The functions, each of which raises if its status is not 0."""

    def __init__(self) -> None:
        for name in ("libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"):
            try:
                self._library = ctypes.CDLL(name)
                break
            except OSError:
                continue
        else:
            raise WarploomError("cuBLASLt cannot be loaded: there is no libcublasLt.so.13 or .12.")
        self.handle = c_void_p()
        self.call("Create", byref(self.handle))

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, f"cublasLt{name}")(*arguments)
        if status:
            raise WarploomError(f"cublasLt{name} returns status {status}.")


@cache
def _library() -> _Library:
    return _Library()


@dataclass
class Matmul:
    """A GEMM as cuBLASLt knows it, and the algorithms that its heuristic offers, best first.

    cuBLASLt's matrices are column-major: it computes ``C^T = B^T A^T``, so its first operand is
    our B.

    Parameters
    ----------
    torch : module
    shape : GemmShape
        With an epilogue of :data:`EPILOGUES`.
    operands : Operands
        For pointers that the description holds; any of their kind may be multiplied.
    most : int
        Algorithms to ask for.

    Raises
    ------
    WarploomError
        If the library has no algorithm for the GEMM.
    """

    torch: Any
    shape: GemmShape
    operands: Operands
    most: int = 8

    def __post_init__(self) -> None:
        shape = self.shape
        if shape.epilogue not in EPILOGUES:
            raise WarploomError(f"cuBLASLt has no epilogue {shape.epilogue!r}.")
        library = _library()
        scale = "int32" if shape.dtype == "int8" else "float32"
        compute = {"int8": _COMPUTE_32I, "tfloat32": _COMPUTE_TF32}.get(shape.dtype, _COMPUTE_32F)
        self._description = c_void_p()
        library.call(
            "MatmulDescCreate", byref(self._description), c_int32(compute), c_int32(_TYPES[scale])
        )
        if shape.layout[1] == "T":
            self._set(_TRANSA, c_int32(_TRANSPOSED))
        if shape.layout[0] == "T":
            self._set(_TRANSB, c_int32(_TRANSPOSED))
        self._set(_EPILOGUE, c_uint32(EPILOGUES[shape.epilogue]))
        if is_float8(shape.dtype):
            self._set(_FAST, ctypes.c_int8(1))
        if self.operands.bias is not None:
            self._set(_BIAS_TYPE, c_int32(_TYPES[shape.dtype]))
        self._point(self.operands)
        number = c_int32 if scale == "int32" else c_float
        self._alpha, self._beta = number(1), number(shape.epilogue == "residual")
        storage, result = _TYPES[shape.storage_dtype], _TYPES[shape.result_dtype]
        self._b = self._layout(storage, *shape.b_shape)
        self._a = self._layout(storage, *shape.a_shape)
        self._c = self._layout(result, shape.m, shape.n)
        self._workspace = self.torch.empty(
            _WORKSPACE_BYTES, dtype=self.torch.uint8, device="cuda"
        )
        self.algorithms = self._ask()

    def _set(self, attribute: int, value: Any) -> None:
        size = c_size_t(ctypes.sizeof(value))
        _library().call(
            "MatmulDescSetAttribute", self._description, c_int32(attribute), byref(value), size
        )

    def _point(self, operands: Operands) -> None:
        """Pointers that are parts of the description."""
        if operands.bias is not None:
            self._set(_BIAS, c_void_p(operands.bias.data_ptr()))
        if is_float8(self.shape.dtype):
            self._set(_SCALE_A, c_void_p(operands.scale_b.data_ptr()))
            self._set(_SCALE_B, c_void_p(operands.scale_a.data_ptr()))

    @staticmethod
    def _layout(dtype: int, rows: int, columns: int) -> c_void_p:
        """A row-major matrix: to the library, its transpose."""
        layout = c_void_p()
        _library().call(
            "MatrixLayoutCreate", byref(layout), c_int32(dtype), c_uint64(columns), c_uint64(rows),
            c_int64(columns),
        )  # fmt: skip
        return layout

    def _ask(self) -> list[_Algorithm]:
        library, preference, count = _library(), c_void_p(), c_int32()
        library.call("MatmulPreferenceCreate", byref(preference))
        most = c_size_t(_WORKSPACE_BYTES)
        library.call(
            "MatmulPreferenceSetAttribute", preference, c_int32(_MOST_WORKSPACE), byref(most),
            c_size_t(ctypes.sizeof(most)),
        )  # fmt: skip
        results = (_Found * self.most)()
        library.call(
            "MatmulAlgoGetHeuristic", library.handle, self._description, self._b, self._a,
            self._c, self._c, preference, c_int32(self.most), results, byref(count),
        )  # fmt: skip
        library.call("MatmulPreferenceDestroy", preference)
        usable = [results[i].algorithm for i in range(count.value) if results[i].state == 0]
        if not usable:
            raise WarploomError(f"cuBLASLt has no algorithm for {self.shape}.")
        return usable

    def run(self, operands: Operands, number: int = 0) -> None:
        """Compute ``operands.c`` with an algorithm of the list, on PyTorch's current stream."""
        if operands.bias is not None or is_float8(self.shape.dtype):
            self._point(operands)
        added = operands.c if operands.residual is None else operands.residual
        stream = self.torch.cuda.current_stream().cuda_stream
        library = _library()
        library.call(
            "Matmul", library.handle, self._description, byref(self._alpha),
            c_void_p(operands.b.data_ptr()), self._b, c_void_p(operands.a.data_ptr()), self._a,
            byref(self._beta), c_void_p(added.data_ptr()), self._c,
            c_void_p(operands.c.data_ptr()), self._c, byref(self.algorithms[number]),
            c_void_p(self._workspace.data_ptr()), c_size_t(_WORKSPACE_BYTES), c_void_p(stream),
        )  # fmt: skip
