"""What a call of a compiled-on-demand kernel takes: tensors by position, static values by name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm.tirx import PrimFunc, Var

from warploom.errors import ArgumentError
from warploom.language.calls.arguments import TensorSpec
from warploom.language.calls.parameters import parameters_of

#: Parameters that are one tensor each.
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
#: Names that methods of a kernel take for themselves.
_RESERVED = ("target",)

#: Shape and dtype of an input, with None for a size that the call gives, as part of a key.
Masked = tuple[tuple[int | None, ...] | None, str]


@dataclass(frozen=True)
class Signature:
    """The parameters of a factory, or of a program.

    Attributes
    ----------
    name : str
    function : PrimFunc or callable
        The program, or a factory of it, which takes a :class:`TensorSpec` for each input, and the
        static values.
    inputs : tuple of str
        Names of the tensors that every call passes.
    results : tuple of int
        Positions, among all tensors, of those that a call may leave out.
    static : mapping
        Names of static values -> default, or ``inspect.Parameter.empty``.
    open_ended : bool
        Whether any other name is static, too.
    dynamic : mapping
        Input -> dimension -> name of its size.
    """

    name: str
    function: PrimFunc | Callable[..., PrimFunc]
    inputs: tuple[str, ...]
    results: tuple[int, ...]
    static: Mapping[str, Any]
    open_ended: bool
    dynamic: Mapping[str, Mapping[int, str]]

    @property
    def is_program(self) -> bool:
        """Whether there is one program, which no input changes."""
        return isinstance(self.function, PrimFunc)

    @functools.cached_property
    def count(self) -> int:
        """Tensors of the program."""
        return len(self.inputs) + len(self.results)

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """A name for each tensor of the program."""
        inputs = iter(self.inputs)
        return tuple(
            f"result {at}" if at in self.results else next(inputs) for at in range(self.count)
        )

    def check_count(self, count: int) -> None:
        """Refuse a call with too few or too many tensors.

        Raises
        ------
        ArgumentError
            The message has the names of all.
        """
        if count in (len(self.inputs), self.count):
            return
        whole = f", or with its results: {self.count}" if self.results else ""
        raise ArgumentError(
            f"{self.name} takes {len(self.inputs)} arguments by position "
            f"({', '.join(self.inputs)}){whole}; {count} were given."
        )

    def static_values(self, given: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
        """All static values, with defaults, in one order.

        Raises
        ------
        ArgumentError
            If one is missing, unknown, or cannot be part of a key.
        """
        for name in given:
            if name in self.inputs:
                raise ArgumentError(f"{self.name}: {name} is a tensor; give it by position.")
            if name not in self.static and not self.open_ended:
                allowed = ", ".join(self.static) or "none"
                raise ArgumentError(f"{self.name} has no static {name!r}; it has: {allowed}.")
        values = {**self.static, **given}
        for name, value in values.items():
            if value is inspect.Parameter.empty:
                raise ArgumentError(f"{self.name}: give a value of {name}=, which is static.")
            try:
                hash(value)
            except TypeError:
                raise ArgumentError(
                    f"{self.name}: {name}={value!r} is static and must be hashable; give a tuple "
                    "in the place of a list."
                ) from None
        return tuple(sorted(values.items()))

    def masked(self, number: int, shape: tuple[int, ...] | None, dtype: str) -> Masked:
        """What the program depends on of an input.

        Raises
        ------
        ArgumentError
            If a dimension that is dynamic does not exist.
        """
        name = self.inputs[number]
        sizes = self.dynamic.get(name)
        if not sizes:
            return shape, dtype
        if shape is None or max(sizes) >= len(shape):
            raise ArgumentError(
                f"{self.name}: dimension {max(sizes)} of {name} is dynamic, and {name} has shape "
                f"{shape}."
            )
        return tuple(None if at in sizes else size for at, size in enumerate(shape)), dtype

    def program(self, inputs: Sequence[Masked], static: Sequence[tuple[str, Any]]) -> PrimFunc:
        """The program for these inputs.

        Raises
        ------
        ArgumentError
            If the factory returns something else, or one with other parameters.
        """
        if isinstance(self.function, PrimFunc):
            return self.function
        variables: dict[str, Var] = {}
        specs = []
        for name, (shape, dtype) in zip(self.inputs, inputs, strict=True):
            sizes = [
                variables.setdefault(self.dynamic[name][at], Var(self.dynamic[name][at], "int32"))
                if size is None
                else size
                for at, size in enumerate(shape or ())
            ]
            specs.append(TensorSpec(tuple(sizes), dtype))
        try:
            made = self.function(*specs, **dict(static))
        except Exception as error:
            told = ", ".join(
                f"{name}: {one.dtype}{list(one.shape)}"
                for name, one in zip(self.inputs, specs, strict=True)
            )
            error.add_note(f"{self.name} was called with {told}")
            raise
        if not isinstance(made, PrimFunc):
            raise ArgumentError(
                f"{self.name} returns a {type(made).__name__}; it must return a tile program, a "
                "function under @T.prim_func."
            )
        if len(made.params) != self.count:
            names = ", ".join(str(each) for each in parameters_of(made))
            raise ArgumentError(
                f"{self.name} has {len(self.inputs)} inputs and {len(self.results)} results "
                f"(out_idx), its program {len(made.params)} parameters: {names}; the numbers must "
                "be equal."
            )
        return made


def signature_of(
    function: Any,
    out_idx: int | Sequence[int],
    dynamic: Mapping[str, Mapping[int, str]] | None,
) -> Signature:
    """The signature of a factory or a program.

    Raises
    ------
    ArgumentError
        If it is neither, or ``out_idx`` or ``dynamic`` name what it has not.
    """
    indices = (out_idx,) if isinstance(out_idx, int) else tuple(out_idx)
    if isinstance(function, PrimFunc):
        names = tuple(each.name for each in function.params)
        name = str((function.attrs or {}).get("global_symbol", "main"))
        results = _positions(name, indices, len(names))
        inputs = tuple(each for at, each in enumerate(names) if at not in results)
        if dynamic:
            raise ArgumentError(
                f"{name} is a finished program, whose own variables are its dynamic sizes; leave "
                "dynamic= out."
            )
        return Signature(name, function, inputs, results, {}, False, {})
    if hasattr(function, "specialize"):
        raise ArgumentError(
            "A function under @T.jit is no program yet: give warploom.jit what its specialize() "
            "returns, or a factory that calls it."
        )
    if not callable(function) or not hasattr(function, "__name__"):
        raise ArgumentError(
            f"warploom.jit takes a tile program, or a function that returns one; "
            f"{type(function).__name__} is neither."
        )
    return _of_factory(function, indices, dynamic or {})


def _of_factory(
    function: Callable[..., PrimFunc],
    indices: tuple[int, ...],
    dynamic: Mapping[str, Mapping[int, str]],
) -> Signature:
    name = function.__name__
    parameters = inspect.signature(function).parameters.values()
    inputs = tuple(one.name for one in parameters if one.kind in _POSITIONAL)
    static = {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}
    for one in parameters:
        if one.kind is one.VAR_POSITIONAL:
            raise ArgumentError(f"{name}: *{one.name} is no list of tensors; name each of them.")
        if one.kind in _POSITIONAL and one.default is not one.empty:
            raise ArgumentError(
                f"{name}: {one.name} has a default and is a tensor, since it is given by position; "
                "write * in front of the static parameters."
            )
        if one.name in _RESERVED:
            raise ArgumentError(f"{name}: no parameter may be called {one.name}.")
    for tensor, sizes in dynamic.items():
        if tensor not in inputs:
            raise ArgumentError(
                f"{name}: dynamic= names {tensor!r}; its tensors are {', '.join(inputs)}."
            )
        if not isinstance(sizes, Mapping) or not all(
            isinstance(at, int) and at >= 0 and str(size).isidentifier()
            for at, size in sizes.items()
        ):
            raise ArgumentError(
                f"{name}: dynamic= has {sizes!r} for {tensor}; give dimensions with a name for "
                'each, such as {0: "m"}.'
            )
    results = _positions(name, indices, len(inputs) + len(indices))
    any_name = any(one.kind is one.VAR_KEYWORD for one in parameters)
    return Signature(name, function, inputs, results, static, any_name, dynamic)


def _positions(name: str, indices: tuple[int, ...], count: int) -> tuple[int, ...]:
    """``out_idx`` as positions from the front."""
    wrong = [each for each in indices if not isinstance(each, int) or not -count <= each < count]
    positions = tuple(sorted({each % count for each in indices if each not in wrong}))
    if wrong or len(positions) != len(indices):
        raise ArgumentError(
            f"{name}: out_idx is {indices}; allowed are different integers from {-count} to "
            f"{count - 1}, one for each result."
        )
    return positions
