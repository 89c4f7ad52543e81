"""Operands of products: transposed and dequantised ones become part of the product's function.

TVM fuses what follows a product, not what comes before it. A weight that is stored with few bits
would then be written out and read again, many times larger.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.ir import GlobalVar, Op
from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx import IntImm, PrimFunc, Var

from warploom.errors import IllegalCombination
from warploom.gemm.choose import choose
from warploom.gemm.equations import read_equations
from warploom.gemm.generate import tile_program
from warploom.gemm.problem import GemmFunction, GemmProblem
from warploom.gemm.recognition import recognise
from warploom.relax.tile_programs import result_types
from warploom.target.dtypes import bits_of
from warploom.transform import ir
from warploom.transform.decline import Decline


def FuseOperands() -> tvm.transform.Pass:
    """A pass that puts element-wise functions into the products that alone use their results.

    Only those that make an operand larger than what they read, and transpositions.

    To be run after ``relax.transform.FuseTIR``.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.FuseOperands")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        fuser = _Fuser(mod)
        for gv, func in mod.functions.items():
            if isinstance(func, relax.Function):
                fuser.uses = _count_uses(func)
                fuser.builder_.update_func(gv, fuser.visit_expr(func))
        return relax.transform.DeadCodeElimination()(fuser.builder_.get())

    return run


def _count_uses(func: relax.Function) -> dict[relax.Var, int]:
    uses: dict[relax.Var, int] = {}

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call):
            for argument in _flat(expr.args):
                uses[argument] = uses.get(argument, 0) + 1
        elif isinstance(expr, (relax.Tuple, relax.SeqExpr)):
            for one in expr.fields if isinstance(expr, relax.Tuple) else [expr.body]:
                uses[one] = uses.get(one, 0) + 1

    relax.analysis.post_order_visit(func, visit)
    return uses


def _flat(arguments: Any) -> list[relax.Expr]:
    """Arguments of a call; tuples are visited by themselves."""
    return [one for one in arguments if not isinstance(one, relax.Tuple)]


@relax.expr_functor.mutator
class _Fuser(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.functions = {gv.name_hint: func for gv, func in mod.functions.items()}
        self.uses: dict[relax.Var, int] = {}

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        if not _is_call_tir(call):
            return call
        func, arguments = self.functions[call.args[0].name_hint], list(call.args[1])
        changed, position = False, len(arguments) - 1
        while position >= 0:
            made = self._producer(arguments[position])
            merged = None
            if made is not None:
                merged = _merge(self.functions[made.args[0].name_hint], func, position)
            if merged is None:
                position -= 1
                continue
            func, changed = merged, True
            arguments[position : position + 1] = list(made.args[1])
            # What the producer reads may be computed by another one.
            position += len(made.args[1]) - 1
        if not changed:
            return call
        variable = self.builder_.add_func(func, f"fused_{call.args[0].name_hint}")
        self.functions[variable.name_hint] = func
        return relax.call_tir(variable, relax.Tuple(arguments), result_types(call))

    def _producer(self, argument: relax.Expr) -> relax.Call | None:
        """The call that computes an argument which nothing else uses."""
        if not isinstance(argument, relax.Var) or self.uses.get(argument, 0) != 1:
            return None
        bound = self.lookup_binding(argument)
        return bound if isinstance(bound, relax.Call) and _is_call_tir(bound) else None


def _is_call_tir(call: relax.Call) -> bool:
    return (
        call.op == Op.get("relax.call_tir")
        and isinstance(call.args[0], GlobalVar)
        and len(call.args) == 2
    )


def _merge(producer: Any, func: Any, position: int) -> PrimFunc | None:
    """One function for both; None if that is no product with a computed operand."""
    if not all(isinstance(one, PrimFunc) for one in (producer, func)):
        return None
    try:
        if any(one.reduction for one in read_equations(producer)):
            return None
        before = recognise(func)
        merged = _joined(producer, func, position)
        after = recognise(merged)
    except Decline:
        return None
    if after.problem.computed != before.problem.computed:
        return merged if _reads_less(after.problem) and _has_program(after) else None
    inputs = after.func.params[position : position + len(producer.params) - 1]
    return merged if _is_transposed(after, set(inputs)) else None


def _reads_less(problem: GemmProblem) -> bool:
    """Whether computed operands are smaller in memory than what they are computed to.

    A tile is computed again for each tile of the result that it is multiplied for. That pays where
    it saves memory traffic, which activations and rotations do not.
    """
    sides = zip(
        problem.computed,
        (problem.a_bits, problem.b_bits),
        (problem.a_dtype, problem.b_dtype),
        strict=True,
    )
    return all(bits < bits_of(dtype) for computed, bits, dtype in sides if computed)


def _has_program(gemm: GemmFunction) -> bool:
    """Whether a tile program can be written; the product alone may have one where it cannot."""
    try:
        tile_program(gemm, choose(gemm.problem))
    except (Decline, IllegalCombination):
        return False
    return True


def _is_transposed(gemm: GemmFunction, inputs: set[Var]) -> bool:
    """Whether an operand is one of the parameters, its dimensions in another order.

    What an epilogue reads is as well computed where it is.
    """
    loads = [one.load for product in gemm.products for one in (product.a, product.b)]
    return any(
        load is not None
        and load.source in inputs
        and all(isinstance(one, (Var, IntImm)) for one in load.indices)
        for load in loads
    )


def _joined(producer: PrimFunc, func: PrimFunc, position: int) -> PrimFunc:
    """A function that computes one parameter of ``func`` by ``producer`` first."""
    *inputs, result = producer.params
    operand = func.params[position]
    table: dict[Var, Any] = {result: operand}
    for mine, wanted in zip(result.shape, operand.shape, strict=True):
        if isinstance(mine, Var):
            table[mine] = wanted
    first = ir.substitute(producer.body, table).block
    inputs = [ir.substitute(one, table) for one in inputs]
    second = func.body.block
    root = SBlock(
        [], [], [], "root", ir.seq([first.body, second.body]), None,
        [*first.alloc_buffers, *second.alloc_buffers, operand],
    )  # fmt: skip
    params = [*func.params[:position], *inputs, *func.params[position + 1 :]]
    body = SBlockRealize([], True, root)
    return PrimFunc(params, body, func.ret_type, func.attrs).with_attr("op_pattern", 4)
