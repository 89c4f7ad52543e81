"""``WARPLOOM_AUTOTUNE``: attentions get the fastest of the best few predicted configs."""

from __future__ import annotations

from tvm.target import Target

from warploom import emulator
from warploom.decide.config import Config
from warploom.decide.families.attention import AttentionProblem, attention_configs
from warploom.decide.machines import machine_for
from warploom.errors import NotMeasuredWarning, WarploomError
from warploom.language.tuning.space import Space
from warploom.language.tuning.task import Task
from warploom.language.tuning.tuner import Options
from warploom.meta_schedule.best_few import EMULATED_OPERATIONS, MANY_ROWS
from warploom.meta_schedule.programs.search import find
from warploom.relax.attention import Attention, as_arguments
from warploom.relax.measure_best import has_device, wanted_count
from warploom.warn import warn

#: Sizes of the launch are measured so: many queries and keys, of one sequence.
_OF_LAUNCH = {"tokens": MANY_ROWS, "keys": MANY_ROWS, "batch": 1}


def measured_attention(one: Attention) -> Config | None:
    """The fastest config of an attention; None if nothing is to be measured, or can be.

    Parameters
    ----------
    one : Attention
        Sizes that only the launch knows are measured as 2048 tokens of one sequence.
    """
    target, count = Target.current(allow_none=False), wanted_count()
    if not count or not has_device(target):
        return None
    sizes = {name: size or _OF_LAUNCH[name] for name, size in one.sizes.items()}
    if emulator.is_enabled() and _operations(one.problem, sizes) > EMULATED_OPERATIONS:
        return None
    configs = attention_configs(one.problem, machine_for(target))[:count]
    listed = [as_arguments(config) for config in configs]
    task = Task(
        "attention", one.words, lambda config: one.make(**config), Space.of(listed), target,
        arguments=one.words, sizes=sizes,
    )  # fmt: skip
    try:
        best = find(task, Options(task.space, trials=len(listed)), go_on=False)
    except WarploomError as error:
        warn(
            f"Nothing is measured of an attention, and the model chooses: {error}",
            NotMeasuredWarning,
        )
        return None
    return configs[listed.index(best.config)] if best.config in listed else None


def _operations(problem: AttentionProblem, sizes: dict[str, int]) -> float:
    heads = sizes["batch"] * problem.heads * problem.head_dim
    return 4.0 * heads * sizes["tokens"] * sizes["keys"]
