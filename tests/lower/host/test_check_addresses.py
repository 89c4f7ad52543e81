"""Operands that begin anywhere in their memory: right where TMA takes them, else named."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi

from warploom.decide import Config
from warploom.programs import gemm
from warploom.target import default_target

pytestmark = pytest.mark.gpu
_SIZE = 64
_POINTER = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class _Moved:
    """A tensor that begins so many bytes further, without a byte offset: what PyTorch slices."""

    def __init__(self, tensor: Any, by: int) -> None:
        self._device, self._capsule = tensor.__dlpack_device__(), tensor.__dlpack__()
        # The address is the first member of a DLTensor.
        address = ctypes.c_uint64.from_address(_POINTER(self._capsule, b"dltensor"))
        address.value += by

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> Any:
        return self._device


@pytest.mark.parametrize("elements", [0, 8, 1, 4])
@pytest.mark.parametrize("operand", "ABC")
def test_an_operand_may_begin_at_multiples_of_16_bytes(rng, operand, elements):
    config = Config(_SIZE, _SIZE, _SIZE, stages=2, consumers=1)
    function = tvm.compile(gemm(config, _SIZE, _SIZE, _SIZE), target=default_target()[0])
    room = np.full(_SIZE * _SIZE + 8, np.nan, "float16")
    arrays, views = {}, []
    for name in "ABC":
        begin = elements if name == operand else 0
        flat = room.copy()
        if name != "C":
            flat[begin : begin + _SIZE**2] = rng.integers(-3, 4, _SIZE**2)
        arrays[name] = tvm.runtime.tensor(flat, tvm.cuda(0)), begin
        whole = arrays[name][0]._create_view((_SIZE, _SIZE), dtype="float16")
        views.append(tvm_ffi.from_dlpack(_Moved(whole, 2 * begin)))
    if elements % 8:
        with pytest.raises(ValueError, match=rf"(?s){operand} begins .*a multiple of 16 bytes"):
            function(*views)
        return
    function(*views)
    a, b, c = (
        tensor.numpy()[begin : begin + _SIZE**2].reshape(_SIZE, _SIZE).astype(float)
        for tensor, begin in arrays.values()
    )
    np.testing.assert_array_equal(c, a @ b.T)
