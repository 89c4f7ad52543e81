"""Python warnings of warploom: issued once for each compilation, at the author's line.

A pass runs in a callback of TVM, where an exception would lose its class, and its result may be
kept in a cache. Therefore the passes only record warnings (:func:`warn`) while a call such as
``tvm.compile`` runs under :func:`deferred`, which issues them at its end, from a Python frame, so
that ``warnings.simplefilter("error", WarploomWarning)`` ends that call with the warning itself.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warploom import errors
from warploom.errors import WarploomWarning
from warploom.spans import file_of, flat

_PACKAGE = f"{Path(__file__).parent}/"


@dataclass(frozen=True)
class Notice:
    """A warning before it is issued.

    Attributes
    ----------
    category : str
        Name of a class of :mod:`warploom.errors`.
    text : str
    filename : str or None
        The author's file; None stands for the caller outside of TVM and warploom.
    line : int
    """

    category: str
    text: str
    filename: str | None = None
    line: int = 0


@dataclass
class _Record:
    """The notices in a block of :func:`deferred`."""

    notices: dict[Notice, None] = field(default_factory=dict)
    authors: dict[str, Any] = field(default_factory=dict)


_recorded: contextvars.ContextVar[_Record | None] = contextvars.ContextVar(
    "warploom_notices", default=None
)
_silent: contextvars.ContextVar[tuple[type[WarploomWarning], ...] | None] = contextvars.ContextVar(
    "warploom_silent", default=None
)


def warn(text: str, category: type[WarploomWarning], span: Any = None) -> None:
    """Issue a warning, or record it for the end of :func:`deferred`.

    Parameters
    ----------
    text : str
        The observation, its reason, and the fix.
    category : type
        A class of :mod:`warploom.errors`.
    span : tvm.ir.Span, optional
        Of the statement that it is about; without it, or if that is a statement of the package,
        the caller's line is shown.
    """
    refused = _silent.get()
    if refused is not None:
        if issubclass(category, refused):
            raise category(text)
        return
    notice = Notice(category.__name__, text, *_place(span))
    recorded = _recorded.get()
    if recorded is None:
        _issue(notice)
    else:
        recorded.notices[notice] = None


def _place(span: Any) -> tuple[str | None, int]:
    """File and line of a span; none for programs that are generated, or the package's own."""
    for one in flat(span):
        if not file_of(one).startswith(_PACKAGE):
            return file_of(one), int(one.line)
    return None, 0


@contextlib.contextmanager
def deferred() -> Iterator[dict[Notice, None]]:
    """Record the warnings of the block, each once; issue them when the outermost block ends.

    After a :class:`WarploomError`, lints of the program that it refuses are left out.

    Yields
    ------
    dict
        The notices so far as its keys; a block may add notices that it knows from a cache.
    """
    outer = _recorded.get()
    own = _Record() if outer is None else _Record(authors=outer.authors)
    recorded = own.notices
    token = _recorded.set(own)
    try:
        yield recorded
    except BaseException as error:
        _recorded.reset(token)
        # The author of a refused program reads one message, not the lints as well.
        refused = isinstance(error, errors.WarploomError)
        lint = errors.TileProgramWarning.__name__
        left = [warning for warning in recorded if not refused or warning.category != lint]
        # The error matters more than a warning that a filter makes an error.
        with contextlib.suppress(WarploomWarning):
            _pass_on(dict.fromkeys(left), outer)
        raise
    _recorded.reset(token)
    _pass_on(recorded, outer)


@contextlib.contextmanager
def silenced(*refused: type[WarploomWarning]) -> Iterator[None]:
    """No warnings in the block: for a search, which drops most of its trials.

    Parameters
    ----------
    *refused : type
        Categories that are raised at once.
    """
    token = _silent.set(refused)
    try:
        yield
    finally:
        _silent.reset(token)


def remember_author(symbol: str, span: Any) -> None:
    """Note, for the rest of the block of :func:`deferred`, where a function is written."""
    if (recorded := _recorded.get()) is not None:
        recorded.authors[symbol] = span


def author_of(kernel: str) -> tuple[bool, Any]:
    """Whether a kernel is one of the functions that were noted, and the line it is written at."""
    recorded = _recorded.get()
    for symbol, span in recorded.authors.items() if recorded is not None else ():
        if kernel == symbol or kernel.startswith(f"{symbol}_kernel"):
            return True, span
    return False, None


def _pass_on(recorded: dict[Notice, None], outer: _Record | None) -> None:
    if outer is not None:
        outer.notices.update(recorded)
        return
    for notice in recorded:
        _issue(notice)


def _issue(notice: Notice) -> None:
    category = getattr(errors, notice.category)
    filename, line = notice.filename, notice.line
    if filename is None:
        filename, line = _caller()
    warnings.warn_explicit(notice.text, category, filename, line)


def _caller() -> tuple[str, int]:
    """The innermost frame outside of TVM, of warploom and of the standard library's wrappers."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_inside()):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


@functools.cache
def _inside() -> tuple[str, ...]:
    import tvm
    import tvm_ffi

    packages = (f"{Path(module.__file__).parent}/" for module in (tvm, tvm_ffi))
    return (*packages, _PACKAGE, contextlib.__file__, functools.__file__)
