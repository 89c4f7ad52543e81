"""A mixture of experts as MLC-LLM writes it: tokens sorted by expert, grouped GEMMs, and back."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op
from tvm.script import tirx as T

from warploom_bench.models.sizes import LanguageSizes


class GroupedLinear(nn.Module):
    """Rows sorted by group, each multiplied by the weight ``[outputs, inputs]`` of its group."""

    def __init__(self, groups: int, outputs: int, inputs: int) -> None:
        self.weight = nn.Parameter((groups, outputs, inputs), "float16")

    def forward(self, x: nn.Tensor, first: nn.Tensor) -> nn.Tensor:
        """``first`` is the first row of each group, and the number of all rows."""
        groups, outputs, inputs = self.weight.shape
        out = nn.Tensor.placeholder((x.shape[0], outputs), x.dtype)
        function = _grouped(int(groups), int(outputs), int(inputs), x.dtype)
        return op.tensor_ir_op(function, "grouped", [x, self.weight, first], out)


def _grouped(groups: int, outputs: int, inputs: int, dtype: str) -> tirx.PrimFunc:
    """A kernel of its own, for any number of rows: operators around it are not fused with it."""
    rows = te.var("rows", "int64")
    x = te.placeholder((rows, inputs), dtype, "x")
    weight = te.placeholder((groups, outputs, inputs), dtype, "weight")
    first = te.placeholder((groups + 1,), "int32", "first")
    g, k = te.reduce_axis((0, groups), "g"), te.reduce_axis((0, inputs), "k")

    def element(i: Any, j: Any) -> Any:
        own = tirx.all(first[g] <= i, i < first[g + 1])
        return te.sum(
            tirx.if_then_else(own, x[i, k] * weight[g, j, k], tirx.const(0, dtype)), [g, k]
        )

    made = te.create_prim_func([x, weight, first, te.compute((rows, outputs), element, "grouped")])
    return made.without_attr("global_symbol")


class Experts(nn.Module):
    """SwiGLU experts, of which each token takes those that its router prefers."""

    def __init__(self, sizes: LanguageSizes) -> None:
        self.sizes = sizes
        self.router = nn.Linear(sizes.hidden, sizes.experts, bias=False, dtype="float16")
        self.gate_up = GroupedLinear(sizes.experts, 2 * sizes.intermediate, sizes.hidden)
        self.down = GroupedLinear(sizes.experts, sizes.hidden, sizes.intermediate)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        batch, rows, width = x.shape
        choices, tokens = self.sizes.choices, batch * rows
        flat = op.reshape(x, (tokens, width))
        shares = op.softmax(op.astype(self.router(flat), "float32"), -1)
        weights, chosen = op.topk(shares, choices, axis=-1, ret_type="both", dtype="int32")
        weights = op.astype(weights / op.sum(weights, -1, keepdims=True), "float16")
        place, token, first = self._sort(op.reshape(chosen, (tokens * choices,)))
        gate, up = op.split(self.gate_up(op.take(flat, token, 0), first), 2, -1)
        y = op.take(self.down(op.silu(gate) * up, first), place, 0)
        y = op.reshape(y, (tokens, choices, width)) * op.reshape(weights, (tokens, choices, 1))
        return op.reshape(op.sum(y, 1), (batch, rows, width))

    def _sort(self, expert: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor, nn.Tensor]:
        """The row of each choice when sorted by expert; the token of each row; first rows."""
        count, experts, choices = expert.shape[0], self.sizes.experts, self.sizes.choices

        def marks(expert: te.Tensor) -> te.Tensor:
            rows = expert.shape[0]
            return te.compute(
                (experts * rows,),
                lambda i: (expert[i % rows] == (i // rows).astype("int32")).astype("int32"),
                "marks",
            )

        def places(expert: te.Tensor, upto: te.Tensor) -> te.Tensor:
            rows = expert.shape[0]
            return te.compute(
                (rows,), lambda i: upto[expert[i].astype("int64") * rows + i] - 1, "places"
            )

        def firsts(upto: te.Tensor) -> te.Tensor:
            rows = upto.shape[0] // experts
            return te.compute(
                (experts + 1,),
                lambda g: tirx.if_then_else(
                    g > 0, upto[tirx.max(g.astype("int64") * rows - 1, 0)], 0
                ),
                "firsts",
            )

        @T.prim_func(private=True, s_tir=True)
        def tokens_of(place: T.handle, token: T.handle):
            T.func_attr({"tirx.noalias": True})
            n = T.int64()
            P = T.match_buffer(place, (n,), "int32")
            C = T.match_buffer(token, (n,), "int32")
            for at in T.serial(n):
                with T.sblock("token"):
                    i = T.axis.spatial(n, at)
                    T.reads(P[i])
                    T.writes(C[P[i]])
                    C[P[i]] = T.cast(i // choices, "int32")

        upto = op.cumsum(op.tensor_expr_op(marks, "marks", [expert]), 0, dtype="int32")
        place = op.tensor_expr_op(places, "places", [expert, upto])
        first = op.tensor_expr_op(firsts, "firsts", [upto])
        out = nn.Tensor.placeholder((count,), "int32")
        return place, op.tensor_ir_op(tokens_of, "tokens_of", [place], out), first
