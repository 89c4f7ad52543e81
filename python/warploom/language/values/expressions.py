"""Values of TIR expressions, computed for all iterations of an elementwise nest at once.

A loop variable of a nest is an array whose one long axis is that loop's, so that an expression of
several variables has an array of one axis for each loop; outside of nests all values are
zero-dimensional. Arithmetic is done in the dtype of the expression, and functions in float64,
rounded to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from tvm.ir import Call, TensorLoad, Var
from tvm.ir.prim import expr as prim

from warploom.errors import TileProgramError
from warploom.language.values import philox
from warploom.language.values.dtypes import convert, numpy_dtype
from warploom.target import SM90A
from warploom.target.gpus import USUAL
from warploom.tile.device_question import is_question

#: Of the device that programs are executed for here.
_MULTIPROCESSORS = USUAL[SM90A.name].sms


@dataclass(frozen=True)
class Evaluator:
    """Computes expressions; a subclass gives the contents of buffers.

    Attributes
    ----------
    variables : dict
        Values of the variables in scope.
    loops : tuple of Var
        The loop variables of the nest; none outside of nests.
    active : numpy.ndarray of bool
        Iterations that need the value: those that take this branch of ``if_then_else``.
    """

    variables: dict[Var, np.ndarray]
    loops: tuple[Var, ...] = ()
    active: np.ndarray = field(default_factory=lambda: np.asarray(True))

    def load(self, node: TensorLoad) -> np.ndarray:
        """An element of a buffer, or one for each iteration."""
        raise NotImplementedError

    def variable(self, node: Var) -> np.ndarray:
        """The value of a variable."""
        if node not in self.variables:
            raise TileProgramError(
                f"variable {node.name} has no value here; use parameters, CTA ids, loop variables "
                "and bindings that are in scope."
            )
        return self.variables[node]

    def __call__(self, expression: Any) -> np.ndarray:
        handler = _HANDLERS.get(type(expression))
        if handler is None:
            raise TileProgramError(
                f"{type(expression).__name__} node in {_text(expression)} is no expression of "
                "tile programs."
            )
        with np.errstate(all="ignore"):
            return handler(self, expression)

    def integer(self, expression: Any) -> int:
        """The value of an expression that is the same for the whole CTA."""
        value = self(expression)
        if value.ndim or value.dtype.kind not in "iu":
            raise TileProgramError(
                f"{_text(expression)} must be one integer for the whole CTA; it has dtype "
                f"{value.dtype} and depends on "
                f"{'loop variables of an elementwise nest' if value.ndim else 'none'}."
            )
        return int(value)

    def where(self, condition: np.ndarray) -> Evaluator:
        return replace(self, active=self.active & condition)


def _text(expression: Any) -> str:
    """The last line of the script of an expression: earlier ones declare its variables."""
    return repr(str(expression).splitlines()[-1])


def _constant(evaluate: Evaluator, node: Any) -> np.ndarray:
    return np.asarray(node.value, numpy_dtype(str(node.ty.dtype)))


def _literal(dtype: str) -> Callable:
    """Arguments of tile primitives may be plain numbers."""
    return lambda evaluate, value: np.asarray(value, dtype)


def _cast(evaluate: Evaluator, node: Any) -> np.ndarray:
    return convert(evaluate(node.value), numpy_dtype(str(node.ty.dtype)))


def _let(evaluate: Evaluator, node: Any) -> np.ndarray:
    inner = {**evaluate.variables, node.var: evaluate(node.value)}
    return replace(evaluate, variables=inner)(node.body)


def _binary(function: Callable) -> Callable:
    def handler(evaluate: Evaluator, node: Any) -> np.ndarray:
        return np.asarray(function(evaluate(node.a), evaluate(node.b)))

    return handler


def _division(function: Callable) -> Callable:
    """A division of integers, which checks the divisor; floats are divided as IEEE says."""

    def handler(evaluate: Evaluator, node: Any) -> np.ndarray:
        a, b = evaluate(node.a), evaluate(node.b)
        if b.dtype.kind in "iu":
            if (evaluate.active & (b == 0)).any():
                raise TileProgramError(f"{_text(node)} divides by 0.")
            b = np.where(b == 0, b.dtype.type(1), b)
        return np.asarray(function(a, b), a.dtype)

    return handler


def truncated_division(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind not in "iu":
        return a / b
    quotient = a // b
    return quotient + ((a % b != 0) & ((a < 0) != (b < 0))).astype(a.dtype)


def _logical(short_cut: bool, function: Callable) -> Callable:
    """``and`` and ``or``: where the first operand decides, the second is not needed."""

    def handler(evaluate: Evaluator, node: Any) -> np.ndarray:
        a = evaluate(node.a)
        return np.asarray(function(a, evaluate.where(a != short_cut)(node.b)))

    return handler


def _not(evaluate: Evaluator, node: Any) -> np.ndarray:
    return np.asarray(np.logical_not(evaluate(node.a)))


def _bitwise_not(evaluate: Evaluator, node: Any) -> np.ndarray:
    return np.asarray(np.invert(evaluate(node.a)))


def _select(evaluate: Evaluator, node: Any) -> np.ndarray:
    return _choose(evaluate, node.condition, node.true_value, node.false_value)


def _choose(evaluate: Evaluator, condition: Any, yes: Any, no: Any) -> np.ndarray:
    chosen = evaluate(condition).astype(bool)
    if not chosen.ndim:
        return evaluate(yes if chosen else no)
    return np.where(chosen, evaluate.where(chosen)(yes), evaluate.where(~chosen)(no))


def _reinterpret(evaluate: Evaluator, value: Any, dtype: np.dtype) -> np.ndarray:
    bits = evaluate(value)
    return np.ascontiguousarray(bits).reshape(-1).view(dtype).reshape(bits.shape)


def _call(evaluate: Evaluator, node: Call) -> np.ndarray:
    name = str(node.op.name).rpartition(".")[2]
    if is_question(node):
        return np.asarray(_MULTIPROCESSORS, "int32")
    if name == "func_call" and (random := _text_of(node.args[0])) in philox.FUNCTIONS:
        operands = (evaluate(argument).astype(np.uint64) for argument in node.args[1:3])
        return np.asarray(philox.FUNCTIONS[random](*operands), numpy_dtype(str(node.ty.dtype)))
    if name == "if_then_else":
        return _choose(evaluate, *node.args)
    if name == "likely":
        return evaluate(node.args[0])
    if name != "reinterpret" and name not in FUNCTIONS:
        raise TileProgramError(
            f"function {node.op.name} is not defined for tile programs; allowed are if_then_else, "
            f"likely, reinterpret and {', '.join(sorted(FUNCTIONS))}."
        )
    dtype = numpy_dtype(str(node.ty.dtype))
    if name == "reinterpret":
        return _reinterpret(evaluate, node.args[-1], dtype)
    values = [evaluate(argument) for argument in node.args]
    return convert(FUNCTIONS[name](*(v.astype(np.float64) for v in values)), dtype)


def _text_of(node: Any) -> str:
    return str(getattr(node, "value", node))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


#: Functions of float64 arrays.
FUNCTIONS: dict[str, Callable] = {
    "ceil": np.ceil,
    "cos": np.cos,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "exp": np.exp,
    "exp10": lambda x: np.power(10.0, x),
    "exp2": np.exp2,
    "fabs": np.abs,
    "floor": np.floor,
    "fma": lambda a, b, c: a * b + c,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "nearbyint": np.rint,
    "pow": np.power,
    "round": np.rint,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": _sigmoid,
    "sin": np.sin,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
    "trunc": np.trunc,
}

_HANDLERS: dict[type, Callable[[Evaluator, Any], np.ndarray]] = {
    Var: lambda evaluate, node: evaluate.variable(node),
    bool: _literal("bool"),
    int: _literal("int32"),
    float: _literal("float32"),
    prim.IntImm: _constant,
    prim.FloatImm: _constant,
    TensorLoad: lambda evaluate, node: evaluate.load(node),
    Call: _call,
    prim.Cast: _cast,
    prim.Let: _let,
    prim.Select: _select,
    prim.Add: _binary(np.add),
    prim.Sub: _binary(np.subtract),
    prim.Mul: _binary(np.multiply),
    prim.Div: _division(truncated_division),
    prim.Mod: _division(np.fmod),
    prim.FloorDiv: _division(np.floor_divide),
    prim.FloorMod: _division(np.mod),
    prim.Min: _binary(np.minimum),
    prim.Max: _binary(np.maximum),
    prim.EQ: _binary(np.equal),
    prim.NE: _binary(np.not_equal),
    prim.LT: _binary(np.less),
    prim.LE: _binary(np.less_equal),
    prim.GT: _binary(np.greater),
    prim.GE: _binary(np.greater_equal),
    prim.And: _logical(False, np.logical_and),
    prim.Or: _logical(True, np.logical_or),
    prim.Not: _not,
    prim.LShift: _binary(np.left_shift),
    prim.RShift: _binary(np.right_shift),
    prim.BitwiseAnd: _binary(np.bitwise_and),
    prim.BitwiseOr: _binary(np.bitwise_or),
    prim.BitwiseXor: _binary(np.bitwise_xor),
    prim.BitwiseNot: _bitwise_not,
}
