"""Runs PTX through the CUDA driver API: on a real driver or on the emulator's library.

Needs ctypes and numpy only, so that the same file works on a machine with a GPU and little else.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

HEADER = ".version 9.0\n.target sm_90a\n.address_size 64\n"

CLUSTER_DIMENSION = 4
_MAX_DYNAMIC_SHARED = 8
_MAX_SHARED_BY_DEFAULT = 48 << 10


class DriverError(RuntimeError):
    """A function of the driver failed; the message is the error's name and the function."""


class LaunchConfig(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


class LaunchAttribute(ctypes.Structure):
    _fields_ = (
        ("id", ctypes.c_uint),
        ("padding", ctypes.c_uint),
        ("value", ctypes.c_uint * 16),
    )


@dataclasses.dataclass(frozen=True)
class TensorMap:
    """Arguments of cuTensorMapEncodeTiled in its order (dimension 0 is the contiguous one).

    ``buffer`` is the number of the kernel's array that the map describes; all enumerations are
    the driver's integers.
    """

    buffer: int
    dtype: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: int = 0
    fill: int = 0
    interleave: int = 0


@dataclasses.dataclass(frozen=True)
class Im2colMap:
    """The arguments of ``cuTensorMapEncodeIm2col``, as those above; corners are W, H and D."""

    buffer: int
    dtype: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    lower: tuple[int, ...]
    upper: tuple[int, ...]
    channels: int
    pixels: int
    steps: tuple[int, ...]
    swizzle: int = 0
    fill: int = 0
    interleave: int = 0


@dataclasses.dataclass(frozen=True)
class Im2colWideMap:
    """The arguments of ``cuTensorMapEncodeIm2colWide``; mode 1 loads 128 pixels."""

    buffer: int
    dtype: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    lower: int
    upper: int
    channels: int
    pixels: int
    steps: tuple[int, ...]
    swizzle: int
    mode: int = 0
    fill: int = 0
    interleave: int = 0


AnyMap = TensorMap | Im2colMap | Im2colWideMap


class Driver:
    """The driver in the library ``path``, with a context on one of its devices.

    Every call makes that device current first: TVM, which uses the same driver, has left another
    one current in a thread that has worked with it.
    """

    def __init__(self, path: str = "libcuda.so.1", device: int = 0) -> None:
        self._library = ctypes.CDLL(path)
        self._call("cuInit", 0)
        self._device, self._context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(self._device), device)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._device)

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(text))
            raise DriverError(f"{(text.value or b'?').decode()} ({name} returned {code})")

    def _make_current(self) -> None:
        self._call("cuCtxSetCurrent", self._context)

    @property
    def device_name(self) -> str:
        name = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", name, 256, self._device)
        return name.value.decode()

    @property
    def version(self) -> int:
        """CUDA version of the driver: 13000 for 13.0."""
        version = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(version))
        return version.value

    def load(self, ptx: str) -> ctypes.c_void_p:
        """Load a module; ``ptx`` has no header."""
        return self.load_text(HEADER + ptx)

    def load_text(self, ptx: str) -> ctypes.c_void_p:
        """Load a module from PTX with a header of its own."""
        module = ctypes.c_void_p()
        self._make_current()
        self._call("cuModuleLoadData", ctypes.byref(module), ptx.encode())
        return module

    def unload(self, module: ctypes.c_void_p) -> None:
        self._call("cuModuleUnload", module)

    def encode(self, tensor: AnyMap, address: int) -> ctypes.Array:
        """The 128 bytes of a tensor map, aligned to 64."""
        self._make_current()
        storage = (ctypes.c_uint64 * 24)()
        offset = -ctypes.addressof(storage) % 64
        encoded = (ctypes.c_uint64 * 16).from_buffer(storage, offset)
        rank = len(tensor.shape)
        mode: tuple[int, ...] = ()
        if isinstance(tensor, Im2colWideMap):
            name, mode = "cuTensorMapEncodeIm2colWide", (tensor.mode,)
            pixels = ctypes.c_uint32(tensor.pixels)
            box = (tensor.lower, tensor.upper, ctypes.c_uint32(tensor.channels), pixels)
        elif isinstance(tensor, Im2colMap):
            name = "cuTensorMapEncodeIm2col"
            corners = ctypes.c_int * (rank - 2)
            box = (
                corners(*tensor.lower),
                corners(*tensor.upper),
                ctypes.c_uint32(tensor.channels),
                ctypes.c_uint32(tensor.pixels),
            )
        else:
            name = "cuTensorMapEncodeTiled"
            box = ((ctypes.c_uint32 * rank)(*tensor.box),)
        self._call(
            name,
            ctypes.byref(encoded),
            tensor.dtype,
            ctypes.c_uint(rank),
            ctypes.c_void_p(address),
            (ctypes.c_uint64 * rank)(*tensor.shape),
            (ctypes.c_uint64 * max(rank - 1, 1))(*tensor.strides),
            *box,
            (ctypes.c_uint32 * rank)(*tensor.steps),
            tensor.interleave,
            *mode,
            tensor.swizzle,
            0,
            tensor.fill,
        )
        return encoded

    def launch(
        self,
        module: ctypes.c_void_p,
        name: str,
        arrays: Sequence[np.ndarray],
        *,
        maps: Sequence[AnyMap] = (),
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (32, 1, 1),
        cluster: tuple[int, int, int] = (1, 1, 1),
        shared: int = 0,
    ) -> list[np.ndarray]:
        """Run a kernel whose parameters are ``maps``, then pointers to copies of ``arrays``.

        Returns the arrays' contents after the kernel.
        """
        self._make_current()
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        if shared > _MAX_SHARED_BY_DEFAULT:
            self._call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, shared)
        pointers: list[ctypes.c_void_p] = []
        try:
            for array in arrays:
                pointer = ctypes.c_void_p()
                size = ctypes.c_size_t(array.nbytes)
                self._call("cuMemAlloc_v2", ctypes.byref(pointer), size)
                pointers.append(pointer)
                source = ctypes.c_void_p(np.ascontiguousarray(array).ctypes.data)
                self._call("cuMemcpyHtoD_v2", pointer, source, size)
            encoded = [self.encode(tensor, pointers[tensor.buffer].value) for tensor in maps]
            parameters = [*encoded, *pointers]
            arguments = (ctypes.c_void_p * max(len(parameters), 1))(
                *[ctypes.addressof(parameter) for parameter in parameters]
            )
            attribute = LaunchAttribute(id=CLUSTER_DIMENSION, value=(ctypes.c_uint * 16)(*cluster))
            config = LaunchConfig(
                grid, block, shared, None, ctypes.addressof(attribute), int(cluster != (1, 1, 1))
            )
            self._call("cuLaunchKernelEx", ctypes.byref(config), function, arguments, None)
            self._call("cuCtxSynchronize")
            results = [np.empty_like(array) for array in arrays]
            for result, pointer in zip(results, pointers, strict=True):
                size = ctypes.c_size_t(result.nbytes)
                self._call("cuMemcpyDtoH_v2", ctypes.c_void_p(result.ctypes.data), pointer, size)
            return results
        finally:
            for pointer in pointers:
                self._library.cuMemFree_v2(pointer)


@functools.cache
def emulator(path: str, device: int = 0) -> Driver:
    """The emulated driver with one of its devices; one of each for a process is enough."""
    return Driver(path, device)
