"""Kernels of this package: as it chooses them, and as a command line configures them.

Each function compiles one, for :mod:`warploom_bench.kernels`; the kernel is called with
:func:`warploom_bench.operands.arguments`. Nothing here imports TVM before it compiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warploom.errors import WarploomError
from warploom.gemm_shape import GemmShape

if TYPE_CHECKING:
    from tvm.runtime import Executable

OURS = "warploom"


def parse_config(text: str) -> dict[str, int]:
    """``"group=16,l2_policy=1"`` as choices by name; flags are 0 or 1, words may be words.

    Raises
    ------
    WarploomError
        If a part is not ``NAME=VALUE`` or names no choice.
    """
    from warploom.tile.choices import ROWS

    known = {row.name: row.kind for row in ROWS}
    changes = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name in known and value.isdecimal():
            changes[name] = int(value)
        elif name in known and value and known[name].why_not(value) is None:
            changes[name] = known[name].number(value)
        else:
            raise WarploomError(
                f"{part!r} changes no config; write NAME=VALUE with one of {', '.join(known)}."
            )
    return changes


def default(shape: GemmShape, databases: Sequence[Path] = ()) -> Executable:
    """The ``te`` function of the shape as TVM compiles it with our rule: no tuning."""
    return _scheduled(shape, None)


def tuned(shape: GemmShape, databases: Sequence[Path] = ()) -> Executable | None:
    """The same with the records of ``databases``, or of the package if there are none.

    None where they have nothing for the shape: it would be the default again.
    """
    from warploom.gemm.recognition import recognise
    from warploom.gemm.workloads import function
    from warploom.meta_schedule.lookup import Lookup

    lookup = Lookup.of_folders(databases) if databases else Lookup.shipped()
    if lookup.best(recognise(function(shape)).problem) is None:
        return None
    return _scheduled(shape, lookup)


def _scheduled(shape: GemmShape, lookup: Any) -> Executable:
    import tvm
    from tvm.s_tir import dlight

    from warploom import dlight as rules
    from warploom.gemm.annotations import has_decisions
    from warploom.gemm.workloads import function
    from warploom.target.tvm_target import default_target

    target, _ = default_target()
    with target:
        rule = dlight.ApplyDefaultSchedule(rules.Matmul(lookup=lookup))
        mod = rule(tvm.IRModule({"main": function(shape)}))
    if not has_decisions(mod["main"]):
        raise WarploomError(f"The function of {shape} is not taken by warploom.dlight.Matmul.")
    return tvm.compile(mod, target)


def config_variant(shape: GemmShape, changes: str) -> Executable:
    """The same with the config that the model chooses, but for those that ``changes`` name.

    There are as many stages as fit, unless it names them.

    Raises
    ------
    IllegalCombination
        If there is no such kernel.
    """
    import tvm
    from tvm.s_tir import Schedule

    from warploom import schedule
    from warploom.decide.selector import choose
    from warploom.gemm.recognition import recognise
    from warploom.gemm.workloads import function
    from warploom.target.tvm_target import default_target
    from warploom_bench.candidates import wanted_config

    func = function(shape)
    gemm = recognise(func)
    values = choose(gemm.problem).values()
    del values["stages"]
    config = wanted_config({**values, **parse_config(changes)}, gemm.problem)
    sch = Schedule(tvm.IRModule({"main": func}))
    schedule.gemm_async(sch, gemm.anchor, **config.values())
    return tvm.compile(sch.mod, default_target()[0])


def tile_program(shape: GemmShape, databases: Sequence[Path] = ()) -> Executable | None:
    """:func:`warploom.programs.gemm`: float16, bfloat16 and float8, NT, no epilogue."""
    return tile_program_variant(shape) if _plain(shape) else None


def _plain(shape: GemmShape) -> bool:
    dtypes = ("float16", "bfloat16", "float8_e4m3fn")
    return shape.dtype in dtypes and (shape.layout, shape.epilogue) == ("NT", "none")


def tile_program_variant(shape: GemmShape, changes: str = "") -> Executable:
    """The tile program with the config that the model chooses, or with changes to that.

    ``changes`` are those of :func:`parse_config`.

    Raises
    ------
    IllegalCombination
        If there is no such kernel.
    """
    import tvm

    from warploom.decide import choose, plain_gemm
    from warploom.programs import gemm
    from warploom.target import default_target
    from warploom_bench.candidates import wanted_config

    (target, _), kind = default_target(), (shape.dtype, shape.result_dtype)
    problem = plain_gemm(shape.m, shape.n, shape.k, *kind)
    config = choose(problem)
    if changes:
        values = config.values()
        del values["stages"]
        config = wanted_config({**values, **parse_config(changes)}, problem)
    func = gemm(config, shape.n, shape.k, None, *kind)
    return tvm.compile(tvm.IRModule({"main": func}), target, tir_pipeline="warploom")
