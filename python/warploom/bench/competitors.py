"""Products of this package that are configured by hand, and their changes on a command line.

Every competitor writes into ``operands.c`` on PyTorch's current stream.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields

from warploom.bench.operands import Operands
from warploom.bench.suite import GemmShape
from warploom.errors import WarploomError
from warploom.language.hints import EXCHANGES

#: Computes ``operands.c`` from the other operands.
Product = Callable[[Operands], object]

OURS = "warploom"
#: Bytes of K in a stage of a tile of few rows: one swizzled row.
_ROW_BYTES = 128


#: Hints of tile programs that a variant may name beside the fields of a configuration.
HINTS = ("ctas_per_sm", "exchange", "split_k", "stream_k")


def parse_changes(text: str, others: Sequence[str] = ()) -> dict[str, int]:
    """``"tile_n=128,stages=6"`` as changes to a configuration; flags are 0 or 1.

    ``others`` are names that it may contain beside those of ``GemmConfig``.

    Raises
    ------
    WarploomError
        If a part is not ``NAME=INTEGER`` or names no field of ``GemmConfig``.
    """
    from warploom.kernels import GemmConfig

    known = [*(f.name for f in fields(GemmConfig) if isinstance(f.default, int)), *others]
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


def our_product(shape: GemmShape, changes: Mapping[str, int] | None = None) -> Product:
    """The kernel of this package, compiled: as chosen for the shape, or with changes to that.

    Raises
    ------
    IllegalCombination
        If there is no such kernel.
    """
    from warploom.kernels import choose_config, compile_gemm, default_target

    problem = (shape.m, shape.n, shape.k, shape.dtype)
    config = choose_config(*problem, shape.result_dtype, ctas=default_target()[1])
    config = dataclasses.replace(config, **(changes or {}))
    executable = compile_gemm(*problem, out_dtype=shape.result_dtype, config=config)
    gemm = executable["main"]  # looked up once, as a program that calls it often would
    if config.scaled:
        return lambda o: gemm(o.a, o.b, o.scale_a, o.scale_b, o.c)
    return lambda o: gemm(o.a, o.b, o.c)


def tile_product(shape: GemmShape, changes: Mapping[str, int] | None = None) -> Product | None:
    """The tile program with the tiles of that kernel, compiled through the passes.

    ``changes`` are those of :func:`our_product`, and :data:`HINTS`. Without them, None for kernels
    that exchange A and B: the program of the package does not. Changes then start from a tile of
    64 rows.
    """
    import tvm

    from warploom.kernels import choose_config, default_target
    from warploom.programs import gemm

    target, ctas = default_target()
    config = choose_config(
        shape.m, shape.n, shape.k, shape.dtype, shape.result_dtype, ctas=ctas
    )
    changes = dict(changes or {})
    if config.swap_ab:
        if not changes:
            return None
        config = dataclasses.replace(
            config, swap_ab=False, tile_m=64, tile_n=128,
            tile_k=_ROW_BYTES // config.element_bytes, consumers=1, stages=8,
        )  # fmt: skip
    hints = {name: changes.pop(name) for name in HINTS if name in changes}
    if "stream_k" in hints:
        hints["stream_k"] = bool(hints["stream_k"])
    if "exchange" in hints:  # by number: 0 for the first way, 1 for the second
        hints["exchange"] = EXCHANGES[hints["exchange"]]
    func = gemm(dataclasses.replace(config, **changes), shape.n, shape.k, None, **hints)
    product = tvm.compile(tvm.IRModule({"main": func}), target, tir_pipeline="warploom")["main"]
    if config.scaled:
        return lambda o: product(o.a, o.b, o.scale_a, o.scale_b, o.c)
    return lambda o: product(o.a, o.b, o.c)
