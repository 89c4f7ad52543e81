"""``wl.hints``: what the author of a tile program wants the passes to choose.

A hint has no meaning for the result. Hints are the rows of :mod:`warploom.tile.choices` that passes
follow, as attributes ``warploom.<name>`` around the body of the device function;
:func:`~warploom.tile.hint_attributes.read_hints` gives them back as a :class:`Hints`. TVM prints
attributes of several values in a form that it cannot parse, so a hint that is a pair is two
attributes.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, make_dataclass
from typing import Any

from tvm.ir import StringImm
from tvm.script import tirx as T

from warploom.errors import IllegalCombination
from warploom.tile.choices import CHOICES, Choice, faults

PREFIX = "warploom."
DEVICE_ENTRY = "tirx.device_entry"
#: Attributes of hints for statements that set one of them alone.
PRODUCER_REGISTERS, CONSUMER_REGISTERS = (
    f"{PREFIX}{role}_registers" for role in ("producer", "consumer")
)
SET_REGISTERS = PREFIX + "set_registers"


def _parameters() -> dict[str, list[Choice]]:
    """The rows of each parameter of ``wl.hints``: one, or the two of a pair."""
    rows: dict[str, list[Choice]] = {}
    for row in CHOICES:
        if row.hint is not None:
            rows.setdefault(row.hint, []).append(row)
    return rows


#: The rows of each hint, by the name that authors use.
HINTS: Mapping[str, list[Choice]] = _parameters()
#: Keys of the attributes that are hints.
HINT_KEYS = frozenset(PREFIX + row.name for rows in HINTS.values() for row in rows)
#: The hints by these keys, as authors write them.
HINT_OF_KEY = {PREFIX + row.name: name for name, rows in HINTS.items() for row in rows}


def drawn_values(name: str) -> tuple[Any, ...]:
    """The values of a hint among which a search chooses; empty if there is no list of them.

    Examples
    --------
    >>> drawn_values("persistent"), drawn_values("ctas")
    ((True, False), ())
    """
    rows = HINTS[name]
    found = [row.draws or row.kind.all for row in rows]
    if len(rows) == 1:
        return found[0]
    together = itertools.product(*found)
    names = [row.name for row in rows]
    return tuple(
        values
        for values in together
        if next(faults(dict(zip(names, values, strict=True))), None) is None
    )


#: Pairs of which one element may be left to the passes.
_HALVES = ("registers",)


def _described(name: str, rows: list[Choice]) -> str:
    kinds = ", ".join(str(row.kind) for row in rows)
    kind = f"({kinds})" if len(rows) > 1 else kinds
    text = " ".join(row.sentence for row in rows)
    return f"    {name} : {kind}\n        {text}"


@dataclass(frozen=True)
class Hints(make_dataclass("_Hints", [(name, Any, None) for name in HINTS], frozen=True)):
    def __post_init__(self) -> None:
        for name, rows in HINTS.items():
            value = getattr(self, name)
            if len(rows) > 1 and value is not None:
                _check_pair(name, value)
        if (fault := next(faults(self.by_row()), None)) is not None:
            raise IllegalCombination(fault)

    def by_row(self) -> dict[str, Any]:
        """What is chosen, by the names of the rows of the table."""
        table: dict[str, Any] = {}
        for name, rows in HINTS.items():
            value = getattr(self, name)
            values = value if len(rows) > 1 and value is not None else [value] * len(rows)
            table |= {row.name: each for row, each in zip(rows, values, strict=True)}
        return {name: value for name, value in table.items() if value is not None}

    def attributes(self) -> dict[str, Any]:
        """The hints that are set, as values for ``T.attr``."""
        return {
            PREFIX + name: StringImm(value) if isinstance(value, str) else value
            for name, value in self.by_row().items()
        }


Hints.__doc__ = """The hints of a tile program; None where there is none.

    Attributes
    ----------
""" + "\n".join(_described(name, rows) for name, rows in HINTS.items()) + """

    Examples
    --------
    >>> wl.Hints(stages=3, cluster=(2, 1)).stages
    3
    """


def _check_pair(name: str, value: Any) -> None:
    if not isinstance(value, tuple) or len(value) != 2:
        raise IllegalCombination(f"{name} is {value!r}; it must be a pair of integers.")
    missing = [each is None for each in value]
    if all(missing) or (any(missing) and name not in _HALVES):
        raise IllegalCombination(f"{name} is {value!r}; its elements must be integers.")


def hints(**chosen: Any) -> Any:
    unknown = [name for name in chosen if name not in HINTS]
    if unknown:  # as Python says it, which is shown with the hint that was probably meant
        raise TypeError(f"hints() got an unexpected keyword argument {unknown[0]!r}")
    wanted = Hints(**{
        name: tuple(value) if len(HINTS[name]) > 1 and isinstance(value, Sequence) else value
        for name, value in chosen.items()
    })  # fmt: skip
    attributes = wanted.attributes()
    if not attributes:
        raise IllegalCombination(
            f"hints() got no hint; it takes at least one of {', '.join(HINTS)}."
        )
    return T.attr(attributes)


hints.__doc__ = f"""Hints of the author, as a statement directly after ``T.device_entry()``.

    All are optional, and the passes choose what is left out.

    Parameters
    ----------
{chr(10).join(_described(name, rows) for name, rows in HINTS.items())}

    Raises
    ------
    TypeError
        If there is no hint of a name.
    IllegalCombination
        If a value is out of its range, two exclude each other, or there is no hint at all.

    Examples
    --------
    ``wl.hints(cluster=(2, 1), persistent=True, raster="grouped", group=8)``
    """
hints.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Any"
        )
        for field in fields(Hints)
    ],
    return_annotation="Any",
)
