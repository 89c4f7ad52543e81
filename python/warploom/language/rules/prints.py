"""Checks ``wl.print`` and ``wl.device_assert`` in a tile program: their reads, and their scopes."""

from __future__ import annotations

import numpy as np
from tvm.ir import TensorLoad

from warploom.errors import TileProgramError
from warploom.language.builtins.operands import known as number
from warploom.language.print_format import POINTER
from warploom.language.printing import Print
from warploom.language.rules.expressions import require_expression
from warploom.language.rules.known import Known
from warploom.language.rules.nests import loads, text
from warploom.language.rules.ranges import outside, require_inside
from warploom.language.rules.scopes import REGISTERS, TILES
from warploom.tile.mbarriers import SCOPE as MBARRIER


def check_print(known: Known, printed: Print) -> list[TensorLoad]:
    """Check one statement.

    Returns
    -------
    list of TensorLoad
        The elements that it reads.

    Raises
    ------
    TileProgramError
        If it names a thread, prints an address, reads an element outside of a tile for certain, or
        takes the index of an element in registers from a tile.
    """
    if printed.thread is None or number(printed.thread) != 0:
        raise TileProgramError(
            "wl.print names a thread, and a tile program has none; leave thread= out, for each CTA "
            "prints once, or define ids of threads."
        )
    expressions = [printed.predicate, *printed.values]
    for (kind, _), expression in zip(printed.kinds, printed.values, strict=True):
        if kind is POINTER:
            raise TileProgramError(
                f"{printed.name} prints the address {text(expression)}, which a tile program has "
                "no use for; print an element, or define ids of threads."
            )
    elements = []
    for expression in expressions:
        require_expression(expression)
        elements += loads(expression)
    for load in elements:
        _require_place(known, load, printed.name)
    return elements


def _require_place(known: Known, load: TensorLoad, name: str) -> None:
    buffer = load.source
    scope = str(buffer.scope())
    if scope == MBARRIER:
        raise TileProgramError(
            f"{name} prints the mbarrier {buffer.name}, whose bits no program may read; print "
            "the stage and the parity."
        )
    if scope in TILES:
        _require_inside(known, load, scope)
    if scope not in REGISTERS:
        return
    for index in load.indices:
        for inner in loads(index):
            if str(inner.source.scope()) in TILES:
                raise TileProgramError(
                    f"{name} reads {text(load)}, an element in {scope} at an index from the tile "
                    f"{inner.source.name}; such an index comes from scalars and global memory, so "
                    f"copy {buffer.name} to a shared tile, and print that."
                )


def _require_inside(known: Known, load: TensorLoad, scope: str) -> None:
    """Refuse constant indices outside of a tile, which has no elements there."""
    indices = [known.constant(index) for index in load.indices]
    shape = [known.constant(extent) for extent in load.source.ty.shape]
    if None in indices or None in shape:
        return
    places = [np.asarray(index) for index in indices]
    require_inside(load.source.name, scope, shape, places, outside(places, shape))
