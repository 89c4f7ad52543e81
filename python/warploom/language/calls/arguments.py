"""The arguments of a call: numbers, and tensors of numpy, PyTorch, TVM or anything with DLPack."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tvm_ffi

from warploom.errors import ArgumentError, IllegalCombination
from warploom.target.dtypes import dtype_name

#: Devices of DLPack (``dlpack.h``): the host, and CUDA.
_CPU, _CUDA = 1, 2
#: No access of a kernel needs more: TMA and 128-bit loads want 16 bytes (PTX ISA, "Tensors").
ALIGNMENT = 16


@dataclass(frozen=True)
class TensorSpec:
    """Shape and dtype of a tensor, as a factory under :func:`warploom.jit` gets them.

    Attributes
    ----------
    shape : tuple of int or tvm.tirx.Var
        A size is a variable where ``dynamic=`` leaves it to the call. Numbers have shape ``()``.
    dtype : str
        TVM's name of it; any name of a dtype is taken.

    Examples
    --------
    >>> TensorSpec((128, 64), np.float16)
    TensorSpec(shape=(128, 64), dtype='float16')
    """

    shape: tuple[Any, ...]
    dtype: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "dtype", dtype_name(self.dtype))

    @property
    def ndim(self) -> int:
        return len(self.shape)


class Argument(NamedTuple):
    """An argument of a call, or the description of one.

    Attributes
    ----------
    name : str
        What errors call it.
    shape : tuple of int or None
        None for a number.
    dtype : str
    value : object
        What the kernel gets; None if there is only a description.
    device : int or None
        Index of the CUDA device; None on the host.
    contiguous : bool
        Whether elements lie in the order of their indices, without gaps.
    pointer : int
        Address of the first element.
    """

    name: str
    shape: tuple[int, ...] | None
    dtype: str
    value: Any = None
    device: int | None = None
    contiguous: bool = True
    pointer: int = 0

    @property
    def kind(self) -> tuple[Any, ...]:
        """All that decides how the argument is passed, but its value."""
        return (self.shape, self.dtype, self.device, self.contiguous, self.pointer % ALIGNMENT)

    @property
    def is_tensor(self) -> bool:
        return self.shape is not None

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.name} is the {self.dtype} number {self.value!r}"
        return f"{self.name} is a {self.dtype} tensor of shape {self.shape}"


@functools.cache
def _dtype(dtype: Any) -> str:
    return dtype_name(dtype)


def torch_module() -> Any | None:
    """PyTorch, if the process has imported it: only then an argument can be one of its tensors."""
    return sys.modules.get("torch")


def read_argument(name: str, value: Any) -> Argument:
    """The shape, dtype and place of an argument.

    Parameters
    ----------
    name : str
        What errors call it.
    value : object
        A number, a numpy array, a tensor of PyTorch or TVM, or an object with ``__dlpack__``.

    Raises
    ------
    ArgumentError
        If it is something else, or has a dtype that TVM lacks.
    """
    try:
        return _read(name, value)
    except IllegalCombination as error:
        raise ArgumentError(str(error)) from None


def _read(name: str, value: Any) -> Argument:
    if isinstance(value, (bool, int, float, np.generic)):
        return _number(name, value)
    if isinstance(value, np.ndarray):
        place = (None, value.flags.c_contiguous, value.ctypes.data)
        return Argument(name, value.shape, _named(value.dtype, name), value, *place)
    torch = torch_module()
    if torch is not None and isinstance(value, torch.Tensor):
        return _of_torch(torch, name, value)
    if isinstance(value, tvm_ffi.Tensor):
        return _of_tvm(name, value, value)
    if hasattr(value, "__dlpack__"):
        try:
            view = tvm_ffi.from_dlpack(value)
        except Exception as error:  # of the producer: whatever it is
            raise ArgumentError(
                f"{name} is a {type(value).__name__} that DLPack does not export: {error}"
            ) from error
        # The object itself is passed on: tvm_ffi asks it for its stream.
        return _of_tvm(name, view, value)
    raise ArgumentError(
        f"{name} is a {type(value).__name__}; give a tensor of PyTorch or TVM, an object with "
        "__dlpack__, on the emulator a numpy array, or a number."
    )


def _number(name: str, value: Any) -> Argument:
    if isinstance(value, np.generic):
        return Argument(name, None, _named(value.dtype, name), value.item())
    kinds = {bool: "bool", int: "int32", float: "float32"}
    dtype = next(kinds[kind] for kind in kinds if isinstance(value, kind))
    return Argument(name, None, dtype, value)


def _of_torch(torch: Any, name: str, value: Any) -> Argument:
    if value.layout is not torch.strided or value.device.type not in ("cpu", "cuda"):
        raise ArgumentError(
            f"{name} is a tensor of layout {value.layout} on {value.device}; give a dense one on "
            "a CUDA device."
        )
    if value.requires_grad:  # such tensors, all weights for instance, are not exported
        value = value.detach()
    device = value.device.index if value.device.type == "cuda" else None
    place = (device, value.is_contiguous(), value.data_ptr())
    return Argument(name, tuple(value.shape), _named(value.dtype, name), value, *place)


def _of_tvm(name: str, tensor: Any, value: Any) -> Argument:
    kind = tensor.device.dlpack_device_type()
    if kind not in (_CPU, _CUDA):
        raise ArgumentError(f"{name} is on {tensor.device}; give a tensor on a CUDA device.")
    device = tensor.device.index if kind == _CUDA else None
    place = (device, tensor.is_contiguous(), tensor.data_ptr())
    return Argument(name, tuple(tensor.shape), _named(str(tensor.dtype), name), value, *place)


def read_spec(name: str, value: Any) -> Argument:
    """As :func:`read_argument`, also of what has a shape and a dtype and no memory.

    Parameters
    ----------
    name : str
    value : object
        A :class:`TensorSpec`, ``(shape, dtype)``, whatever has ``.shape`` and ``.dtype``, or a
        number.

    Raises
    ------
    ArgumentError
        If it is something else.
    """
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], (tuple, list)):
        shape, dtype = value
    elif hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, np.generic):
        shape, dtype = value.shape, value.dtype
    else:
        return read_argument(name, value)
    try:
        return Argument(name, tuple(shape), _named(dtype, name))
    except IllegalCombination as error:
        raise ArgumentError(str(error)) from None


def _named(dtype: Any, name: str) -> str:
    try:
        return _dtype(dtype)
    except IllegalCombination:
        return dtype_name(dtype, f"The dtype of {name}")
