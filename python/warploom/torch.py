"""Tile programs as operators of PyTorch: :func:`op` registers a program as a custom op.

A custom op traces and exports: ``torch.compile`` and ``torch.export`` see a call with shapes and
dtypes, and leave its inside alone. PyTorch is imported when :func:`op` is called.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm.tirx import PrimFunc, Var

from warploom import emulator
from warploom.errors import IllegalCombination, ToolchainError
from warploom.language.calls.kernel import jit
from warploom.language.calls.parameters import Parameter, parameters_of
from warploom.language.values.dtypes import numpy_dtype

#: Types of numbers in a schema, by the beginning of TVM's name.
_NUMBERS = {"bool": "bool", "int": "int", "uint": "int", "float": "float"}
#: The namespace of all ops.
NAMESPACE = "warploom"


def op(program: PrimFunc, name: str | None = None, out_idx: int | Sequence[int] = -1) -> Any:
    """Register a program as ``torch.ops.warploom.NAME``.

    On tensors of a GPU the op runs the kernel, on PyTorch's current stream; on tensors of the CPU
    it runs on the emulator, which a process without a GPU turns on at the first call. Inputs that
    are not contiguous are copied first. The fake implementation computes shapes and dtypes only.

    Parameters
    ----------
    program : PrimFunc
        A tile program or a kernel by hand. Sizes may be variables.
    name : str, optional
        Of the op; by default that of the program.
    out_idx : int or sequence of int
        Positions of the results among the parameters, from the end if negative. The op allocates
        and returns them; all other parameters are its arguments, and are not written.

    Returns
    -------
    torch.library.CustomOpDef
        To be called with tensors; ``register_autograd`` adds a derivative.

    Raises
    ------
    ToolchainError
        If PyTorch is not installed.
    IllegalCombination
        If ``out_idx`` names no parameter, or a result has a size that no argument tells.

    Examples
    --------
    >>> gelu = warploom.torch.op(program, "gelu")
    >>> y = gelu(x)
    >>> exported = torch.export.export(module_that_calls_gelu, (x,))
    """
    torch = _torch()
    parameters = parameters_of(program)
    results = _positions(out_idx, len(parameters))
    inputs = [one for at, one in enumerate(parameters) if at not in results]
    outputs = [parameters[at] for at in results]
    name = name or _name_of(program)
    _check_sizes(name, inputs, outputs)
    kernel = jit(program, out_idx=results)

    def run(*arguments: Any) -> Any:
        given = [one.contiguous() if isinstance(one, torch.Tensor) else one for one in arguments]
        on_host = any(isinstance(one, torch.Tensor) and one.device.type == "cpu" for one in given)
        if on_host and not emulator.is_enabled() and not emulator.enable_without_gpu():
            return _in_child(torch, program, given, outputs, results, _sizes(inputs, given))
        return kernel(*given)

    def fake(*arguments: Any) -> Any:
        sizes = _sizes(inputs, arguments)
        first = next(one for one in arguments if isinstance(one, torch.Tensor))
        made = [
            first.new_empty(_shape(one, sizes), dtype=getattr(torch, one.dtype)) for one in outputs
        ]
        return made[0] if len(made) == 1 else tuple(made)

    schema = _schema(inputs, len(outputs))
    made = torch.library.custom_op(f"{NAMESPACE}::{name}", run, mutates_args=(), schema=schema)
    made.register_fake(fake)
    return made


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise ToolchainError(
            "warploom.torch.op needs PyTorch, which is not installed; run: pip install torch"
        ) from error


def _name_of(program: PrimFunc) -> str:
    symbol = str((program.attrs or {}).get("global_symbol", "program"))
    return re.sub(r"\W", "_", symbol)


def _positions(out_idx: int | Sequence[int], count: int) -> tuple[int, ...]:
    wanted = (out_idx,) if isinstance(out_idx, int) else tuple(out_idx)
    if not wanted or not all(-count <= at < count for at in wanted):
        raise IllegalCombination(
            f"out_idx is {out_idx!r}; name at least one of the program's {count} parameters."
        )
    return tuple(sorted({at % count for at in wanted}))


def _schema(inputs: Sequence[Parameter], results: int) -> str:
    kinds = [
        "Tensor" if one.shape is not None else _NUMBERS[re.match("[a-z]+", one.dtype)[0]]
        for one in inputs
    ]
    names = (re.sub(r"\W", "_", one.name) for one in inputs)
    arguments = ", ".join(f"{kind} {name}" for kind, name in zip(kinds, names, strict=True))
    returned = "Tensor" if results == 1 else f"({', '.join(['Tensor'] * results)})"
    return f"({arguments}) -> {returned}"


def _check_sizes(name: str, inputs: Sequence[Parameter], outputs: Sequence[Parameter]) -> None:
    """Refuse results whose shapes do not follow from those of tensors among the arguments."""
    tensors = [one for one in inputs if one.shape is not None]
    if not tensors:
        raise IllegalCombination(f"{name} has no tensor among its arguments; give it one.")
    known = [size for one in tensors for size in one.shape if isinstance(size, Var)]
    for output in outputs:
        for size in output.shape or ():
            if isinstance(size, int) or any(size is one or size.same_as(one) for one in known):
                continue
            raise IllegalCombination(
                f"{name}: the size {size} of the result {output.name} is of no argument; allowed "
                "are constants and sizes that an argument has as well."
            )


def _sizes(inputs: Sequence[Parameter], arguments: Sequence[Any]) -> list[tuple[Var, Any]]:
    """The variables of a call and their values, which may be symbols of PyTorch."""
    return [
        (size, value)
        for one, argument in zip(inputs, arguments, strict=True)
        if one.shape is not None
        for size, value in zip(one.shape, argument.shape, strict=True)
        if isinstance(size, Var)
    ]


def _shape(output: Parameter, sizes: Sequence[tuple[Var, Any]]) -> list[Any]:
    return [
        size if isinstance(size, int)
        else next(value for variable, value in sizes if variable.same_as(size))
        for size in output.shape or ()
    ]  # fmt: skip


def _in_child(
    torch: Any, program: PrimFunc, given: Sequence[Any], outputs: Sequence[Parameter],
    results: Sequence[int], sizes: Sequence[tuple[Var, Any]],
) -> Any:  # fmt: skip
    """Run on the emulator in a process of its own, where this process has a GPU."""
    arrays = [_to_numpy(torch, one) if isinstance(one, torch.Tensor) else one for one in given]
    for at, output in zip(results, outputs, strict=True):
        arrays.insert(at, np.zeros(_shape(output, sizes), numpy_dtype(output.dtype)))
    tensors = [at for at, one in enumerate(arrays) if isinstance(one, np.ndarray)]
    found = dict(zip(tensors, emulator.run(program, arrays).outputs, strict=True))
    made = [
        _to_torch(torch, found[at], one.dtype) for at, one in zip(results, outputs, strict=True)
    ]
    return made[0] if len(made) == 1 else tuple(made)


def _to_numpy(torch: Any, tensor: Any) -> np.ndarray:
    """A tensor as an array; dtypes that numpy lacks go by their bytes."""
    bits = tensor.detach().view(torch.uint8).numpy() if tensor.ndim else tensor.detach().numpy()
    return bits.view(numpy_dtype(str(tensor.dtype).removeprefix("torch.")))


def _to_torch(torch: Any, array: np.ndarray, dtype: str) -> Any:
    flat = np.ascontiguousarray(array)
    tensor = torch.from_numpy(flat.view(np.uint8).copy())
    return tensor.view(getattr(torch, dtype))
