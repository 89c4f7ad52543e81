"""Signatures of functions, as text: what a function's parameters are, and which sizes are equal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm.tirx import IntImm, PrimFunc, is_buffer_var

from warploom.errors import Decline
from warploom.gemm.equations import simplify

#: A dimension: a number, a name, or a name and one more.
_DIMENSION = re.compile(r"(\d+)|([a-z_]+)(\+1)?")
#: The dtype that is a name, which stands for one dtype in a signature.
_ANY_DTYPE = "dtype"


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function: its name, dtype and dimensions; None for a scalar's."""

    name: str
    dtype: str
    shape: tuple[str, ...] | None

    def __post_init__(self) -> None:
        for dimension in self.shape or ():
            if not _DIMENSION.fullmatch(dimension):
                raise ValueError(f"{dimension!r} of {self.name} is no number, name or name+1")


@dataclass(frozen=True)
class Signature:
    """The parameters of a function, in order.

    Examples
    --------
    >>> Signature.of("q: dtype batch heads 64; indptr: int32 batch+1; scale: float32").parameters[1]
    Parameter(name='indptr', dtype='int32', shape=('batch+1',))
    """

    parameters: tuple[Parameter, ...]

    @classmethod
    def of(cls, text: str) -> Signature:
        """Read ``name: dtype dimensions`` of each parameter; a ``;`` or a line ends it."""
        parameters = []
        for line in filter(None, (line.strip() for line in re.split("[;\n]", text))):
            name, _, rest = line.partition(":")
            dtype, *shape = rest.split()
            parameters.append(Parameter(name, dtype, tuple(shape) or None))
        return cls(tuple(parameters))

    @property
    def sizes(self) -> set[str]:
        """The names of the sizes."""
        shapes = [parameter.shape or () for parameter in self.parameters]
        return {dimension.removesuffix("+1") for shape in shapes for dimension in shape}

    def match(self, func: PrimFunc) -> dict[str, Any]:
        """What the names of sizes and of the dtype stand for in a function.

        Returns
        -------
        dict of str to int, str or Expr
            Numbers where they are known, otherwise expressions of the function.

        Raises
        ------
        Decline
            If the function has other parameters; the message names the first that differs.
        """
        if len(func.params) != len(self.parameters):
            raise Decline(
                f"it has {len(func.params)} parameters and TVM's kernel has {len(self.parameters)}."
            )
        found: dict[str, Any] = {}
        for own, parameter in zip(func.params, self.parameters, strict=True):
            _match(own, parameter, found)
        return found


def _match(own: Any, parameter: Parameter, found: dict[str, Any]) -> None:
    if is_buffer_var(own) != (parameter.shape is not None):
        kind = "a buffer" if parameter.shape is not None else "a scalar"
        raise Decline(f"its parameter {own.name} is not {kind}, as TVM's {parameter.name} is.")
    dtype, wanted = str(own.ty.dtype), parameter.dtype
    if wanted == _ANY_DTYPE:
        wanted = found.setdefault(_ANY_DTYPE, dtype)
    if dtype != wanted:
        raise Decline(f"its parameter {own.name} is {dtype}, and TVM's {parameter.name} {wanted}.")
    if parameter.shape is None:
        return
    if len(own.ty.shape) != len(parameter.shape):
        raise Decline(
            f"its parameter {own.name} has {len(own.ty.shape)} dimensions, and TVM's "
            f"{parameter.name} has {len(parameter.shape)}."
        )
    for extent, dimension in zip(own.ty.shape, parameter.shape, strict=True):
        if not _fits(extent, dimension, found):
            raise Decline(
                f"its parameter {own.name} has a dimension of {extent}, and TVM's "
                f"{parameter.name} one of {dimension}."
            )


def _fits(extent: Any, dimension: str, found: dict[str, Any]) -> bool:
    number, name, more = _DIMENSION.fullmatch(dimension).groups()
    if number is not None:
        return _plain(extent) == int(number)
    value = _plain(simplify(extent - 1)) if more else _plain(extent)
    known = found.setdefault(name, value)
    return _plain(simplify(known - value)) == 0


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, (int, IntImm)) else value


class Facts(dict[str, Any]):
    """What is known of a function when it is built; :meth:`number` asks for a number."""

    def number(self, name: str) -> int:
        """A size.

        Raises
        ------
        Decline
            If it is known at run time only.
        """
        value = self.get(name)
        if not isinstance(value, int):
            raise Decline(f"its size {name} is known at run time only; give it a number.")
        return value

    @classmethod
    def of(cls, *parts: Mapping[str, Any]) -> Facts:
        """All facts of several tables; of two with one name, the last."""
        return cls({name: value for part in parts for name, value in part.items()})
