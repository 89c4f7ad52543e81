"""Proves that nothing of the dialect is left, which no later part of TVM would notice.

TVM's code generator makes an array for each thread of a buffer whose scope it does not know,
without a word.
"""

from __future__ import annotations

from collections.abc import Iterable

import tvm_ffi
from tvm import tirx
from tvm.tirx import Var
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.errors import Decline
from warploom.language.printing import read_print
from warploom.tile import ir
from warploom.tile.hints import PREFIX
from warploom.tile.program import TileProgram
from warploom.tile.scopes import needs_place


def verify(program: TileProgram) -> TileProgram:
    """The program, if it is plain TIRx.

    Raises
    ------
    Decline
        If a scope of the dialect, a primitive of a whole CTA or an annotation of passes is left.
    """
    if found := program.hints.attributes():
        raise Decline(f"The hint {next(iter(found))} is left after the last pass; strip it.")

    def variable(one: Var) -> None:
        if ir.is_buffer(one) and needs_place(one):
            raise Decline(
                f"The tile {one.name} still has the scope {one.scope()}, which no code generator "
                "knows; no pass gives it a place, so use it as the language describes."
            )

    def call(one: TilePrimitiveCall) -> None:
        if one.scope.name == "cta" and not program.by_hand:
            raise Decline(
                f"The primitive {ir.op_name(one)} into {one.args[0].source.name} is still that of "
                "a CTA; no pass gives it to threads, so write it as a nest of stores."
            )
        for arg in one.args:
            for used in ir.uses(arg) if isinstance(arg, tvm_ffi.Object) else ():
                variable(used)

    def annotations(keys: Iterable[str]) -> None:
        for key in keys:
            if key.startswith(PREFIX):
                raise Decline(f"The annotation {key} is left after the last pass; strip it.")

    def evaluated(one: tirx.Evaluate) -> None:
        if read_print(one) is not None and not program.by_hand:
            raise Decline(
                "A wl.print stands where no pass knows which thread is to execute it; move it "
                "behind the statement that it stands in."
            )

    callbacks = [
        (Var, variable),
        (tirx.Evaluate, evaluated),
        (tirx.AllocBuffer, lambda one: variable(one.buffer)),
        (TilePrimitiveCall, call),
        (tirx.For, lambda one: annotations(one.annotations)),
        (tirx.AttrStmt, lambda one: annotations([one.attr_key])),
    ]
    for one in program.body:
        tvm_ffi.structural_walk(one, callbacks)
    return program
