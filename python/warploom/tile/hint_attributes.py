"""The hints of a tile program, read back from the attributes around its body."""

from __future__ import annotations

from typing import Any

from tvm.ir import StringImm
from tvm.tirx import PrimFunc
from tvm.tirx.stmt import AttrStmt, ScopeIdDefStmt, SeqStmt

from warploom.errors import IllegalCombination
from warploom.tile.hints import DEVICE_ENTRY, HINT_KEYS, HINTS, PREFIX, Hints


def read_hints(func: PrimFunc) -> Hints:
    """The hints of a tile program.

    Raises
    ------
    IllegalCombination
        If an attribute ``warploom.*`` around the body is no hint, or its value is out of range.

    Examples
    --------
    >>> wl.read_hints(programs.gemm(Config(cluster_m=2), 512, 512)).cluster
    (2, 1)
    """
    hints: dict[str, Any] = {}
    for statement in hint_statements(func):
        key, value = str(statement.attr_key), _python_value(statement)
        if hints.setdefault(key, value) != value:
            raise IllegalCombination(
                f"the hint {key} is there twice, as {hints[key]} and as {value}; leave out one of "
                "them."
            )
    values: dict[str, Any] = {}
    for name, rows in HINTS.items():
        found = [hints.pop(PREFIX + row.name, None) for row in rows]
        if any(value is not None for value in found):
            values[name] = tuple(found) if len(rows) > 1 else found[0]
    if hints:
        raise IllegalCombination(
            f"attribute {sorted(hints)[0]!r} is no hint; write hints with warploom.tile.hints."
        )
    return Hints(**values)


def hint_statements(func: PrimFunc) -> list[AttrStmt]:
    """The attributes of a function that are read as hints: those before all other statements.

    Definitions of ids may precede them.
    """
    statements: list[AttrStmt] = []
    statement, entered, defined = func.body, False, False
    while True:
        if isinstance(statement, SeqStmt):  # host statements may precede the device's
            parts = [part for part in statement.seq if not isinstance(part, ScopeIdDefStmt)]
            defined |= entered and len(parts) < len(statement.seq)
            if not entered:
                parts = [attribute for attribute in parts if isinstance(attribute, AttrStmt)]
            if not parts:
                break
            statement = parts[0]
        if not isinstance(statement, AttrStmt):
            break
        key = str(statement.attr_key)
        entered |= key == DEVICE_ENTRY
        # Behind ids, names for timelines may begin.
        if key in HINT_KEYS or (key.startswith(PREFIX) and not defined):
            statements.append(statement)
        elif not key.startswith("tirx."):
            break
        statement = statement.body
    return statements


def _python_value(statement: AttrStmt) -> Any:
    value = statement.value
    if isinstance(value, StringImm):
        return str(value.value)
    return bool(value.value) if str(value.ty.dtype) == "bool" else int(value.value)
