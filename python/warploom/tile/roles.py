"""Marks the statements of each role of a kernel, for later passes that read roles.

Passes that part roles wrap the statements of each in an attribute; ``strip annotations`` removes
it. Its value is the number of the thread group that executes the statements.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx import Stmt

from warploom.tile import ir
from warploom.tile.hints import PREFIX

_KEY = PREFIX + "role."


@dataclass(frozen=True)
class ThreadRole:
    """A part of a CTA's threads that execute the same statements.

    Attributes
    ----------
    name : str
        Their task: ``"load"``, ``"multiply"``, ``"schedule"`` or ``"compute"``.
    count : int
        Groups of threads that have this role.
    one_thread : bool
        Whether a group is one thread; otherwise it is a warpgroup.
    """

    name: str
    count: int = 1
    one_thread: bool = True

    def __post_init__(self) -> None:
        assert self.name and self.count >= 1

    def mark(self, statements: Iterable[Stmt], index: Any = 0) -> list[Stmt]:
        """The statements as those of this role, executed by its group ``index``."""
        body = list(statements)
        if not body:
            return []
        return [tirx.AttrStmt(0, _KEY + self.name, ir.as_expr(index), ir.seq(body))]


def role_name(statement: Stmt) -> str | None:
    """The role that a statement marks; None if it marks none."""
    if isinstance(statement, tirx.AttrStmt) and statement.attr_key.startswith(_KEY):
        return statement.attr_key.removeprefix(_KEY)
    return None
