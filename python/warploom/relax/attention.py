"""``R.nn.attention`` becomes the tile program of :mod:`warploom.programs.attention`.

TVM legalises the operator to two GEMMs and a softmax, with all scores in memory between them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import Op
from tvm.target import Target
from tvm.tirx import IntImm, PrimFunc

from warploom.decide.families.attention import AttentionProblem
from warploom.decide.selector import choose
from warploom.errors import Decline
from warploom.fallback import attempted, with_original
from warploom.programs.attention import attention
from warploom.relax.visiting import visited
from warploom.target import SM90A
from warploom.tile import ir

#: Head dimensions that accumulators and operands in registers leave room for.
HEAD_DIMS = (64, 128)
#: Types of operands.
DTYPES = frozenset({"float16", "bfloat16"})
#: Attribute of the tile program of an attention: its computation, in words.
ATTENTION = "warploom.attention"
#: The operators that compute an attention; the tile program takes the first.
_OPERATORS = ("relax.nn.attention", "relax.nn.attention_bias", "relax.nn.attention_var_len")


def CallAttention() -> tvm.transform.Pass:
    """A pass that calls a tile program for each attention that one can compute.

    Those of 16-bit operands with as many keys as queries, causal or not, heads of 64 or 128
    elements; any number of tokens, known or not. Other functions stay as they are. To be run
    before ``LegalizeOps`` and :func:`warploom.relax.tile_programs.CallTilePrograms`.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.CallAttention")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        target = Target.current(allow_none=True)
        if target is None or str(target.attrs.get("arch", "")) != SM90A.name:
            return mod
        return visited(mod, _Caller(mod))

    return run


@relax.expr_functor.mutator
class _Caller(relax.PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if call.op != Op.get("relax.nn.attention"):
            return call
        program = attempted("attention", lambda: self._program(call))
        return call if program is None else program

    def _program(self, call: relax.Call) -> relax.Call:
        check_attention(call)
        types = [arg.ty for arg in call.args]
        batch, tokens, heads, head_dim = types[0].shape.values
        causal = call.attrs.causal_mask is not None
        scale = call.attrs.scale
        program = attention(
            int(tokens) if isinstance(tokens, IntImm) and int(tokens) > 1 else None,
            int(head_dim),
            int(heads),
            int(types[1].shape.values[2]),
            int(batch),
            causal,
            str(types[0].dtype),
            scale=None if scale is None else float(scale),
            tokens_first=True,
        )
        program = program.with_attr(ATTENTION, _in_words(call))
        if int(types[0].shape.values[2]) == int(types[1].shape.values[2]):
            program = with_original(program, _legalised(call))
        function = self.builder_.add_func(program, "attention")
        return relax.call_tir(function, relax.Tuple(list(call.args)), call.ty)


def _legalised(call: relax.Call) -> PrimFunc:
    """The function that TVM makes of an attention whose heads share no keys."""
    builder = relax.BlockBuilder()
    made = call.op.get_attr("FLegalize")(builder, call)
    return builder.get()[made.args[0]]


def _in_words(call: relax.Call) -> str:
    q, k, _ = map(_shape, call.args)
    causal = call.attrs.causal_mask is not None
    tokens = q[1] if isinstance(q[1], int) else None
    config = choose(AttentionProblem(tokens, q[3], q[2], k[2], q[0], causal))
    mask = "causal attention" if causal else "attention"
    return (
        f"{mask} of {q[0]} x {q[1]} tokens, {q[2]} heads of {q[3]} ({k[2]} of keys), "
        f"{call.args[0].ty.dtype}\n  tile {config.tile_m} queries x {config.tile_n} keys"
    )


def operands_of(tensors: Iterable[Any]) -> tuple[str, ...]:
    """Shapes and types of tensors, by which the function of an attention is known again."""
    operands = []
    for tensor in tensors:
        if ir.is_buffer(tensor):
            shape = tensor.shape
        else:  # a size that is a parameter has no shape, nor has a tensor of unknown rank
            shape = getattr(getattr(tensor.ty, "shape", None), "values", ())
        operands.append(f"{tensor.ty.dtype} {[str(extent) for extent in shape]}")
    return tuple(operands)


def declined_attention(mod: tvm.IRModule) -> dict[tuple[str, ...], str]:
    """Why the attention of a model is left to TVM, by the operands of each call."""
    reasons: dict[tuple[str, ...], str] = {}

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and getattr(expr.op, "name", "") in _OPERATORS:
            try:
                check_attention(expr)
            except Decline as reason:
                reasons[operands_of(expr.args)] = str(reason)

    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            relax.analysis.post_order_visit(func, visit)
    return reasons


def check_attention(call: relax.Call) -> None:
    """Raise unless the tile program computes an attention.

    Raises
    ------
    Decline
        The message names the obstacle: mask, dtype, layout, keys, heads or head dimension.
    """
    if len(call.args) != 3 or call.attrs.window_size is not None:
        extra = "a bias" if len(call.args) > 3 else "a sliding window"
        raise Decline(f"the attention has {extra}; the tile program knows causal masks and none.")
    if any(getattr(arg.ty.shape, "values", None) is None for arg in call.args):
        raise Decline("shapes of the attention are not known.")
    dtypes = {str(arg.ty.dtype) for arg in call.args}
    if len(dtypes) > 1 or not dtypes <= DTYPES:
        raise Decline(
            f"operands of the attention are {', '.join(sorted(dtypes))}; all must be "
            f"{' or '.join(sorted(DTYPES))}."
        )
    q, k, v = map(_shape, call.args)
    for name, shape in zip("qkv", (q, k, v), strict=True):
        sizes = {"batch": shape[0], "heads": shape[2], "head dimension": shape[3]}
        for dimension, extent in sizes.items():
            if not isinstance(extent, int):
                raise Decline(
                    f"{dimension} of {name} is {extent}; only the number of tokens may be dynamic, "
                    "in shapes [batch, tokens, heads, head dimension]."
                )
    if q[3] not in HEAD_DIMS or not q[3] == k[3] == v[3]:
        raise Decline(
            f"head dimensions of q, k and v are {q[3]}, {k[3]} and {v[3]}; all three must be "
            f"{' or '.join(map(str, HEAD_DIMS))}, so pad them."
        )
    if not all(tvm_ffi.structural_equal(tensor[1], q[1]) for tensor in (k, v)):
        raise Decline(
            f"q, k and v have {q[1]}, {k[1]} and {v[1]} tokens; there must be as many keys as "
            "queries."
        )
    if not q[0] == k[0] == v[0]:
        raise Decline(f"batches of q, k and v are {q[0]}, {k[0]} and {v[0]}; make them equal.")
    if k[2] != v[2] or q[2] % k[2]:
        raise Decline(
            f"q, k and v have {q[2]}, {k[2]} and {v[2]} heads; those of k and v must be equal, and "
            "divide those of q."
        )


def _shape(tensor: relax.Expr) -> list[Any]:
    """Sizes of a tensor, those that are known as Python's integers."""
    return [
        int(extent) if isinstance(extent, IntImm) else extent for extent in tensor.ty.shape.values
    ]
