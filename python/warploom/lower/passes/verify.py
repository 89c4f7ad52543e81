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
from warploom.tile.primitives import op_name
from warploom.tile.program import TileProgram
from warploom.tile.scopes import needs_place


def verify(program: TileProgram) -> TileProgram:
    """The program, if it is plain TIRx.

    Raises
    ------
    Decline
        If a scope of the dialect, a primitive of a whole CTA or an annotation of passes is left.
    """
    if attributes := program.hints.attributes():
        raise Decline(f"The hint {next(iter(attributes))} is left after the last pass; strip it.")

    def variable(var: Var) -> None:
        if ir.is_buffer(var) and needs_place(var):
            raise Decline(
                f"The tile {var.name} still has the scope {var.scope()}, which no code generator "
                "knows; no pass gives it a place, so use it as the language describes."
            )

    def call(primitive: TilePrimitiveCall) -> None:
        if primitive.scope.name == "cta" and not program.by_hand:
            raise Decline(
                f"The primitive {op_name(primitive)} into {primitive.args[0].source.name} is "
                "still that of a CTA; no pass gives it to threads, so write it as a nest of stores."
            )
        for arg in primitive.args:
            for used in ir.uses(arg) if isinstance(arg, tvm_ffi.Object) else ():
                variable(used)

    def annotations(keys: Iterable[str]) -> None:
        for key in keys:
            if key.startswith(PREFIX):
                raise Decline(f"The annotation {key} is left after the last pass; strip it.")

    def evaluated(evaluation: tirx.Evaluate) -> None:
        if read_print(evaluation) is not None and not program.by_hand:
            raise Decline(
                "A wl.print stands where no pass knows which thread is to execute it; move it "
                "behind the statement that it stands in."
            )

    callbacks = [
        (Var, variable),
        (tirx.Evaluate, evaluated),
        (tirx.AllocBuffer, lambda allocation: variable(allocation.buffer)),
        (TilePrimitiveCall, call),
        (tirx.For, lambda loop: annotations(loop.annotations)),
        (tirx.AttrStmt, lambda attribute: annotations([attribute.attr_key])),
    ]
    for statement in program.body:
        tvm_ffi.structural_walk(statement, callbacks)
    return program
