"""Options of TVM's ``PassContext`` that the passes follow.

Every hint of :class:`~warploom.tile.hints.Hints` is an option of that name, for programs whose
author leaves the choice open; and ``warploom.add_lower_pass`` has passes of the user.

Examples
--------
>>> config = {"warploom.stages": 3, "warploom.cluster": (2, 1)}
>>> with tvm.transform.PassContext(config=config):
...     executable = tvm.compile(mod, target)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import tvm
from tvm.ir import StringImm

from warploom.errors import WarploomError
from warploom.tile.hints import PREFIX, Hints

#: ``[("ChooseGrid", pass), ...]``: passes to run after ours of that name, in this order.
ADDED = PREFIX + "add_lower_pass"
#: The options, by name, with the type that ``PassContext.list_configs()`` tells.
OPTIONS: Mapping[str, str] = {
    **{PREFIX + field.name: str(field.type).removesuffix(" | None")
       for field in dataclasses.fields(Hints)},
    ADDED: "list[tuple[str, Pass]]",
}  # fmt: skip


def legal(option: str, value: Any) -> Any:
    """The value of an option that a user has set.

    Raises
    ------
    IllegalCombination
        If it is out of its range.
    WarploomError
        If it is no list of names and passes.
    """
    if option == ADDED:
        return _require_passes(value)
    _hints({option: value})
    return value


def with_options(hints: Hints) -> Hints:
    """The hints of an author, completed by the options of the current ``PassContext``.

    Raises
    ------
    IllegalCombination
        If they do not go together.
    """
    config = tvm.transform.PassContext.current().config
    set_here = _hints({name: config[name] for name in OPTIONS if name != ADDED and name in config})
    missing = {
        field.name: getattr(set_here, field.name)
        for field in dataclasses.fields(Hints) if getattr(hints, field.name) is None
    }  # fmt: skip
    return dataclasses.replace(hints, **missing)


def added_passes(name: str) -> list[tvm.transform.Pass]:
    """Passes that the current ``PassContext`` adds behind the one of that name."""
    config = tvm.transform.PassContext.current().config
    return [added_pass for after, added_pass in config.get(ADDED, ()) if str(after) == name]


def _hints(values: Mapping[str, Any]) -> Hints:
    return Hints(**{name.removeprefix(PREFIX): _python(value) for name, value in values.items()})


def _python(value: Any) -> Any:
    """A value as hints have it, from one that has been a TVM object."""
    if isinstance(value, (bool, int)):
        return value
    if isinstance(value, (str, StringImm)):
        return str(getattr(value, "value", value))
    if hasattr(value, "__iter__"):
        return tuple(map(_python, value))
    return value


def _require_passes(value: Any) -> Any:
    pairs = [tuple(pair) for pair in value] if hasattr(value, "__iter__") else [()]
    good = all(
        len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], tvm.transform.Pass)
        for pair in pairs
    )
    if not good:
        raise WarploomError(
            f"{ADDED} is a list of pairs, each the name of a pass of warploom.transform and a "
            "tvm.transform.Pass to run after it."
        )
    return value
