"""Kernels of this package: as it chooses them, and as a command line configures them.

Each function compiles one, for :mod:`warploom_bench.kernels`; the kernel is called with
:func:`warploom_bench.operands.arguments`. Nothing here imports TVM before it compiles.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warploom.errors import WarploomError
from warploom.gemm_shape import GemmShape

if TYPE_CHECKING:
    from tvm.runtime import Executable

OURS = "warploom"

#: Hints of tile programs that a variant may name beside the fields of a configuration.
HINTS = ("ctas_per_sm", "reduce_through", "ping_pong", "split_k", "stream_k")


def parse_changes(text: str, others: Sequence[str] = ()) -> dict[str, int]:
    """``"tile_n=128,stages=6"`` as changes to a configuration; flags are 0 or 1.

    ``others`` are names that it may contain beside those of ``GemmConfig``.

    Raises
    ------
    WarploomError
        If a part is not ``NAME=INTEGER`` or names no field of ``GemmConfig``.
    """
    from warploom.programs import GemmConfig

    known = [*(f.name for f in fields(GemmConfig) if not isinstance(f.default, str)), *others]
    return _integers(text, known)


def parse_config(text: str) -> dict[str, int]:
    """``"group=16,l2_policy=1"`` as choices by name; flags are 0 or 1.

    Raises
    ------
    WarploomError
        If a part is not ``NAME=INTEGER`` or names no choice.
    """
    from warploom.tile.choices import ROWS

    return _integers(text, [row.name for row in ROWS])


def _integers(text: str, known: Sequence[str]) -> dict[str, int]:
    changes = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name not in known or not value.isdecimal():
            raise WarploomError(
                f"{part!r} changes no configuration; write NAME=INTEGER with one of "
                f"{', '.join(known)}."
            )
        changes[name] = int(value)
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
    from warploom.decide.choose import choose
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
    """The tile program with the tiles that are chosen for the shape, or with changes to that.

    ``changes`` are those of :func:`parse_changes`, and :data:`HINTS`.

    Raises
    ------
    IllegalCombination
        If there is no such kernel.
    """
    import tvm

    from warploom.programs import choose_config, gemm
    from warploom.target import default_target
    from warploom.tile.choices import REDUCTIONS

    target, ctas = default_target()
    config = choose_config(
        shape.m, shape.n, shape.k, shape.dtype, shape.result_dtype, ctas=ctas
    )
    values: dict[str, Any] = dict(parse_changes(changes, HINTS) if changes else {})
    hints = {name: values.pop(name) for name in HINTS if name in values}
    for name in ("ping_pong", "stream_k"):
        if name in hints:
            hints[name] = bool(hints[name])
    if "reduce_through" in hints:  # by number: 0 for the first way, 1 for the second
        hints["reduce_through"] = REDUCTIONS[hints["reduce_through"]]
    if "swap_ab" in values:
        values["swap_ab"] = bool(values["swap_ab"])
    func = gemm(dataclasses.replace(config, **values), shape.n, shape.k, None, **hints)
    return tvm.compile(tvm.IRModule({"main": func}), target, tir_pipeline="warploom")
