"""A record of every pass of a lowering: an instrument of TVM's ``PassContext``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm.ir.instrument import pass_instrument
from tvm.tirx import PrimFunc

from warploom.lower.lowerings import lower
from warploom.tile.read import is_tile_program
from warploom.tile.state import STATE, read_state

_PREFIX = "warploom."


@dataclass(frozen=True)
class Step:
    """The function that one pass made, and its decisions.

    Attributes
    ----------
    name : str
        The pass, as :mod:`warploom.transform` has it.
    func : PrimFunc
        The function after it; before it, if it declined.
    decisions : tuple of str
        The choices of the pass and their reasons; or the reason why it declined.
    """

    name: str
    func: PrimFunc
    decisions: tuple[str, ...] = ()

    def __str__(self) -> str:
        chosen = "".join(f"\n#   {decision}" for decision in self.decisions)
        return f"# after {self.name}{chosen}\n{self.func.without_attr(STATE).script()}"


@pass_instrument
class LoweringTrace:
    """Records the tile program after each pass while a ``PassContext`` has it.

    Attributes
    ----------
    steps : list of Step
        One for each pass and function, in order. A lowering that was tried in vain ends with the
        pass that declined.

    Examples
    --------
    >>> trace = LoweringTrace()
    >>> with tvm.transform.PassContext(instruments=[trace]):
    ...     executable = tvm.compile(mod, target, tir_pipeline="warploom")
    >>> trace.steps[-1].name
    'Verify'
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._running: tuple[str, PrimFunc] | None = None

    def run_before_pass(self, mod: tvm.IRModule, info: Any) -> None:
        func = _program_of(mod, info)
        if func is None:
            return
        if self._running is not None:  # a pass that began and did not end has declined
            name, before = self._running
            self.steps.append(Step(name, before, _decisions(func)[-1:]))
        self._running = str(info.name).removeprefix(_PREFIX), func

    def run_after_pass(self, mod: tvm.IRModule, info: Any) -> None:
        if self._running is None or str(info.name).removeprefix(_PREFIX) != self._running[0]:
            return
        name, before = self._running
        self._running = None
        (after,) = mod.functions.values()
        self.steps.append(Step(name, after, _decisions(after)[len(_decisions(before)) :]))


def _program_of(mod: tvm.IRModule, info: Any) -> PrimFunc | None:
    """The program that a pass lowers; None for any other pass."""
    functions = list(mod.functions.values())
    if len(functions) != 1 or not isinstance(functions[0], PrimFunc):
        return None
    begins = str(info.name) == f"{_PREFIX}CheckProgram"
    lowers = begins or STATE in (functions[0].attrs or {}) or info.name == f"{_PREFIX}Verify"
    return functions[0] if lowers else None


def _decisions(func: PrimFunc) -> tuple[str, ...]:
    state = read_state(func)
    return () if state is None else state["decisions"]


def lower_trace(mod: tvm.IRModule | PrimFunc, arch: str | None = None) -> list[Step]:
    """Every tile program of a module after every pass that it goes through.

    ``print(step)`` shows the decisions of a pass and the program that it made. ``arch`` is that of
    :func:`~warploom.lower.lowerings.lower`.

    Examples
    --------
    >>> steps = warploom.lower_trace(program, "sm_90a")
    >>> [step.name for step in steps][:3]
    ['CheckProgram', 'DequantiseScaled', 'Canonicalize']
    """
    module = tvm.IRModule({"main": mod}) if isinstance(mod, PrimFunc) else mod
    trace, context = LoweringTrace(), tvm.transform.PassContext.current()
    with tvm.transform.PassContext(
        opt_level=context.opt_level, instruments=[trace], config=dict(context.config)
    ):
        for function in module.functions.values():
            if isinstance(function, PrimFunc) and is_tile_program(function):
                lower(function, arch, quiet=True)
    return trace.steps
