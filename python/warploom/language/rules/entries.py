"""Rules of the statements at the head of a program: ids of CTAs, other shapes of buffers."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm.tirx import Var, is_buffer_var
from tvm.tirx.stmt import AttrStmt, DeclBuffer, ScopeIdDefStmt, SeqStmt

from warploom.errors import TileProgramError
from warploom.language.rules.nests import text


def scope_ids(statement: Any) -> list[Any]:
    """Definitions of ids at the top level of a device function."""
    if isinstance(statement, AttrStmt):
        return scope_ids(statement.body)
    if isinstance(statement, SeqStmt):
        return [scope_id for child in statement.seq for scope_id in scope_ids(child)]
    return [getattr(statement, "def")] if isinstance(statement, ScopeIdDefStmt) else []


def viewed(declaration: DeclBuffer) -> Any:
    """The buffer that ``T.decl_buffer(shape, dtype, data=buffer.data)`` is another shape of.

    Raises
    ------
    TileProgramError
        If it is none of a buffer.
    """
    variables: list[Var] = []
    if declaration.data is not None:
        tvm_ffi.structural_walk(declaration.data, (Var, variables.append))
    variables = [
        var for var in variables if is_buffer_var(var)
    ]  # without symbolic sizes of the buffer
    if len(variables) != 1:
        raise TileProgramError(
            f"{declaration.buffer.name} is declared over {text(declaration.data)}; write "
            "T.decl_buffer(shape, dtype, data=buffer.data), or allocate it."
        )
    return variables[0]
