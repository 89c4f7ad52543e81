"""Weights that nothing writes while a model runs: GEMVs load them before they wait.

A GEMV starts while the kernel before it still runs (programmatic dependent launch). Loads before
its wait may see what an unfinished kernel has not written yet, and several kernels may be
unfinished: each lets the next one start before it waits itself. So weights are loaded early if

- each call gets them as parameters of its Relax function or as constants, which the function hands
  to nothing that may write them; and
- the first kernel of each such Relax function waits as a whole: it is launched when all work before
  it in the stream has ended. Then no kernel from before the call is unfinished.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import GlobalVar
from tvm.ir.expr import GenericConst
from tvm.tirx import PrimFunc, Stmt

from warploom.gemm.annotations import annotations_of
from warploom.gemm.gemv.kernel import CONSTANT
from warploom.lower.emit.next_kernel import wait_for_last
from warploom.relax.visiting import operator_name
from warploom.tile import ir
from warploom.tile.kinds import is_s_tir

#: Calls that write none of their inputs.
_READERS = ("relax.call_tir", "relax.call_dps_packed")
_LAUNCH = "relax.call_tir"


def MarkConstantWeights() -> tvm.transform.Pass:
    """A pass that tells GEMVs which of their parameters they may read before they wait.

    To be run when functions of rows are kernels, and calls of kernels are ``call_tir`` still.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.MarkConstantWeights")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        gemvs = {gv for gv, func in mod.functions.items() if _is_gemv(func)}
        if not gemvs:
            return mod
        constant: dict[GlobalVar, set[int]] = {}
        firsts: dict[GlobalVar, relax.Call] = {}
        for gv, func in mod.functions.items():
            if not isinstance(func, relax.Function):
                continue
            found = _Reader(func)
            first = next((call for call in found.calls if _launches(mod, call)), None)
            waits = found.is_straight and first is not None and _can_wait(mod, first)
            if waits and any(call.args[0] in gemvs for call in found.calls):
                firsts[gv] = first
            for call in found.calls:
                name = call.args[0]
                if name in gemvs:
                    own = set(found.constants(call)) if waits else set()
                    constant[name] = constant.get(name, own) & own
        marked = {
            name: mod[name].with_attr(CONSTANT, sorted(numbers))
            for name, numbers in constant.items() if numbers
        }  # fmt: skip
        if not marked:
            return mod
        return _with_waits(tvm.IRModule({**dict(mod.functions.items()), **marked},
                                        attrs=mod.attrs), firsts)  # fmt: skip

    return run


class _Reader:
    """What a Relax function calls, in order, and which values are its parameters.

    Attributes
    ----------
    calls : list of Call
        All ``call_tir``.
    is_straight : bool
        Whether it has no branches.
    """

    def __init__(self, func: relax.Function) -> None:
        self.calls: list[relax.Call] = []
        self._fixed: set[Any] = set(func.params)
        self._written: set[Any] = set()
        self._roots: dict[Any, Any] = {param: param for param in func.params}
        body = func.body
        self.is_straight = isinstance(body, relax.SeqExpr)
        for binding in self._bindings(body):
            self._read(binding)

    @staticmethod
    def _bindings(body: Any) -> Iterator[Any]:
        for block in getattr(body, "blocks", ()):
            yield from block.bindings

    def _read(self, binding: Any) -> None:
        value = binding.value
        if isinstance(value, relax.If):
            self.is_straight = False
        if isinstance(value, relax.Var) and value in self._fixed:
            self._alias(binding.var, value)
        elif isinstance(value, relax.TupleGetItem) and value.tuple_value in self._fixed:
            self._alias(binding.var, value.tuple_value)
        elif isinstance(value, relax.Call):
            if operator_name(value) == _LAUNCH and isinstance(value.args[0], GlobalVar):
                self.calls.append(value)
            elif operator_name(value) not in _READERS:
                used = {var for arg in value.args for var in relax.analysis.free_vars(arg)}
                self._written |= {self._roots[var] for var in used if var in self._roots}

    def _alias(self, var: Any, of: Any) -> None:
        """Another name of a parameter, or a part of it."""
        self._fixed.add(var)
        # What is written of a tuple may be any of its parts; a part is written by itself.
        self._roots[var] = self._roots[of] if isinstance(of, relax.Var) else of

    def constants(self, call: relax.Call) -> Iterator[int]:
        """The numbers of a call's arguments that nothing writes."""
        for number, argument in enumerate(call.args[1]):
            fixed = argument in self._fixed and self._roots[argument] not in self._written
            if fixed or isinstance(argument, GenericConst):
                yield number


def _is_gemv(func: Any) -> bool:
    if not isinstance(func, PrimFunc) or not is_s_tir(func):
        return False
    return any(
        value and key.rpartition(".")[2] == "gemv" for key, value in annotations_of(func).items()
    )


def _launches(mod: tvm.IRModule, call: relax.Call) -> bool:
    """Whether a call is a kernel: Relax moves nothing for a function that only reshapes."""
    func = mod[call.args[0]]
    s_tir = isinstance(func, PrimFunc) and is_s_tir(func)
    return not (s_tir and relax.analysis.has_reshape_pattern(func))


def _can_wait(mod: tvm.IRModule, call: relax.Call) -> bool:
    """Whether a kernel is launched as TVM launches kernels, or can be."""
    func = mod[call.args[0]]
    if not isinstance(func, PrimFunc):
        return False
    return not (is_s_tir(func) and annotations_of(func))


def _with_waits(mod: tvm.IRModule, firsts: dict[GlobalVar, relax.Call]) -> tvm.IRModule:
    """The module, in which the first kernels of some functions start when all others have ended."""
    mutator = _First(mod)
    for gv, first in firsts.items():
        mutator.first = first
        mutator.builder_.update_func(gv, mutator.visit_expr(mod[gv]))
    return mutator.builder_.get()


@relax.expr_functor.mutator
class _First(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.mod = mod
        self.first: relax.Call | None = None

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        if self.first is None or not call.same_as(self.first):
            return super().visit_call_(call)
        self.first = None
        func = self.mod[call.args[0]]
        changed = _without_wait(func)
        if changed is func:
            return call
        name = self.builder_.add_func(changed, f"{call.args[0].name_hint}_after_all")
        return relax.call_tir(name, call.args[1], call.ty_args[0], *call.args[2:])


def _without_wait(kernel: PrimFunc) -> PrimFunc:
    """A kernel that does not wait itself: it is launched when the kernels before it have ended."""
    wait, found = wait_for_last(), False

    def visit(statement: Stmt) -> Stmt:
        nonlocal found
        if isinstance(statement, tirx.Evaluate) and tvm_ffi.structural_equal(statement, wait):
            found = True
            return tirx.Evaluate(0)
        return ir.map_children(statement, visit)

    body = visit(kernel.body)
    return kernel.with_body(body) if found else kernel
