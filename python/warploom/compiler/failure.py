"""The message when the CUDA compiler rejects a source: its first error, and where its log is."""

from __future__ import annotations

import functools
import itertools
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from warploom.errors import CompilerError

#: Logs that a process keeps; further ones replace the oldest.
KEPT = 16
#: "kernels.cu(12): error: text" of NVRTC and nvcc; "ptxas ... error : text" of the assembler.
_ERROR = re.compile(
    r"^(?P<where>[^\n]*?\((?P<line>\d+)\): )?[^\n]*?error\b[ #\w-]*: ?(?P<text>.+)$", re.M
)
_numbers = itertools.count()


@functools.cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="warploom-compiler-"))


def compiler_error(
    error: Exception, source: str, places: Mapping[int, str] | None = None
) -> CompilerError | None:
    """The error to raise for a rejected source, whose log and text are written to a file.

    None if ``error`` is another one, such as a missing compiler.

    Parameters
    ----------
    error : Exception
        TVM's exception, with the compiler's log as its text.
    source : str
        The compiled program.
    places : mapping of int to str, optional
        Numbers of lines of the source -> ``"path:line"`` in the author's script.
    """
    log = str(error).strip()
    errors = list(_ERROR.finditer(log))
    if not errors:
        return None
    file = _folder() / f"{next(_numbers) % KEPT}.log"
    file.write_text(f"{log}\n\n{source}\n")
    heading, first = log.splitlines()[0].rstrip(":"), errors[0]
    count = f" ({len(errors)} errors)" if len(errors) > 1 else ""
    message = (
        f"{heading}: {first['where'] or ''}error: {first['text'].strip()}{count}; log and source: "
        f"{file}"
    )
    place = (places or {}).get(int(first["line"])) if first["line"] else None
    return CompilerError(message if place is None else f"{message}\n --> {place}")
