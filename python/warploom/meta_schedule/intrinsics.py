"""Imports TVM's tensor intrinsics in a fraction of the time that TVM takes for it.

Every ``TuneContext`` imports them, also for tasks that use none. They are 250 functions in
TVMScript; before each is parsed, TVM asks for the whole stack together with the source text of
every frame, of which it then needs the innermost frames and no text.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_MODULE = "tvm.s_tir.tensor_intrin"
#: Frames between a function in TVMScript and the outermost whose variables it may use.
_FRAMES = 8
_lock = threading.Lock()


def import_intrinsics() -> None:
    """``import tvm.s_tir.tensor_intrin``, quickly; nothing if it has been imported."""
    with _lock:
        if _MODULE not in sys.modules:
            with _short_stacks():
                importlib.import_module(_MODULE)


@contextmanager
def _short_stacks() -> Iterator[None]:
    """Have ``inspect.stack`` return the innermost frames only, without text, in this thread."""
    original, mine = inspect.stack, threading.get_ident()

    def stack(context: int = 1) -> list[Any]:
        return _innermost(sys._getframe(1)) if threading.get_ident() == mine else original(context)

    replacement: Callable[..., list[Any]] = stack
    inspect.stack = replacement
    try:
        yield
    finally:
        inspect.stack = original


def _innermost(frame: Any) -> list[inspect.FrameInfo]:
    frames: list[inspect.FrameInfo] = []
    while frame is not None and len(frames) < _FRAMES:
        code = frame.f_code
        frames.append(
            inspect.FrameInfo(frame, code.co_filename, frame.f_lineno, code.co_name, None, None)
        )
        frame = frame.f_back
    return frames
