"""Residuals around norms that mixed precision has widened to float32 have 16 bits again.

``ToMixedPrecision`` leaves norms in float32 where their input is. BERT has norms behind its
residuals, and a float32 table of words: all its residuals are float32 then. A norm's result goes to
a GEMM, rounded to 16 bits, and to the next sum in float32, so GEMMs read and write residuals of 32
bits, and the rounding is a kernel of its own. PyTorch has 16 bits in all three places. Sums that
other sums read in float32 are accumulated, and stay float32.
"""

from __future__ import annotations

import tvm
from tvm import relax, topi

from warploom.relax.fuse_products import OF_READER
from warploom.relax.keep_gates_apart import OPAQUE
from warploom.relax.narrow_products import KEEP
from warploom.relax.visiting import is_for_hopper, operator_name, visited

_NARROW, _WIDE = frozenset(("float16", "bfloat16")), "float32"
_NORMS = frozenset(
    f"relax.nn.{name}" for name in ("layer_norm", "rms_norm", "group_norm", "instance_norm")
)
_SUMS = frozenset(("relax.add", "relax.subtract"))
#: Operators whose functions a cast before them becomes a part of.
_TAKES_CASTS = _NORMS | _SUMS | frozenset(
    f"relax.{name}" for name in ("multiply", "divide", "maximum", "minimum", "mean", "nn.softmax",
                                 "nn.relu", "nn.gelu", "nn.silu", "sigmoid", "tanh")
)  # fmt: skip


def NarrowResiduals() -> tvm.transform.Pass:
    """A pass that leaves no float32 tensor in memory where residuals and norms have 16 bits.

    To be run before ``LegalizeOps``.

    - A norm of float32 whose result some operator takes rounded to 16 bits is rounded for all, if
      the others are sums, norms or element-wise.
    - A sum of two widened 16-bit tensors that only norms read is rounded.
    - A widened tensor that several operators read is widened in each of them, which is exact: their
      kernels read 16 bits, and no kernel writes float32.

    In a Relax function with the attribute ``warploom.keep_float32`` only the last one is done.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.NarrowResiduals")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        if not is_for_hopper():
            return mod
        return visited(mod, _Narrower(mod), clean=True)

    return run


@relax.expr_functor.mutator
class _Narrower(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.readers: dict[relax.Var, list[relax.Expr]] = {}
        #: Tensors of 16 bits, by the variables of float32 that are read as those widened.
        self.narrow: dict[relax.Var, relax.Var] = {}
        self.rounds = True

    def visit_function_(self, func: relax.Function) -> relax.Expr:
        self.rounds = not (func.attrs or {}).get(KEEP, False)
        self.readers, self.narrow = _readers(func), {}
        return super().visit_function_(func)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        super().visit_var_binding_(binding)
        var, call = binding.var, binding.value
        name, readers = operator_name(call), self.readers.get(var, [])
        if not name or _dtype(var) != _WIDE or not readers:
            return
        if name == "relax.astype" and _dtype(call.args[0]) in _NARROW:
            source = self.visit_expr(call.args[0])
            if isinstance(source, relax.Var):
                self.narrow[var] = source
            return
        dtype = self._rounded_to(var, call, readers) if self.rounds else None
        if dtype is not None:
            self.narrow[var] = self.builder_.emit(relax.op.astype(self.visit_expr(var), dtype))

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        name = operator_name(call)
        if name == "relax.astype":
            narrow = self.narrow.get(call.args[0])
            if narrow is not None and _dtype(narrow) == _dtype(call):
                return narrow
        if name not in _TAKES_CASTS or not any(arg in self.narrow for arg in call.args):
            return super().visit_call_(call)
        args = [
            self._widened(self.narrow[arg], name in _NORMS) if arg in self.narrow
            else self.visit_expr(arg)
            for arg in call.args
        ]  # fmt: skip
        return relax.Call(call.op, args, call.attrs, call.ty_args)

    def _widened(self, narrow: relax.Var, for_norm: bool) -> relax.Var:
        """A tensor as float32, for one reader."""
        if not for_norm:
            return self.builder_.emit(relax.op.astype(narrow, _WIDE))
        # Fused with what computes the tensor, the cast would have that write float32.
        attrs = {"op_pattern": OPAQUE, OF_READER: True}
        return self.builder_.emit_te(topi.cast, narrow, _WIDE, primfunc_attrs=attrs)

    def _rounded_to(
        self, var: relax.Var, call: relax.Call, readers: list[relax.Expr]
    ) -> str | None:
        """The 16-bit type that a result is rounded to; None if it stays float32."""
        name = operator_name(call)
        casts = [one for one in readers if operator_name(one) == "relax.astype"]
        others = [operator_name(one) for one in readers if one not in casts]
        if name in _NORMS and others and all(one in _TAKES_CASTS for one in others):
            types = {_dtype(one) for one in casts}
        elif name in _SUMS and all(_is_norm_of(var, one) for one in readers):
            types = {_dtype(self.narrow.get(arg)) for arg in call.args}
        else:
            return None
        return types.pop() if len(types) == 1 and types <= _NARROW else None


def _readers(func: relax.Function) -> dict[relax.Var, list[relax.Expr]]:
    """What reads each variable: the values of bindings, and the results of blocks."""
    found: dict[relax.Var, list[relax.Expr]] = {}

    def read(expr: relax.Expr) -> None:
        for var in set(relax.analysis.free_vars(expr)):
            found.setdefault(var, []).append(expr)

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.SeqExpr):
            for block in expr.blocks:
                for binding in block.bindings:
                    read(binding.value)
            read(expr.body)

    relax.analysis.post_order_visit(func.body, visit)
    return found


def _is_norm_of(var: relax.Var, call: relax.Expr) -> bool:
    return operator_name(call) in _NORMS and call.args[0].same_as(var)


def _dtype(expr: relax.Expr | None) -> str:
    return str(getattr(getattr(expr, "ty", None), "dtype", ""))
