"""``topk`` along rows becomes the program of :mod:`warploom.programs.top_k`.

TVM sorts whole rows, in many launches. A softmax before it, as routers of experts have it, is
computed by the same kernel.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Op
from tvm.tirx import IntImm

from warploom.errors import Decline
from warploom.fallback import attempted
from warploom.programs.top_k import CHUNK, DTYPES, MOST, parts_of, top_k
from warploom.relax.tile_programs import with_words
from warploom.relax.visiting import bound, is_for_hopper, visited


def CallTopK() -> tvm.transform.Pass:
    """A pass that calls programs for the ``topk`` of a model.

    Those along the last axis, of 16- or 32-bit floats, of at most 64 numbers, of rows whose length
    is known. To be run before ``DispatchSortScan`` and ``LegalizeOps``.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.CallTopK")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        if not is_for_hopper():
            return mod
        return visited(mod, _Caller(mod), clean=True)

    return run


@relax.expr_functor.mutator
class _Caller(relax.PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if call.op != Op.get("relax.topk"):
            return call
        made = attempted("topk", lambda: self._searched(call))
        return call if made is None else made

    def _searched(self, call: relax.Call) -> relax.Expr:
        """The values and places, as the operator returns them."""
        tensor = call.args[0]
        shape = getattr(getattr(tensor.ty, "shape", None), "values", None)
        k, columns = check_top_k(call)
        given = self._softmax_of(tensor, columns)
        softmax = given is not None
        rows = reduce(lambda x, y: x * y, shape[:-1], IntImm("int64", 1))
        found = self._reshaped(given if softmax else tensor, [rows, columns])
        places = None
        while True:
            parts = parts_of(columns)
            arguments = [found] if places is None else [found, places]
            index = str(call.attrs.dtype) if parts == 1 else "int32"
            found, places = self._launch(arguments, columns, k, index, call, softmax)
            if parts == 1:
                break
            columns = parts * k
        results = [self._reshaped(one, [*shape[:-1], k]) for one in (found, places)]
        wanted = {"values": results[:1], "indices": results[1:]}.get(call.attrs.ret_type, results)
        return relax.Tuple(results) if len(wanted) > 1 else wanted[0]

    def _softmax_of(self, tensor: relax.Expr, columns: int) -> relax.Expr | None:
        """What a softmax along rows of float32 reads, if that is what is searched."""
        found = bound(self, tensor)
        if not isinstance(found, relax.Call) or found.op != Op.get("relax.nn.softmax"):
            return None
        last = len(found.ty.shape.values) - 1
        fits = columns <= CHUNK and str(found.args[0].ty.dtype) == "float32"
        same = str(found.ty.dtype) == "float32" and int(found.attrs.axis) in (-1, last)
        return found.args[0] if fits and same else None

    def _reshaped(self, tensor: relax.Expr, shape: list[Any]) -> relax.Expr:
        if len(tensor.ty.shape.values) == len(shape) == 2:
            return tensor
        return self.builder_.emit(relax.op.reshape(tensor, shape))

    def _launch(
        self, arguments: list[relax.Expr], columns: int, k: int, index: str, call: relax.Call,
        softmax: bool,
    ) -> list[relax.Expr]:  # fmt: skip
        rows, dtype = arguments[0].ty.shape.values[0], str(arguments[0].ty.dtype)
        largest, placed = bool(call.attrs.largest), len(arguments) > 1
        count = int(rows) if isinstance(rows, IntImm) else None
        program = top_k(columns, k, count, dtype, index, largest, softmax, placed)
        of = "the softmax of " if softmax else ""
        words = f"the {k} {'largest' if largest else 'smallest'} of {of}{columns} {dtype} of a row"
        made = self.builder_.add_func(with_words(program, f"{words}: a warp a row", False), "top_k")
        size = [rows, parts_of(columns) * k]
        types = [relax.TensorType(size, dtype), relax.TensorType(size, index)]
        results = self.builder_.emit(relax.call_tir(made, relax.Tuple(arguments), types))
        return [self.builder_.emit(relax.TupleGetItem(results, number)) for number in range(2)]


def check_top_k(call: relax.Call) -> tuple[int, int]:
    """The numbers that a ``topk`` wants, and the elements of a row.

    Raises
    ------
    Decline
        If no kernel computes it.
    """
    shape = getattr(getattr(call.args[0].ty, "shape", None), "values", None)
    if not shape or not isinstance(shape[-1], IntImm):
        raise Decline("the length of the rows of topk is not known.")
    columns, attrs = int(shape[-1]), call.attrs
    k, dtype = int(attrs.k), str(call.args[0].ty.dtype)
    if int(attrs.axis) not in (-1, len(shape) - 1):
        raise Decline(f"topk along axis {attrs.axis}; it must be the last one.")
    if dtype not in DTYPES or str(attrs.dtype) not in ("int32", "int64"):
        raise Decline(f"topk of {dtype} with indices of {attrs.dtype}; no kernel has these types.")
    if not 1 <= k <= min(columns, MOST):
        raise Decline(f"topk of {k} numbers; a kernel finds 1 to {MOST}, and no more than a row's.")
    return k, columns
