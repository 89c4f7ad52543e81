"""The function that stands for a factory in a search, and traces of configs.

A trace draws each parameter with ``sample_categorical``, from indices of a list of values, and
annotates the only block with the index and with the list, in JSON. So a record says by itself which
config it is of, whatever values the factory has later. One more annotation is the structural hash
of the config's program: a record is of that program, and of no other one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import IRModule
from tvm.s_tir import SBlock, SBlockRealize, Schedule
from tvm.s_tir.schedule import Trace
from tvm.target import Target

from warploom import emulator
from warploom.language.calls.parameters import Parameter
from warploom.language.tuning.space import Config, Space, decode, encode
from warploom.language.tuning.task import Task

#: The block of a stand-in, and its annotations: the factory's name, its key, a config's program.
BLOCK = "tile_program"
_FACTORY, _KEY, _PROGRAM = "warploom.factory", "warploom.key", "warploom.program"
#: Start of the annotations of a parameter: index of its value, and the values.
_CHOICE, _VALUES = "warploom.choice.", "warploom.values."
#: The key of a target whose records were measured on the emulator.
EMULATED = "emulated"


def stand_in(task: Task, shapes: Sequence[tuple[Parameter, tuple[int, ...] | None]]) -> IRModule:
    """The workload of a task: its tensors, and a block that says which factory and key it is.

    Parameters
    ----------
    task : Task
    shapes : sequence of (Parameter, tuple of int or None)
        Of the parameters of its programs.
    """
    params = [
        tirx.decl_buffer(shape, parameter.dtype, parameter.name)
        for parameter, shape in shapes
        if shape is not None
    ]
    key = encode(sorted((str(name), str(value)) for name, value in task.key.items()))
    numbers = [parameter.dtype for parameter, shape in shapes if shape is None]
    annotations = {_FACTORY: task.name, _KEY: key, "warploom.numbers": encode(numbers)}
    nothing = tirx.Evaluate(tirx.IntImm("int32", 0))
    inner = SBlock([], [], [], BLOCK, nothing, annotations=annotations)
    always = tirx.const(True)
    root = SBlock([], [], [], "root", SBlockRealize([], always, inner))
    body = SBlockRealize([], always, root)
    # MetaSchedule adds the last attribute if it is absent; records are of equal functions.
    attributes = {"global_symbol": "main", "s_tir": True, "tirx.noalias": True}
    func = tirx.PrimFunc(params, body).with_attr(attributes)
    return IRModule({"main": func})


def schedule_of(
    mod: IRModule, space: Space, config: Mapping[str, Any], program: str = ""
) -> Schedule:
    """A stand-in with the decisions of a config.

    Parameters
    ----------
    mod : IRModule
        Of :func:`stand_in`.
    space : Space
    config : mapping
        Of the space.
    program : str
        Hash of the config's program.
    """
    sch = Schedule(mod, error_render_level="none")
    block = sch.get_sblock(BLOCK, "main")
    for name, values in space.values.items():
        if name not in config:  # a listed config without it
            continue
        even = [1.0 / len(values)] * len(values)
        drawn = sch.sample_categorical(list(range(len(values))), even, values.index(config[name]))
        sch.annotate(block, _VALUES + name, encode(values))
        sch.annotate(block, _CHOICE + name, drawn)
    if program:
        sch.annotate(block, _PROGRAM, program)
    return sch


def sampled(mod: IRModule, space: Space) -> Schedule:
    """A stand-in whose parameters are drawn at random, as a design space has it."""
    sch = Schedule(mod, error_render_level="none")
    block = sch.get_sblock(BLOCK, "main")
    for name, values in space.values.items():
        drawn = sch.sample_categorical(list(range(len(values))), [1.0 / len(values)] * len(values))
        sch.annotate(block, _VALUES + name, encode(values))
        sch.annotate(block, _CHOICE + name, drawn)
    return sch


def is_stand_in(mod: IRModule) -> bool:
    """Whether the function ``main`` of a module stands for a factory."""
    return _FACTORY in _annotations(mod)


def config_of(mod: IRModule) -> Config:
    """The config of a scheduled stand-in."""
    return _chosen({name: _plain(value) for name, value in _annotations(mod).items()})


def config_of_trace(trace: Trace) -> tuple[Config, str]:
    """The config of a trace, and the hash of its program; that is empty if it is not recorded."""
    drawn: dict[Any, int] = {}
    values: dict[str, Any] = {}
    for instruction in trace.insts:
        if instruction.kind.name == "SampleCategorical":
            index = int(trace.decisions[instruction])
            drawn[instruction.outputs[0]] = int(instruction.attrs[0][index])
        elif instruction.kind.name == "Annotate":
            value = instruction.inputs[1]
            values[str(instruction.attrs[0])] = drawn[value] if value in drawn else _plain(value)
    return _chosen(values), str(values.get(_PROGRAM, ""))


def describe(mod: IRModule) -> str:
    """A stand-in for people: ``matmul(M=4096, N=4096, K=4096)``."""
    found = {name: _plain(value) for name, value in _annotations(mod).items()}
    key = ", ".join(f"{name}={value}" for name, value in decode(found[_KEY]))
    return f"{found[_FACTORY]}({key})"


def record_target(target: Target) -> Target:
    """The target of records: on the emulator a marked one, so that no GPU ever finds them."""
    if not emulator.is_enabled():
        return target
    config = dict(target.export())
    return Target({**config, "keys": [*config["keys"], EMULATED]}, host=target.host)


def device_target(target: Target) -> Target:
    """The target that a kernel is compiled for, from the target of its records."""
    config = dict(target.export())
    keys = [key for key in map(str, config["keys"]) if key != EMULATED]
    if len(keys) == len(config["keys"]):
        return target
    return Target({**config, "keys": keys}, host=target.host)


def _chosen(values: Mapping[str, Any]) -> Config:
    return {
        name.removeprefix(_CHOICE): decode(values[_VALUES + name.removeprefix(_CHOICE)])[int(index)]
        for name, index in values.items()
        if name.startswith(_CHOICE)
    }


def _annotations(mod: IRModule) -> dict[str, Any]:
    if "main" not in [gv.name_hint for gv in mod.get_global_vars()]:
        return {}
    found: dict[str, Any] = {}

    def visit(block: SBlock) -> None:
        if block.name_hint == BLOCK:
            found.update({str(name): value for name, value in block.annotations.items()})

    tvm_ffi.structural_walk(mod["main"].body, (SBlock, visit))
    return found


def _plain(value: Any) -> Any:
    """A value of an annotation as Python has it."""
    value = getattr(value, "value", value)
    return int(value) if isinstance(value, (int, tvm.tirx.IntImm)) else str(value)
