"""``warploom.attention``: an attention that TVM's ``relax.nn.attention`` cannot say.

``softmax(cap * tanh(q kᵀ * scale / cap) + bias) v``: with a soft cap of the logits, as Gemma 2 has
them, or with a bias that so many batches have in turn, as the shifted windows of Swin transformers
have masks. The pass that finds such an attention in a model calls this operator, and the pass that
calls tile programs replaces it, or writes it out again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import Op
from tvm.tirx import FloatImm, IntImm

from warploom import hooks
from warploom.relax.visiting import operator_name

#: The name of the operator.
OPERATOR = "warploom.attention"
#: Orders of dimensions that put tokens before the elements, and what is summed last.
_HEADS_FIRST, _TURNED = (0, 2, 1, 3), (0, 2, 3, 1)

Emit = Callable[[relax.Expr], relax.Expr]


@dataclass(frozen=True)
class Options:
    """What a call of an attention says beside its operands.

    Attributes
    ----------
    scale : float or None
        None is 1 by the root of the elements of a head.
    causal : str
        ``causal_mask`` of ``relax.op.nn.attention``; empty if all keys are seen.
    soft_cap : float or None
    windowed : bool
        Whether the call has a sliding window.
    """

    scale: float | None
    causal: str
    soft_cap: float | None = None
    windowed: bool = False

    @classmethod
    def of(cls, call: relax.Call) -> Options:
        """Of a call of ``relax.nn.attention`` or of :func:`attention_call`."""
        attrs = call.attrs
        if operator_name(call) == OPERATOR:
            cap = float(attrs["soft_cap"]) or None
            return cls(float(attrs["scale"]), str(attrs["causal_mask"]), cap)
        scale = None if attrs.scale is None else float(attrs.scale)
        return cls(scale, str(attrs.causal_mask or ""), None, attrs.window_size is not None)


def register() -> None:
    """Register the operator with TVM; :mod:`warploom.plugin` calls this once."""
    tvm.ir._ffi_api.RegisterOp(OPERATOR, "An attention with a soft cap, or a bias by turns.")
    tvm.ir.register_op_attr(OPERATOR, "FInferType", _type_of)
    tvm.ir.register_op_attr(OPERATOR, "FPurity", True)


def attention_call(
    operands: Sequence[relax.Expr], scale: float, causal: str, soft_cap: float | None
) -> relax.Call:
    """A call of the operator.

    Parameters
    ----------
    operands : sequence of Expr
        q, k and v as ``relax.op.nn.attention`` has them, and perhaps a bias of four dimensions,
        whose batch divides that of q.
    scale : float
    soft_cap : float or None
        Logits are ``soft_cap * tanh(q kᵀ * scale / soft_cap)``, or ``q kᵀ * scale`` without a cap.
    causal : str
        ``causal_mask`` of ``relax.op.nn.attention``, or nothing.
    """
    hooks.register_relax_operators()
    numbers = {"scale": scale, "soft_cap": soft_cap or 0.0}
    attrs = {name: FloatImm("float64", number) for name, number in numbers.items()}
    made = tvm.ir.make_node("ir.DictAttrs", **attrs, causal_mask=causal)
    return relax.Call(Op.get(OPERATOR), list(operands), made)


def written_out(call: relax.Call, emit: Emit) -> relax.Expr:
    """The operators that compute an attention, in float32 from the logits on.

    Parameters
    ----------
    call : Call
        Of :func:`attention_call`.
    emit : callable
        Binds an expression to a variable.
    """
    q, k, v, *bias = call.args
    options, dtype = Options.of(call), str(call.ty.dtype)

    def number(value: float) -> relax.Expr:
        return relax.const(np.float32(value), "float32")

    heads_first = functools.partial(relax.op.permute_dims, axes=_HEADS_FIRST)
    turned = emit(relax.op.permute_dims(k, _TURNED))
    product = emit(relax.op.matmul(emit(heads_first(q)), turned, out_dtype="float32"))
    cap = options.soft_cap
    logits = emit(relax.op.multiply(product, number(options.scale / (cap or 1.0))))
    if cap is not None:
        logits = emit(relax.op.multiply(emit(relax.op.tanh(logits)), number(cap)))
    if bias:
        logits = _biased(logits, emit(relax.op.astype(bias[0], "float32")), emit)
    if options.causal:
        logits = emit(relax.op.add(logits, emit(_masked(logits, options.causal, emit))))
    weights = emit(relax.op.astype(emit(relax.op.nn.softmax(logits, axis=-1)), dtype))
    return heads_first(emit(relax.op.matmul(weights, emit(heads_first(v)), out_dtype=dtype)))


def bias_batch(q: relax.Expr, bias: relax.Expr) -> int | None:
    """The batch of a bias that batches of q have in turn; None where it is broadcast, or whole."""
    whole, own = (one.ty.shape.values[0] for one in (q, bias))
    if not isinstance(own, IntImm) or int(own) == 1 or tvm_ffi.structural_equal(whole, own):
        return None
    return int(own)


def _biased(logits: relax.Expr, bias: relax.Expr, emit: Emit) -> relax.Expr:
    turns = bias_batch(logits, bias)
    if turns is None:
        return emit(relax.op.add(logits, bias))
    batch, *rest = logits.ty.shape.values
    apart = emit(relax.op.reshape(logits, [int(batch) // turns, turns, *rest]))
    return emit(relax.op.reshape(emit(relax.op.add(apart, bias)), [batch, *rest]))


def _masked(logits: relax.Expr, causal: str, emit: Emit) -> relax.Expr:
    """The lowest number for keys that a query does not see; sizes are known where the mask is."""
    queries, keys = map(int, logits.ty.shape.values[2:])
    ahead = abs(keys - queries) if causal == "BottomRight" else 0
    # Functions of TVM take no tensors that are constants, and it fills none with infinities.
    lowest = relax.const(np.finfo(np.float32).min, "float32")
    lowest = emit(relax.op.full((queries, keys), lowest))
    return relax.op.triu(lowest, ahead + 1)


def _type_of(call: relax.Call, _: Any) -> relax.TensorType:
    q, v = call.args[0].ty, call.args[2].ty
    return relax.TensorType([*q.shape.values[:3], v.shape.values[3]], q.dtype)
