"""Operands of GEMMs: transposed and dequantised ones become part of the GEMM's function.

TVM fuses functions behind a GEMM, not functions before it. A weight that is stored with few bits
would then be written out and read again, many times larger.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir.expr import GenericConst
from tvm.tirx import IntImm, PrimFunc, Var

from warploom.decide.problem import GemmProblem
from warploom.fallback import attempted
from warploom.gemm.equations import read_equations
from warploom.gemm.memory import operand_faults
from warploom.gemm.problem import GemmFunction
from warploom.gemm.recognition import read_product
from warploom.relax.joining import Joiner, has_program, is_call_tir, joined, result_types
from warploom.relax.merge_dimensions import views_of
from warploom.relax.turn_operands import turned, turned_constant
from warploom.target.dtypes import bits_of
from warploom.tile import ir


def FuseOperands() -> tvm.transform.Pass:
    """A pass that puts element-wise functions into the GEMMs that alone use their results.

    Only functions whose result is larger than their inputs, and transpositions. The results of
    others change the order of their dimensions where a GEMM can load them in that order only.

    To be run after ``relax.transform.FuseTIR``.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.FuseOperands")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return _Fuser(mod).run(mod)

    return run


@relax.expr_functor.mutator
class _Fuser(Joiner):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        if not is_call_tir(call):
            return call
        func, arguments = self.function(call), list(call.args[1])
        changed, position = False, len(arguments) - 1
        while position >= 0:
            made = self.producer(arguments[position])
            merged = None
            if made is not None:
                merged = self._attempted(_merge, call, self.function(made), func, position)
            if merged is None and made is not None:
                viewed = self._attempted(_viewed, call, self.function(made), func, position)
                if viewed is not None:
                    merged, shape = viewed
                    argument = self.builder_.emit(relax.op.reshape(made.args[1][0], shape))
                    func, changed, arguments[position] = merged, True, argument
                    position -= 1
                    continue
            if merged is None:
                argument = arguments[position]
                turned_func = None
                if made is not None:
                    turned_func = self._turned(made, func, position, call)
                elif isinstance(argument, GenericConst) and isinstance(func, PrimFunc):
                    turned_func = self._turned_constant(argument, func, position)
                if turned_func is not None:
                    (func, arguments[position]), changed = turned_func, True
                position -= 1
                continue
            func, changed = merged, True
            arguments[position : position + 1] = list(made.args[1])
            # The inputs of the producer may be computed by another one.
            position += len(made.args[1]) - 1
        return self.call(func, arguments, call) if changed else call

    def _turned(
        self, made: relax.Call, func: Any, position: int, call: relax.Call
    ) -> tuple[PrimFunc, relax.Expr] | None:
        """The function and its argument, if that had better be stored in another order."""
        producer = self.function(made)
        if not all(isinstance(function, PrimFunc) for function in (producer, func)):
            return None
        if len(result_types(made)) > 1:
            return None
        result = self._attempted(turned, call, producer, func, position)
        if result is None:
            return None
        producer, func, order = result
        (old,) = result_types(made)
        wanted = relax.TensorType([old.shape.values[d] for d in order], old.dtype)
        variable = self.builder_.add_func(producer, f"{made.args[0].name_hint}_along_k")
        self.functions[variable.name_hint] = producer
        return func, self.builder_.emit(relax.call_tir(variable, made.args[1], wanted))

    def _turned_constant(
        self, constant: GenericConst, func: PrimFunc, position: int
    ) -> tuple[PrimFunc, relax.Expr] | None:
        """The function and its constant, if that had better be stored in another order."""
        result = self.once(
            (turned_constant, func, position),
            lambda: attempted("A matmul of a constant", partial(turned_constant, func, position)),
        )
        if result is None:
            return None
        func, order = result
        values = np.ascontiguousarray(constant.value.numpy().transpose(order))
        return func, relax.const(values, str(constant.value.dtype))

    def _attempted(self, merge: Any, call: relax.Call, *functions: Any) -> Any:
        """What a function makes of a producer, a function and a position; None if it declines."""
        name = call.args[0].name_hint
        return self.once((merge, *functions), lambda: attempted(name, partial(merge, *functions)))


def _merge(producer: Any, func: Any, position: int) -> PrimFunc | None:
    """Return a function for both; None or a Decline if that is no GEMM with such an operand."""
    if not all(isinstance(function, PrimFunc) for function in (producer, func)):
        return None
    if not all(ir.is_buffer(param) for param in producer.params):
        return None  # numbers of the launch, which the GEMM may know by other variables
    if any(equation.reduction for equation in read_equations(producer)):
        return None
    before = read_product(func)
    merged = joined(producer, func, position)
    after = read_product(merged)
    faults = _faults(after)
    if faults and faults >= _faults(before):
        return None
    if after.problem.computed != before.problem.computed:
        return merged if _reads_less(after.problem) and has_program(after) else None
    if after.problem.m != before.problem.m and not _faults(before):
        return None  # pixels that are rows of one GEMM would be rows of many small ones
    inputs = after.func.params[position : position + len(producer.params) - 1]
    return merged if _is_transposed(after, set(inputs)) else None


def _viewed(producer: Any, func: Any, position: int) -> tuple[PrimFunc, list[Any]] | None:
    """A function for both whose operand is the producer's only input in another shape.

    None or a Decline if the input has no shape in which a matmul can load it.
    """
    if not all(isinstance(function, PrimFunc) for function in (producer, func)):
        return None
    if len(producer.params) != 2 or not all(ir.is_buffer(param) for param in producer.params):
        return None
    if any(equation.reduction for equation in read_equations(producer)):
        return None
    faults = _faults(read_product(func))
    for merged, shape in views_of(joined(producer, func, position), position):
        after = read_product(merged)
        if _faults(after) <= faults and _is_transposed(after, {after.func.params[position]}):
            return merged, shape
    return None


def _faults(gemm: GemmFunction) -> int:
    """How many operands the tensor core cannot have as they lie in memory."""
    return sum(1 for _ in operand_faults(gemm))


def _reads_less(problem: GemmProblem) -> bool:
    """Whether dequantised operands are smaller in memory than their results.

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


def _is_transposed(gemm: GemmFunction, inputs: set[Var]) -> bool:
    """Whether an operand is one of the parameters, its dimensions in another order.

    Epilogue inputs are as well computed where they are.
    """
    loads = [operand.load for product in gemm.products for operand in (product.a, product.b)]
    return any(
        load is not None
        and gemm.param_of(load.source) in inputs
        and all(isinstance(index, (Var, IntImm)) for index in load.indices)
        for load in loads
    )
