"""Functions of models that multiply groups of rows become :func:`warploom.programs.gemm_grouped`.

These are the experts of a mixture: a library's function with the first row of each expert, as
:mod:`warploom.relax.read_grouped` recognises it.
"""

from __future__ import annotations

import tvm
from tvm import relax, te, tirx
from tvm.tirx import PrimFunc

from warploom.errors import Decline
from warploom.fallback import attempted, with_original
from warploom.programs.gemm_grouped import gemm_grouped
from warploom.relax.joining import is_call_tir
from warploom.relax.read_grouped import GroupedFunction, read_grouped
from warploom.relax.tile_programs import is_tirx, with_words
from warploom.relax.visiting import visited

_DTYPES = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
_OUT_DTYPES = ("float16", "bfloat16", "float32")


def CallGrouped() -> tvm.transform.Pass:
    """A pass that calls tile programs for grouped GEMMs.

    Those that a model computes by an S-TIR function of its own, scheduled or not. Sums are float32.
    To be run before functions are fused, and before
    :func:`warploom.relax.tile_programs.CallTilePrograms`.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.CallGrouped")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        mutator = _Caller(mod)
        changed = visited(mod, mutator)
        return relax.transform.DeadCodeElimination()(changed) if mutator.taken else mod

    return run


@relax.expr_functor.mutator
class _Caller(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.mod, self.taken = mod, False

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if not is_call_tir(call):
            return call
        name = call.args[0].name_hint
        func = self.mod[call.args[0]] if call.args[0] in self.mod.functions else None
        if not isinstance(func, PrimFunc) or is_tirx(func) or len(call.args[1]) != 3:
            return call
        made = attempted(name, lambda: self._program(func, call))
        return call if made is None else made

    def _program(self, func: PrimFunc, call: relax.Call) -> relax.Expr:
        found = read_grouped(func)
        program = grouped_program(found)
        if (found.rows, found.weights, found.offsets) == (0, 1, 2):
            program = with_original(program, func)
        arguments = [call.args[1][place] for place in (found.rows, found.weights, found.offsets)]
        variable = self.builder_.add_func(program, "gemm_grouped")
        self.taken = True
        result = relax.call_tir(variable, relax.Tuple(arguments), *call.ty_args)
        if not found.fills:
            return result
        return self.builder_.call_te(_filled, self.builder_.emit(result), arguments[-1])


def grouped_program(found: GroupedFunction) -> PrimFunc:
    """The tile program of a grouped GEMM, with what ``warploom inspect relax`` says of it.

    Raises
    ------
    Decline
        If no tile program has its dtypes.
    IllegalCombination
        If TMA cannot load or store its rows.
    """
    if found.dtype not in _DTYPES or found.out_dtype not in _OUT_DTYPES:
        raise Decline(
            f"a grouped GEMM of {found.dtype} with a result of {found.out_dtype}; operands must be "
            f"{', '.join(_DTYPES)}, the result {', '.join(_OUT_DTYPES)}."
        )
    program = gemm_grouped(
        found.groups, found.n, found.k, found.m, found.dtype, found.out_dtype, found.indptr_dtype
    )
    rows = "any" if found.m is None else found.m
    words = (
        f"{found.groups} groups of {rows} rows x {found.n} x {found.k}, {found.dtype}, "
        f"out {found.out_dtype}: a grouped GEMM"
    )
    return with_words(program, words, True)


def _filled(y: te.Tensor, indptr: te.Tensor) -> te.Tensor:
    """Rows of groups, and zeros in the others."""
    last = indptr.shape[0] - 1
    return te.compute(
        y.shape,
        lambda i, j: tirx.if_then_else(
            tirx.all(indptr[0] <= i, i < indptr[last]), y[i, j], tirx.const(0, y.dtype)
        ),
        "rows_of_groups",
    )
