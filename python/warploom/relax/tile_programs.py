"""Tile programs as callees of ``R.call_tir``.

Relax's passes expect S-TIR behind ``call_tir``: they fuse and schedule it. A tile program is
called by its symbol instead, which no pass looks behind.
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.ir import Op
from tvm.tirx import PrimFunc

from warploom.relax.joining import result_types
from warploom.relax.visiting import visited
from warploom.tile.kinds import MARK

#: ``op_pattern`` of a function that is never fused.
_OPAQUE = 8
#: Attributes of a program of the package in a model: what it computes, in words, and whether on
#: tensor cores.
COMPUTES, TENSOR_CORES = "warploom.computes", "warploom.tensor_cores"


def with_words(program: PrimFunc, words: str, tensor_cores: bool) -> PrimFunc:
    """A program that ``warploom inspect relax`` reports in these words.

    It is compiled by this package's pipeline, as row kernels are, though threads be written out.
    """
    named = program.with_attr(COMPUTES, words).with_attr(TENSOR_CORES, tensor_cores)
    return named.with_attr(MARK, True)


def is_tirx(func: object) -> bool:
    """Whether a function is written in TIRx, not S-TIR."""
    return isinstance(func, PrimFunc) and not (func.attrs or {}).get("s_tir", False)


def CallTilePrograms() -> tvm.transform.Pass:
    """A pass that calls TIRx functions of a module by their symbols."""

    @tvm.transform.module_pass(opt_level=0, name="warploom.CallTilePrograms")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        names = {gv: gv.name_hint for gv, func in mod.functions.items() if is_tirx(func)}
        if not names:
            return mod
        mutator = _Caller(mod, names)
        for gv, name in names.items():
            changed = mod[gv].with_attr("global_symbol", name).with_attr("op_pattern", _OPAQUE)
            mutator.builder_.update_func(gv, changed.with_attr("tirx.is_scheduled", True))
        return visited(mod, mutator)

    return run


@relax.expr_functor.mutator
class _Caller(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule, names: dict[tvm.ir.GlobalVar, str]) -> None:
        super().__init__(mod)
        self.names = names

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if call.op != Op.get("relax.call_tir") or call.args[0] not in self.names:
            return call
        symbol = relax.ExternFunc(self.names[call.args[0]])
        arguments = relax.Tuple(list(call.args[1]))
        if len(call.args) > 2:
            arguments = relax.Tuple([*call.args[1], *call.args[2]])
        return relax.op.call_dps_packed(symbol, arguments, result_types(call))
