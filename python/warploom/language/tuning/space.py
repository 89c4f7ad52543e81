"""The configs of a factory: a list of them, or the product of values for each parameter."""

from __future__ import annotations

import inspect
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from warploom.errors import ArgumentError
from warploom.tile.hints import HINTS, drawn_values

#: A config: values of the tuned parameters by name.
Config = dict[str, Any]
#: What leaves configs out: returns the reason, True for one without words, None or False to keep.
WhyNot = Callable[..., "str | bool | None"]

#: Values of hints that are named without any: those that searches draw.
HINT_VALUES: Mapping[str, tuple[Any, ...]] = {
    name: found for name in HINTS if (found := drawn_values(name))
}


@dataclass(frozen=True)
class Space:
    """The configs among which a search chooses; made by :func:`space`.

    Attributes
    ----------
    values : mapping from str to tuple
        The values of each tuned parameter, in the order in which they are to be tried.
    listed : tuple of dict, optional
        The configs, if they are a list; without it all combinations of ``values``.
    why_not : callable, optional
        See :func:`space`.
    """

    values: Mapping[str, tuple[Any, ...]]
    listed: tuple[Config, ...] | None = None
    why_not: WhyNot | None = field(default=None, compare=False)

    @classmethod
    def of(cls, configs: Any) -> Space:
        """A space from what :func:`warploom.autotune` takes as ``configs``.

        Raises
        ------
        ArgumentError
            If there are no configs, or a value cannot be recorded.
        """
        if isinstance(configs, Space):
            return configs
        if isinstance(configs, Mapping):
            return space(**configs)
        listed = tuple(dict(config) for config in configs)
        for config in listed:
            for name, value in config.items():
                _require_plain(name, value)
        if not listed or not all(listed):
            raise ArgumentError("configs= is empty, or has an empty config; give at least one.")
        names = dict.fromkeys(name for config in listed for name in config)
        values = {
            name: tuple(dict.fromkeys(c[name] for c in map(_plain_config, listed) if name in c))
            for name in names
        }
        return cls(values, tuple(map(_plain_config, listed)))

    @property
    def names(self) -> tuple[str, ...]:
        """The tuned parameters."""
        return tuple(self.values)

    def __len__(self) -> int:
        """Configs, also those that ``why_not`` leaves out."""
        if self.listed is not None:
            return len(self.listed)
        return math.prod(len(values) for values in self.values.values())

    def __iter__(self) -> Iterator[Config]:
        """All configs, in their order: the last parameter changes first."""
        if self.listed is not None:
            yield from map(dict, self.listed)
            return
        for chosen in itertools.product(*self.values.values()):
            yield dict(zip(self.values, chosen, strict=True))

    def at(self, number: int) -> Config:
        """The config at a place of the order."""
        if self.listed is not None:
            return dict(self.listed[number])
        config: Config = {}
        for name, values in reversed(self.values.items()):
            number, place = divmod(number, len(values))
            config[name] = values[place]
        return {name: config[name] for name in self.values}

    def __contains__(self, config: Config) -> bool:
        if self.listed is not None:
            return config in self.listed
        return config.keys() == self.values.keys() and all(
            _is_among(value, self.values[name]) for name, value in config.items()
        )

    def neighbours(self, config: Config) -> Iterator[Config]:
        """The configs that differ from one in a single parameter, the nearest values first."""
        if self.listed is not None:
            for other in self.listed:
                if other.keys() == config.keys() and _differences(config, other) == 1:
                    yield dict(other)
            return
        for name, values in self.values.items():
            if name not in config or not _is_among(config[name], values):
                continue
            place = values.index(config[name])
            for other in sorted(range(len(values)), key=lambda at: abs(at - place)):
                if other != place:
                    yield {**config, name: values[other]}

    def reason_against(self, config: Config, key: Mapping[str, Any]) -> str | None:
        """Why ``why_not`` leaves a config out; None if it does not.

        Parameters
        ----------
        config : dict
        key : mapping
            The other arguments of the factory, which ``why_not`` may take as well.
        """
        if self.why_not is None:
            return None
        answer = _call_with_named(self.why_not, {**key, **config})
        if answer is None or answer is False or answer == "":
            return None
        return answer if isinstance(answer, str) else "why_not leaves it out"


def space(*hints: str, why_not: WhyNot | None = None, **values: Sequence[Any]) -> Space:
    """The product of values for each parameter of a factory, for :func:`warploom.autotune`.

    Parameters
    ----------
    *hints : str
        Parameters that are hints of ``wl.hints``; the table of hints has their values.
    why_not : callable, optional
        Called with those parameters of the factory that it names, tuned ones and others. It
        returns why they do not go together, or True; None or False if they do.
    **values
        Parameter -> values: numbers, words, bools, None, or tuples of them. Those that are likely
        to be good go first.

    Raises
    ------
    ArgumentError
        If a parameter has no values, or one that a record cannot hold; if ``hints`` names what is
        none.

    Examples
    --------
    >>> len(space("split_k", tile_m=(64, 128), tile_n=(64, 128, 256)))
    48
    >>> s = space(tile_m=(64, 128), consumers=(1, 2), why_not=lambda tile_m, consumers:
    ...           "a warpgroup computes 64 rows" if tile_m < 64 * consumers else None)
    >>> s.reason_against({"tile_m": 64, "consumers": 2}, {})
    'a warpgroup computes 64 rows'
    """
    chosen: dict[str, tuple[Any, ...]] = {}
    for name, given in values.items():
        if isinstance(given, str) or not isinstance(given, Sequence) or not len(given):
            raise ArgumentError(
                f"{name}={given!r} is no list of values; give at least one, such as {name}=(1, 2)."
            )
        for value in given:
            _require_plain(name, value)
        chosen[name] = tuple(dict.fromkeys(map(_plain, given)))
    for name in hints:
        if name not in HINT_VALUES:
            raise ArgumentError(
                f"{name!r} is no hint with values of its own; give values ({name}=...), or name "
                f"one of {', '.join(HINT_VALUES)}."
            )
        chosen.setdefault(name, HINT_VALUES[name])
    if not chosen:
        raise ArgumentError("space() got no parameter; give values of at least one.")
    return Space(chosen, None, why_not)


def text_of(config: Mapping[str, Any]) -> str:
    """A config for people: ``tile_m=128 cluster=(2, 1)``."""
    return " ".join(f"{name}={value!r}" for name, value in config.items())


def encode(value: Any) -> str:
    """A value as text that :func:`decode` reads back; equal configs have equal texts."""
    return json.dumps(value, sort_keys=True)


def decode(text: str) -> Any:
    """The value of a text, with tuples for lists."""
    return _plain(json.loads(text))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return _plain_config(value)
    return tuple(map(_plain, value)) if isinstance(value, (list, tuple)) else value


def _plain_config(config: Mapping[str, Any]) -> Config:
    return {name: _plain(value) for name, value in config.items()}


def _require_plain(name: str, value: Any) -> None:
    if value is None or isinstance(value, (bool, int, float, str)):
        return
    if isinstance(value, (list, tuple)):
        for part in value:
            _require_plain(name, part)
        return
    raise ArgumentError(
        f"{name}={value!r} is a {type(value).__name__}, which no record can hold; allowed are "
        "numbers, words, bools, None, and tuples of them."
    )


def _is_among(value: Any, values: tuple[Any, ...]) -> bool:
    return any(value == other and type(value) is type(other) for other in values)


def _differences(first: Config, second: Config) -> int:
    return sum(first[name] != second[name] for name in first)


def _call_with_named(function: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    """Call a function with those of some values whose names it has."""
    parameters = inspect.signature(function).parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return function(**values)
    return function(**{one.name: values[one.name] for one in parameters if one.name in values})
