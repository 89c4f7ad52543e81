"""The parameters of a program, and whether the arguments of a call fit them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.sym.analyzer import Analyzer
from tvm.tirx import PrimFunc, Var

from warploom.errors import ArgumentError
from warploom.language.calls.arguments import ALIGNMENT, Argument
from warploom.tile import ir

#: Kinds of dtypes of numbers -> those of scalar parameters that take them.
_TAKEN = {"bool": ("bool", "int", "uint"), "int": ("int", "uint", "float", "bfloat"),
          "uint": ("int", "uint", "float", "bfloat"), "float": ("float", "bfloat"),
          "bfloat": ("float", "bfloat")}  # fmt: skip


@dataclass(frozen=True)
class Parameter:
    """A parameter of a program.

    Attributes
    ----------
    name : str
    shape : tuple of int or PrimExpr, or None
        None for a scalar.
    dtype : str
    alignment : int
        Bytes that its address is a multiple of.
    strided : bool
        Whether the program says the strides itself.
    """

    name: str
    shape: tuple[Any, ...] | None
    dtype: str
    alignment: int = 1
    strided: bool = False

    def __str__(self) -> str:
        if self.shape is None:
            return f"the {self.dtype} number {self.name}"
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


def parameters_of(program: PrimFunc) -> tuple[Parameter, ...]:
    """The parameters of a tile program, in order."""
    found = []
    for one in program.params:
        dtype = str(one.ty.dtype)
        if not tirx.is_buffer_var(one):
            found.append(Parameter(one.name, None, dtype))
            continue
        shape = tuple(int(e) if isinstance(e, (int, tirx.IntImm)) else e for e in one.ty.shape)
        align = min(int(one.ty.data_alignment), ALIGNMENT)
        found.append(Parameter(one.name, shape, dtype, align, bool(one.ty.strides)))
    return tuple(found)


def check_arguments(
    kernel: str, parameters: Sequence[Parameter], arguments: Sequence[Argument | None]
) -> dict[Var, int]:
    """Compare arguments with parameters; return the sizes that they give to variables.

    Parameters
    ----------
    kernel : str
        Its name, for errors.
    parameters : sequence of Parameter
    arguments : sequence of Argument or None
        None for results that the call allocates.

    Raises
    ------
    ArgumentError
        If one does not fit; the message names it, what it is and what it must be.
    """
    sizes: dict[Var, int] = {}
    owner: dict[Var, str] = {}
    for parameter, argument in zip(parameters, arguments, strict=True):
        if argument is None:
            continue
        reason = _misfit(parameter, argument, sizes, owner)
        if reason:
            raise ArgumentError(f"{kernel}: {argument}, the parameter is {parameter}: {reason}.")
    return sizes


def _misfit(
    parameter: Parameter, argument: Argument, sizes: dict[Var, int], owner: dict[Var, str]
) -> str:
    """Why an argument does not fit, and the fix; empty if it does."""
    if parameter.shape is None or argument.shape is None:
        return _scalar_misfit(parameter, argument)
    if argument.dtype != parameter.dtype:
        return f"its dtype must be {parameter.dtype}"
    if len(argument.shape) != len(parameter.shape):
        return f"it must have {len(parameter.shape)} dimensions"
    for number, (extent, size) in enumerate(zip(parameter.shape, argument.shape, strict=True)):
        if isinstance(extent, int):
            if size != extent:
                return f"dimension {number} must be {extent}"
        elif isinstance(extent, Var):
            if sizes.setdefault(extent, size) != size:
                return f"dimension {number} must be {sizes[extent]}, as in {owner[extent]}"
            owner.setdefault(extent, argument.name)
    if not (argument.contiguous or parameter.strided):
        return "it must be contiguous; give its contiguous copy, such as .contiguous()"
    if argument.pointer % parameter.alignment:
        return (
            f"its address must be a multiple of {parameter.alignment} bytes; give a copy, such as "
            ".clone()"
        )
    return ""


def _scalar_misfit(parameter: Parameter, argument: Argument) -> str:
    if parameter.shape is not None:
        return "give a tensor"
    if argument.shape is not None:
        return "give a number"
    if _kind(parameter.dtype) not in _TAKEN[_kind(argument.dtype)]:
        return f"give a number of dtype {parameter.dtype}"
    return ""


def _kind(dtype: str) -> str:
    return dtype.rstrip("0123456789") if "_" not in dtype else "float"


def shape_of(parameter: Parameter, sizes: Mapping[Var, int]) -> tuple[int, ...]:
    """The shape of a result for known sizes.

    Raises
    ------
    ArgumentError
        If arguments do not give a size that it has.
    """
    return tuple(_extent(parameter, each, sizes) for each in parameter.shape or ())


def _extent(parameter: Parameter, extent: Any, sizes: Mapping[Var, int]) -> int:
    if isinstance(extent, int):
        return extent
    if isinstance(extent, Var) and extent in sizes:
        return sizes[extent]
    known = {var: tirx.IntImm(str(var.ty.dtype), size) for var, size in sizes.items()}
    value = Analyzer().simplify(ir.substitute(extent, known))
    if not isinstance(value, tirx.IntImm):
        raise ArgumentError(
            f"The size {extent} of {parameter} is that of no argument; pass this tensor."
        )
    return int(value)
