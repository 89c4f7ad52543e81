"""``WARPLOOM_AUTOTUNE``: the GEMMs of a model get the fastest of the best few predicted configs.

Those of attentions are measured by :mod:`warploom.relax.measure_attention`.
"""

from __future__ import annotations

import functools
import os

import tvm
from tvm.target import Target
from tvm.tirx import PrimFunc

from warploom import emulator
from warploom.decide.config import Config
from warploom.decide.problem import GemmProblem
from warploom.errors import (
    CacheWarning,
    EmulatedTimeWarning,
    NotMeasuredWarning,
    NotSaved,
    WarploomError,
)
from warploom.meta_schedule.best_few import Measured, measure_best
from warploom.meta_schedule.files import cached_folder
from warploom.meta_schedule.lookup import Lookup
from warploom.target.tvm_target import arch_of, target_from_device
from warploom.warn import warn

#: The environment variable: 0, 1, or how many configs of each function are measured.
SWITCH = "WARPLOOM_AUTOTUNE"
#: Configs of each function with the value 1.
_COUNT = 4
#: The folder of the records in the cache.
_FOLDER = "relax"


class Choice:
    """Configs of GEMMs: those that :func:`MeasureBest` has measured, and before those of records.

    Parameters
    ----------
    lookup : Lookup
        The records.
    """

    def __init__(self, lookup: Lookup) -> None:
        self.lookup = lookup
        self.measured: Measured | None = None

    def config(self, problem: GemmProblem) -> Config | None:
        """The config of a problem; None leaves it to the model."""
        return (self.measured or self.lookup).config(problem)


def MeasureBest(choice: Choice) -> tvm.transform.Pass:
    """A pass that changes no function, and measures configs if the environment asks for it.

    Parameters
    ----------
    choice : Choice
        Gets the fastest configs.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.MeasureBest")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        count, target = wanted_count(), Target.current(allow_none=False)
        if count and has_device(target):
            choice.measured = _measured(mod, target, choice.lookup, count)
        return mod

    return run


def wanted_count() -> int:
    """Configs of each function that the environment asks to measure; 0 for none.

    Raises
    ------
    WarploomError
        If the variable is no integer of at least 0.
    """
    text = os.environ.get(SWITCH, "") or "0"
    if not text.isdecimal():
        raise WarploomError(
            f"{SWITCH} is {text!r}; allowed are 0, 1, or the number of configs to measure for each "
            "function."
        )
    return _COUNT if text == "1" else int(text)


def _measured(mod: tvm.IRModule, target: Target, lookup: Lookup, count: int) -> Measured | None:
    functions = [func for func in mod.functions.values() if isinstance(func, PrimFunc)]
    with cached_folder(_FOLDER) as folder:
        try:
            return measure_best(functions, target, lookup, count, folder)
        except NotSaved as error:
            warn(f"Nothing is measured: {error}", CacheWarning)
            return None


def has_device(target: Target) -> bool:
    """Whether there is a device of a target to measure on; if not, that is said once."""
    device = tvm.cuda(0)
    if not device.exist:
        _say_once(f"{SWITCH} measures nothing: there is no GPU. The model chooses.")
        return False
    wanted, own = arch_of(target).name, arch_of(target_from_device(device)).name
    if wanted != own:
        _say_once(
            f"{SWITCH} measures nothing: the GPU is {own}, the target {wanted}. The model chooses."
        )
        return False
    if emulator.is_enabled():
        _say_emulated()
    return True


@functools.cache
def _say_once(text: str) -> None:
    warn(text, NotMeasuredWarning)


@functools.cache
def _say_emulated() -> None:
    warn(
        f"{SWITCH} on the emulator: small GEMMs and attentions are executed and checked, and their "
        "times mean nothing for a GPU.",
        EmulatedTimeWarning,
    )
