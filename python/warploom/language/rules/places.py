"""The author's line in the errors of tile programs."""

from __future__ import annotations

from typing import Any

from warploom.errors import TileProgramError
from warploom.messages.blame import line_of
from warploom.messages.frames import ARROW


def at_place(error: TileProgramError, statement: Any) -> TileProgramError:
    """The error with the line of a statement behind its sentence, if it has none yet."""
    line = line_of(getattr(statement, "span", None))
    if line is None or ARROW in str(error):
        return error
    return TileProgramError("\n".join([str(error), *line.quoted()]))
