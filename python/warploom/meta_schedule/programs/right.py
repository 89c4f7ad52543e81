"""The right results of a task, and tensors of it that are not random; both as files for workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tvm.tirx import PrimFunc

from warploom.errors import ArgumentError, TileProgramError, WarploomError
from warploom.language.calls.arguments import TensorSpec
from warploom.language.calls.parameters import Parameter
from warploom.language.interpreter import interpret
from warploom.language.tuning.task import Task
from warploom.language.values.dtypes import numpy_dtype
from warploom.meta_schedule.artifact import RESULTS, Facts
from warploom.meta_schedule.measure import Argument, before, inputs_of_check, with_numbers
from warploom.meta_schedule.originals import key_of
from warploom.meta_schedule.programs.candidates import Candidates
from warploom.meta_schedule.programs.exact import is_exact
from warploom.meta_schedule.programs.workload import stand_in
from warploom.meta_schedule.programs.written import written_by
from warploom.warn import silenced

#: Seconds for the interpreter, and CTAs that it executes at least.
_SECONDS, _LEAST_CTAS = 10.0, 16

Shapes = Sequence[tuple[Parameter, "tuple[int, ...] | None"]]


def arguments_of(shapes: Shapes) -> tuple[Argument, ...]:
    """Shapes and dtypes of the tensors among parameters."""
    return tuple((shape, parameter.dtype) for parameter, shape in shapes if shape is not None)


def facts_of_task(candidates: Candidates, title: str, folder: Path) -> Facts:
    """What all candidates of a task have in common; writes the files that it names.

    Parameters
    ----------
    candidates : Candidates
    title : str
        The task for people, as the journal has it.
    folder : Path
        For the files.

    Raises
    ------
    ArgumentError
        If ``inputs`` or ``reference`` return what does not fit, or a number is unknown.
    """
    task, shapes = candidates.task, candidates.shapes
    own = _own_inputs(task, shapes)
    numbers = tuple(
        (at, _number(task, parameter, at, own))
        for at, (parameter, shape) in enumerate(shapes)
        if shape is None
    )
    outputs, updated = written_by(candidates.first.program)
    exact = is_exact(candidates.first.program, [value for _, value in numbers])
    facts = Facts(
        key_of(stand_in(task, shapes)), title, outputs=outputs, updated=updated, exact=exact,
        numbers=numbers, given=_write_given(task, shapes, own, folder), is_program=True,
    )  # fmt: skip
    path = folder / f"right{RESULTS}"
    with silenced():
        right, in_part = _right(candidates, facts, arguments_of(shapes))
    np.savez(path, **{str(at): array for at, array in right.items()})
    return replace(facts, reference=str(path), in_part=in_part)


def _own_inputs(task: Task, shapes: Shapes) -> Mapping[str, Any]:
    """What the user's ``inputs`` returns."""
    if task.inputs is None:
        return {}
    specs = {each.name: TensorSpec(shape or (), each.dtype) for each, shape in shapes}
    own = task.inputs(specs, np.random.default_rng(0))
    for name in own:
        if name not in specs:
            raise ArgumentError(
                f"{task.name}: inputs= returns {name!r}; its program has {', '.join(specs)}."
            )
    return own


def _number(task: Task, parameter: Parameter, at: int, own: Mapping[str, Any]) -> Any:
    if parameter.name in own:
        return own[parameter.name]
    if at in task.numbers and task.numbers[at] is not None:
        return task.numbers[at]
    if "float" in parameter.dtype:
        return 1.0
    raise ArgumentError(
        f"{task.name}: {parameter} has no value to measure with; call the kernel with its "
        "arguments, or let inputs= return it."
    )


def _write_given(
    task: Task, shapes: Shapes, own: Mapping[str, Any], folder: Path
) -> str | None:
    """The file of tensors that are not random; None if all are."""
    given: dict[str, np.ndarray] = {}
    number = 0
    for at, (parameter, shape) in enumerate(shapes):
        if shape is None:
            continue
        value = own.get(parameter.name, task.given.get(at))
        if value is not None:
            given[str(number)] = _fitting(task, parameter, shape, value, "inputs= returns")
        number += 1
    if not given:
        return None
    path = folder / "given.npz"
    np.savez(path, **given)
    return str(path)


def _fitting(
    task: Task, parameter: Parameter, shape: tuple[int, ...], value: Any, whose: str
) -> np.ndarray:
    """An array of a parameter's shape and dtype, from numpy or PyTorch."""
    if hasattr(value, "detach"):  # PyTorch has dtypes that numpy lacks
        value = value.detach().cpu()
        value = value.float().numpy() if value.is_floating_point() else value.numpy()
    array = np.asarray(value)
    if array.shape != shape:
        raise ArgumentError(
            f"{task.name}: {whose} an array of shape {array.shape} for {parameter}; it must be "
            f"{shape}."
        )
    return np.ascontiguousarray(array.astype(numpy_dtype(parameter.dtype), copy=False))


def _right(
    candidates: Candidates, facts: Facts, arguments: Sequence[Argument]
) -> tuple[dict[int, np.ndarray], bool]:
    """The right contents of parameters that are written, by their positions among tensors.

    And whether these are only those of some CTAs.
    """
    task = candidates.task
    inputs = inputs_of_check(facts, arguments)

    def arrays() -> list[np.ndarray]:
        return [
            (before(facts, inputs, at) if at in facts.outputs else array).copy()
            for at, array in enumerate(inputs)
        ]

    if task.reference is None:
        found, in_part = _interpreted(task, candidates.first.program, facts, arrays)
        return {at: found[at] for at in facts.outputs}, in_part
    found = arrays()
    values = with_numbers(facts, found)
    returned = task.reference(*[v for at, v in enumerate(values) if at not in task.results])
    written = {at: found[at] for at in facts.outputs}
    return written | _returned(candidates, facts, returned), False


def _interpreted(
    task: Task, program: PrimFunc, facts: Facts, arrays: Callable[[], list[np.ndarray]]
) -> tuple[list[np.ndarray], bool]:
    """The tensors after a program, by the interpreter; of a large one, those of some CTAs.

    The first and the last CTA say how many others there is time for.
    """
    try:
        begin, few = time.monotonic(), arrays()
        if interpret(program, with_numbers(facts, few), ctas=2):
            return few, False
        seconds = time.monotonic() - begin
        most = max(_LEAST_CTAS, int(2 * _SECONDS / max(seconds, 1e-6)))
        found = arrays()
        return found, not interpret(program, with_numbers(facts, found), ctas=most)
    except TileProgramError as error:
        raise WarploomError(
            f"{task.name}: wl.interpret, which results are compared with, does not execute its "
            f"program: {error} Give the right results by reference=."
        ) from error


def _returned(candidates: Candidates, facts: Facts, returned: Any) -> dict[int, np.ndarray]:
    """What ``reference`` returns, by the positions of its results among tensors."""
    if returned is None:
        return {}
    task = candidates.task
    tensors = [at for at, (_, shape) in enumerate(candidates.shapes) if shape is not None]
    wanted = [tensors.index(at) for at in task.results] or list(facts.outputs)
    results = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    if len(results) != len(wanted):
        raise ArgumentError(
            f"{task.name}: reference= returns {len(results)} arrays, and the program writes "
            f"{len(wanted)}."
        )
    found = {}
    for at, value in zip(wanted, results, strict=True):
        parameter, shape = candidates.shapes[tensors[at]]
        found[at] = _fitting(task, parameter, shape, value, "reference= returns")
    return found
