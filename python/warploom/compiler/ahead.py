"""Kernels of a model, compiled while others are still being lowered.

TVM lowers all functions of a module, then finishes all kernels, then compiles them. Lowering is
Python, in one thread; the compiler needs none of it. So a kernel goes to the compiler as soon as it
is lowered, and TVM's build later finds it: the same kernel object, finished, with its source and
its compilation. A kernel that is not found is finished and compiled then, as without this file.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass
class _Started:
    """A kernel as it was lowered, as TVM's last passes left it, and its part of the model."""

    lowered: Any
    finished: Any
    part: Any = None


@dataclass
class Ahead:
    """The kernels of one build of a model that the compiler has already.

    Attributes
    ----------
    stack : contextlib.ExitStack
        Closed when the build ends.
    workers : object or None
        The threads that compile, once there is work for them.
    """

    stack: contextlib.ExitStack
    workers: Any = None
    _started: dict[str, list[_Started]] = field(default_factory=dict)
    #: The kernel that is being started now.
    _now: _Started | None = None

    def start(self, name: str, lowered: Any, finished: Any, build: Any) -> None:
        """Note a kernel, and call ``build()``, in which :meth:`keep` may be called for it."""
        self._now = _Started(lowered, finished)
        try:
            build()
        finally:
            started, self._now = self._now, None
        self._started.setdefault(name, []).append(started)

    @property
    def is_starting(self) -> bool:
        """Whether :meth:`start` is running."""
        return self._now is not None

    def keep(self, part: Any) -> None:
        """The part that the kernel which is started is, source and compilation."""
        self._now.part = part

    def finished(self, name: str, lowered: Any) -> Any | None:
        """What TVM's last passes made of a kernel; None if it was not started."""
        each = self._started.get(name, ())
        return next((one.finished for one in each if one.lowered.same_as(lowered)), None)

    def part(self, name: str, finished: Any) -> Any | None:
        """What was kept for a kernel that TVM's last passes have left; None if nothing was."""
        each = self._started.get(name, ())
        return next((one.part for one in each if one.finished.same_as(finished)), None)


_current: contextvars.ContextVar[Ahead | None] = contextvars.ContextVar(
    "warploom_ahead", default=None
)


@contextlib.contextmanager
def compiling_ahead() -> Iterator[None]:
    """A context for the build of a model, whose kernels may be compiled ahead."""
    with contextlib.ExitStack() as stack:
        token = _current.set(Ahead(stack))
        try:
            yield
        finally:
            _current.reset(token)


def current() -> Ahead | None:
    """The kernels of this build; None where no model is built."""
    return _current.get()


def reusing(step: Any) -> Any:
    """TVM's last passes over kernels, for those alone that were not started.

    Parameters
    ----------
    step : Pass
        Changes each function of a module by itself.
    """
    import tvm

    @tvm.transform.module_pass(opt_level=0, name=str(step.info.name))
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        ahead = current()
        if ahead is None:
            return step(mod)
        known = {v: ahead.finished(v.name_hint, function) for v, function in mod.functions.items()}
        rest = {v: mod[v] for v, function in known.items() if function is None}
        if len(rest) == len(known):
            return step(mod)
        changed = dict(step(tvm.IRModule(rest, attrs=mod.attrs)).functions.items()) if rest else {}
        both = {v: function or changed[v] for v, function in known.items()}
        return tvm.IRModule(both, attrs=mod.attrs)

    return run
