"""The GPU and its memory, through functions of TVM's runtime that need no TVM in Python."""

from __future__ import annotations

import ctypes
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from warploom.errors import WarploomError
from warploom_bench.kernels import load_runtime

#: Kinds of attributes of a device, ``DeviceAttrKind`` of TVM.
_EXIST, _CAPABILITY, _NAME, _SMS, _L2 = 0, 4, 5, 7, 13


class RuntimeMemory:
    """Arrays of the runtime on the first CUDA device; see :class:`rig.Memory`."""

    def __init__(self) -> None:
        import tvm_ffi

        self._shape, self._dtype = tvm_ffi.Shape, tvm_ffi.dtype
        self._device = tvm_ffi.device("cuda", 0)
        self._allocate, self._from_bytes, self._to_bytes = (
            tvm_ffi.get_global_func(f"runtime.TVMTensor{name}")
            for name in ("AllocWithScope", "CopyFromBytes", "CopyToBytes")
        )

    def _made(self, shape: tuple[int, ...], dtype: str) -> Any:
        return self._allocate(self._shape(shape), self._dtype(dtype), self._device, None)

    def put(self, values: np.ndarray) -> Any:
        """A copy on the device."""
        values = np.ascontiguousarray(values)
        made = self._made(values.shape, str(values.dtype))
        self._from_bytes(made, ctypes.c_void_p(values.ctypes.data), values.nbytes)
        return made

    def empty(self, rows: int, columns: int) -> Any:
        """A float16 matrix of any contents."""
        return self._made((rows, columns), "float16")

    def get(self, array: Any) -> np.ndarray:
        """A copy on the host, which waits for the launches before it."""
        found = np.empty(tuple(array.shape), str(array.dtype))
        self._to_bytes(array, ctypes.c_void_p(found.ctypes.data), found.nbytes)
        return found


@dataclass(frozen=True)
class Facts:
    """What the driver says of a GPU.

    Attributes
    ----------
    name : str
    sms : int
    l2_bytes : int
    """

    name: str
    sms: int
    l2_bytes: int


def find_gpu(folder: Path) -> Facts:
    """The first GPU, with TVM or with its runtime libraries in a folder of kernels.

    Raises
    ------
    WarploomError
        If there is none, or it is no Hopper.
    """
    if importlib.util.find_spec("tvm") is not None:
        from warploom.command_line import require_gpu

        require_gpu("--compile-only compiles the probes without one")
    import tvm_ffi  # loads the library that those of TVM need

    load_runtime(folder)
    device, attribute = tvm_ffi.device("cuda", 0), tvm_ffi.get_global_func("runtime.GetDeviceAttr")
    exists, capability, name, sms, l2_bytes = (
        attribute(device.dlpack_device_type(), device.index, kind)
        for kind in (_EXIST, _CAPABILITY, _NAME, _SMS, _L2)
    )
    if not exists:
        raise WarploomError("This needs a GPU, and TVM's runtime finds none.")
    if str(capability) != "9.0":
        raise WarploomError(
            f"{name} has compute capability {capability}; probes are kernels of sm_90a (9.0)."
        )
    return Facts(str(name), int(sms), int(l2_bytes))
