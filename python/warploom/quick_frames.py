"""The frames of callers for TVM's parser, without the search for their modules.

``inspect.stack()`` finds the source file and module of every frame, and for that walks through all
of ``sys.modules``: 20 ms and more a call where hundreds are loaded. TVM's parser calls it twice for
each function in TVMScript, as which every op schedule of TVM is written: it took a fifth of the
build of a model. The parser reads the frames themselves, and one source line of the third. Objects
in TVMScript that last as long as a kernel note where they were made: file, line and column of the
first frame out of TVM's own module.
"""

from __future__ import annotations

import dis
import inspect
import itertools
import linecache
import sys
import types
from collections.abc import Iterator
from typing import Any

#: Frames whose source line and column are looked up: the decorator's, its caller's, the class
#: around it; and behind two of TVM's own functions the one that makes an object.
_WITH_LINES = 6
#: Of Python's bytecode.
_INSTRUCTION_BYTES = 2
#: Modules of TVM that ask for frames.
_ASKING = (
    "tvm.tirx.script.parser.entry",
    "tvm.script.parser.ir.entry",
    "tvm.script.parser.core.parser",
    "tvm.tirx.script.builder.ir",
)


def quick_stack(context: int = 1) -> list[inspect.FrameInfo]:
    """As ``inspect.stack``, but with source lines and columns of the first frames alone.

    Parameters
    ----------
    context : int
        With 0 no frame has its line; other numbers count as 1.
    """
    return _infos(sys._getframe(1), context)


def quick_outer_frames(frame: Any, context: int = 1) -> list[inspect.FrameInfo]:
    """As ``inspect.getouterframes``, but with lines and columns of the first frames alone."""
    return _infos(frame, context)


def _infos(frame: Any, context: int) -> list[inspect.FrameInfo]:
    return [
        _info(each, bool(context) and place < _WITH_LINES)
        for place, each in enumerate(_outwards(frame))
    ]


def _outwards(frame: Any) -> Iterator[types.FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _info(frame: types.FrameType, with_line: bool) -> inspect.FrameInfo:
    code, number = frame.f_code, frame.f_lineno
    line = linecache.getline(code.co_filename, number, frame.f_globals) if with_line else ""
    found, index = ([line], 0) if line else (None, None)
    at = _positions(frame) if with_line else None
    return inspect.FrameInfo(
        frame, code.co_filename, number, code.co_name, found, index, positions=at
    )


def _positions(frame: types.FrameType) -> dis.Positions | None:
    """Line and column of the code that a frame executes, as ``inspect`` finds them."""
    instruction = frame.f_lasti // _INSTRUCTION_BYTES
    found = next(itertools.islice(frame.f_code.co_positions(), instruction, None), None)
    return dis.Positions(*found) if found else None


def install() -> None:
    """Give TVM's parser these functions; ``inspect`` itself stays as it is."""
    quick = types.SimpleNamespace(
        **{**vars(inspect), "stack": quick_stack, "getouterframes": quick_outer_frames}
    )
    for name in _ASKING:
        module = sys.modules.get(name)
        if module is not None and vars(module).get("inspect") is inspect:
            module.inspect = quick
