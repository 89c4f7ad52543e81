"""Where a call runs: device and target, memory for results, copies for the emulator."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm.target import Target
from tvm.tirx import Var

from warploom.errors import ArgumentError, IllegalCombination
from warploom.language.calls.arguments import Argument, read_argument, torch_module
from warploom.language.calls.parameters import Parameter, shape_of
from warploom.language.values.dtypes import numpy_dtype
from warploom.runtime.emulator_libraries import ARCHS
from warploom.runtime.emulator_state import is_enabled
from warploom.target.tvm_target import arch_of, target_from_device


@functools.cache
def target_of_device(index: int) -> Target:
    """The target of a CUDA device."""
    return target_from_device(tvm.cuda(index))


@functools.cache
def _emulated_device(arch: str) -> int:
    """The emulated device of an architecture."""
    for index in range(len(ARCHS)):
        if arch_of(target_of_device(index)).name == arch:
            return index
    raise IllegalCombination(f"No emulated device has the architecture {arch}.")


def device_of(kernel: str, arguments: Sequence[Argument], target: Target | None) -> int:
    """The index of the CUDA device that a call runs on.

    Parameters
    ----------
    kernel : str
        Its name, for errors.
    arguments : sequence of Argument
    target : Target, optional
        What the kernel is compiled for, if it is not the device's own target.

    Raises
    ------
    ArgumentError
        If tensors lie on several devices, on one that ``target`` is not for, or on the host of a
        GPU.
    """
    tensors = [one for one in arguments if one.is_tensor]
    first = tensors[0] if tensors else None
    for one in tensors[1:]:
        if first is not None and one.device != first.device:
            raise ArgumentError(
                f"{kernel}: {first.name} is on {_device(first)}, {one.name} on {_device(one)}; "
                "all tensors must be on one device."
            )
    wanted = None if target is None else arch_of(target).name
    if first is not None and first.device is None:
        if not is_enabled():
            raise ArgumentError(
                f"{kernel}: {first.name} is on the CPU; give a tensor on a CUDA device, or run on "
                "the emulator (WARPLOOM_EMULATOR=1), which takes tensors of the CPU."
            )
        return 0 if wanted is None else _emulated_device(wanted)
    if first is None or first.device is None:
        return 0 if wanted is None or not is_enabled() else _emulated_device(wanted)
    own = arch_of(target_of_device(first.device)).name
    if wanted not in (None, own):
        raise ArgumentError(
            f"{kernel}: {first.name} is on {_device(first)}, a device of architecture {own}, and "
            f"the kernel is for {wanted}."
        )
    return first.device


def _device(argument: Argument) -> str:
    return "the CPU" if argument.device is None else f"cuda:{argument.device}"


def result_like(
    arguments: Sequence[Argument | None],
    parameter: Parameter,
    sizes: Mapping[Var, int],
    device: int,
) -> Argument:
    """A tensor for a result: of PyTorch or numpy as the first tensor is, otherwise of TVM."""
    shape = shape_of(parameter, sizes)
    tensors = [one for one in arguments if one is not None and one.is_tensor]
    return read_argument(parameter.name, _empty(tensors, parameter.dtype, shape, device))


def _empty(tensors: list[Argument], dtype: str, shape: tuple[int, ...], device: int) -> Any:
    first = tensors[0].value if tensors else None
    torch = torch_module()
    if torch is not None and isinstance(first, torch.Tensor):
        return torch.empty(shape, dtype=getattr(torch, dtype), device=first.device)
    if isinstance(first, np.ndarray):
        return np.empty(shape, numpy_dtype(dtype))
    on_host = bool(tensors) and tensors[0].device is None
    return tvm.runtime.empty(shape, dtype, tvm.cpu() if on_host else tvm.cuda(device))


def run_on_copies(
    kernel: str, function: Callable[..., Any], arguments: Sequence[Argument], device: int
) -> None:
    """Run a kernel on copies on an emulated device, and write back what it changes.

    Tensors of one memory get one copy.

    Raises
    ------
    ArgumentError
        If the kernel writes an array that is read-only.
    """
    copies: dict[tuple[int, Any, str], tuple[Argument, Any]] = {}
    values = []
    for one in arguments:
        if not one.is_tensor:
            values.append(one.value)
            continue
        key = (one.pointer, one.shape, one.dtype)
        if key not in copies:
            copies[key] = (one, _copied(one, tvm.cuda(device)))
        values.append(copies[key][1])
    function(*values)
    for one, copy in copies.values():
        _write_back(kernel, one, copy)


def _copied(argument: Argument, device: Any) -> Any:
    if isinstance(argument.value, np.ndarray):
        return tvm.runtime.tensor(argument.value, device)
    copy = tvm.runtime.empty(argument.shape, argument.dtype, device)
    return copy.copyfrom(_host_tensor(argument.value))


def _host_tensor(value: Any) -> Any:
    """A tensor of TVM in the memory of one of the host."""
    return value if isinstance(value, tvm.runtime.Tensor) else tvm_ffi.from_dlpack(value)


def host_array(argument: Argument) -> np.ndarray:
    """The contents of a tensor, copied to the host."""
    value = argument.value
    if isinstance(value, np.ndarray):
        return value.copy()
    tensor = value if isinstance(value, tvm.runtime.Tensor) else tvm_ffi.from_dlpack(value)
    if argument.device is not None:  # what still writes it may run on another stream
        tensor.device.sync()
    return np.array(tvm.runtime.empty(tensor.shape, argument.dtype).copyfrom(tensor).numpy())


def _write_back(kernel: str, argument: Argument, copy: Any) -> None:
    array = argument.value
    if not isinstance(array, np.ndarray):
        copy.copyto(_host_tensor(array))
        return
    found = copy.numpy()
    if found.tobytes() == array.tobytes():
        return
    if not array.flags.writeable:
        raise ArgumentError(f"{kernel}: {argument}, which is read-only, and the kernel writes it.")
    array[...] = found
