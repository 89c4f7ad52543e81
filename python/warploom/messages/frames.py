"""Which line of a traceback the author wrote: the innermost outside of TVM, warploom and Python."""

from __future__ import annotations

import functools
import linecache
import sysconfig
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

#: How a message says where, as TVM's parser does.
ARROW = " --> "
#: Names of code that no file holds, but that an author has written.
_TYPED = ("<stdin>", "<string>", "<ipython")


@dataclass(frozen=True)
class Line:
    """A line of a source file, from 1."""

    path: str
    number: int

    @property
    def text(self) -> str:
        """The line without the end of line; empty if the file cannot be read."""
        return linecache.getline(self.path, self.number).rstrip()

    def quoted(self) -> list[str]:
        """Its place and its text, in the form of TVM's parser."""
        place = [f"{ARROW}{self.path}:{self.number}"]
        text = self.text.strip()
        return [*place, f" {self.number} |  {text}"] if text else place


def author_line(trace: TracebackType | None) -> Line | None:
    """The innermost line of a traceback that is the author's; None if there is none."""
    author = None
    for frame, number in traceback.walk_tb(trace):
        path = frame.f_code.co_filename
        if is_authors(path):
            author = Line(path, number)
    return author


def is_authors(path: str) -> bool:
    """Whether a source is neither of TVM, nor of warploom, nor of Python's own library.

    Frames of C++ and Cython that tvm_ffi adds have no Python file.
    """
    if path.startswith("<") or "ipykernel" in path:
        return not path.startswith("<") or path.startswith(_TYPED)
    file = Path(path)
    if file.suffix != ".py" or not file.exists():
        return False
    file = file.resolve()
    if {"site-packages", "dist-packages"}.isdisjoint(file.parts) and _standard() in file.parents:
        return False
    return not any(folder in file.parents for folder in _libraries())


@functools.cache
def _standard() -> Path:
    return Path(sysconfig.get_path("stdlib")).resolve()


@functools.cache
def _libraries() -> tuple[Path, ...]:
    import tvm
    import tvm_ffi

    modules = (tvm.__file__, tvm_ffi.__file__, Path(__file__).parent)
    return tuple(Path(file).resolve().parent for file in modules)
