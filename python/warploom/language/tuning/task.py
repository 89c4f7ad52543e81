"""The search for the best config of a factory at one key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tvm.target import Target
from tvm.tirx import PrimFunc

from warploom.language.calls.parameters import Parameter, parameters_of, shape_of
from warploom.language.tuning.space import Config, Space, text_of
from warploom.tile import ir

#: A program and a target -> seconds that a kernel of it is expected to take; None if unknown.
Rank = Callable[[PrimFunc, Target], "float | None"]


@dataclass(frozen=True)
class Task:
    """A factory with all arguments but the tuned ones.

    Attributes
    ----------
    name : str
        Of the factory.
    key : mapping from str to str
        What the search is for, in words: a record is found by an equal name and key.
    make : callable
        A config -> the tile program.
    space : Space
    target : Target
    arguments : mapping
        The arguments by name, for ``space.why_not``.
    sizes : mapping from str to int
        The sizes of the programs' variables, by their names.
    numbers : mapping from int to number
        Arguments that are numbers, by their positions.
    given : mapping from int to array
        Tensors whose contents matter, such as indices, by their positions; others are random.
    reference : callable, optional
        Computes the right results: see :func:`warploom.autotune`.
    results : tuple of int
        Positions of the parameters that ``reference`` is not given; it returns them.
    rank : callable, optional
        Predicts times; without it configs are drawn at random.
    inputs : callable, optional
        Makes tensors whose contents matter: see :func:`warploom.autotune`.
    options : mapping from str to object
        Of TVM's PassContext.
    """

    name: str
    key: Mapping[str, str]
    make: Callable[[Config], PrimFunc] = field(compare=False)
    space: Space
    target: Target
    arguments: Mapping[str, Any] = field(default_factory=dict, compare=False)
    sizes: Mapping[str, int] = field(default_factory=dict)
    numbers: Mapping[int, Any] = field(default_factory=dict)
    given: Mapping[int, Any] = field(default_factory=dict, compare=False)
    reference: Callable[..., Any] | None = field(default=None, compare=False)
    results: tuple[int, ...] = ()
    rank: Rank | None = field(default=None, compare=False)
    inputs: Callable[..., Mapping[str, Any]] | None = field(default=None, compare=False)
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value}' for name, value in self.key.items())})"

    def shapes(self, program: PrimFunc) -> list[tuple[Parameter, tuple[int, ...] | None]]:
        """Each parameter of a program with its shape at this key; None for numbers.

        Raises
        ------
        ArgumentError
            If a size is that of no argument.
        """
        found = []
        for parameter in parameters_of(program):
            shape = parameter.shape
            if shape is not None:
                shape = shape_of(parameter, {
                    var: self.sizes[var.name]
                    for extent in shape
                    if not isinstance(extent, int)
                    for var in ir.uses(extent)
                    if var.name in self.sizes
                })  # fmt: skip
            found.append((parameter, shape))
        return found


@dataclass(frozen=True)
class Best:
    """What a search has found.

    Attributes
    ----------
    config : dict
    seconds : float
        Median of the samples of the kernel.
    measured : int
        Configs that were measured for this key, in this search and before.
    searched : bool
        Whether something was measured now; otherwise a record was found.
    emulated : bool
        Whether the times are those of the emulator, and mean nothing.
    left_out : tuple of (dict, str)
        Configs for which there is no kernel, with the reason.
    wrong : tuple of (dict, str)
        Configs whose kernels failed: by a wrong result, an error or a time-out.
    """

    config: Config
    seconds: float
    measured: int = 1
    searched: bool = False
    emulated: bool = False
    left_out: tuple[tuple[Config, str], ...] = ()
    wrong: tuple[tuple[Config, str], ...] = ()

    def __str__(self) -> str:
        kind = "emulated, which says nothing" if self.emulated else "measured"
        return f"{self.seconds * 1e6:.2f} us {kind}: {text_of(self.config)}"

