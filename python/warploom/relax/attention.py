"""``R.nn.attention`` becomes the tile program of :mod:`warploom.programs.attention`.

TVM legalises the operator to two products and a softmax, with all scores in memory between them.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import Op
from tvm.target import Target
from tvm.tirx import IntImm

from warploom.programs.attention import attention
from warploom.relax.visiting import visited
from warploom.target import SM90A

#: Head dimensions that accumulators and operands in registers leave room for.
HEAD_DIMS = (64, 128)
#: Queries and keys of a step: wider blocks hide more of the softmax, the diagonal wastes more.
TILE, CAUSAL_TILE = (128, 160), (128, 96)


def CallAttention() -> tvm.transform.Pass:
    """A pass that calls a tile program for each attention that one can compute.

    Those of 16-bit operands with as many keys as queries, causal or not, heads of 64 or 128
    elements; any number of tokens, known or not. What else there is stays as it is. To be run
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
        if call.op != Op.get("relax.nn.attention") or not _is_supported(call):
            return call
        types = [one.ty for one in call.args]
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
            CAUSAL_TILE if causal else TILE,
            scale=None if scale is None else float(scale),
            tokens_first=True,
        )
        function = self.builder_.add_func(program, "attention")
        return relax.call_tir(function, relax.Tuple(list(call.args)), call.ty)


def _is_supported(call: relax.Call) -> bool:
    shapes = [getattr(one.ty.shape, "values", None) for one in call.args]
    if any(shape is None for shape in shapes) or call.attrs.window_size is not None:
        return False
    q, k, v = shapes
    fixed = all(isinstance(one, IntImm) for shape in shapes for one in (shape[0], *shape[2:]))
    return (
        fixed
        and {str(one.ty.dtype) for one in call.args} <= {"float16", "bfloat16"}
        and int(q[3]) in HEAD_DIMS
        and all(tvm_ffi.structural_equal(x, y) for x, y in zip(k, v, strict=True))
        and all(tvm_ffi.structural_equal(q[i], k[i]) for i in (0, 1, 3))
        and int(q[2]) % int(k[2]) == 0
    )
