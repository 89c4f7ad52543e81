"""Ids of CTAs, warps and threads that a program defines, and the scopes that they count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx import Stmt, Var

from warploom.tile import ir

#: Kinds of ids that a program defines: (parent, child) as TIRx has them.
KINDS = {
    "cta": ("kernel", "cta"),
    "cta_in_cluster": ("cluster", "cta"),
    "warpgroup": ("cta", "warpgroup"),
    "warp_in_warpgroup": ("warpgroup", "warp"),
    "lane": ("warp", "thread"),
}


@dataclass(frozen=True)
class Id:
    """Variables that tell CTAs, warps or threads apart, and how many there are."""

    kind: str
    vars: tuple[Var, ...]
    extents: tuple[Any, ...]

    def statement(self) -> Stmt:
        """Its definition."""
        parent, child = KINDS[self.kind]
        extents = [ir.as_expr(extent) for extent in self.extents]
        return tirx.ScopeIdDefStmt(tirx.ScopeIdDef(list(self.vars), extents, parent, child))


def id_of(definition: tirx.ScopeIdDef) -> Id:
    """The id that a statement of a program defines.

    Raises
    ------
    KeyError
        If it is of none of those kinds.
    """
    kinds = {tuple(pair): kind for kind, pair in KINDS.items()}
    kind = kinds[parent_and_child(definition)]
    return Id(kind, tuple(definition.def_ids), tuple(definition.extents or ()))


def parent_and_child(definition: tirx.ScopeIdDef) -> tuple[str, str]:
    """Scopes of an id: the parent, and the parts of it that the id counts."""
    from tvm.tirx import exec_scope

    return exec_scope._SCOPE_BINDING_TO_PARENT_CUR[int(definition.scope)]
