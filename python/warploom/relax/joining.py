"""Two functions that Relax calls one after the other become one.

Common parts of passes that do so: which calls may be joined, and how their functions are joined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import GlobalVar, Op
from tvm.s_tir import SBlock, SBlockRealize, renew_defs
from tvm.tirx import PrimFunc, Var

from warploom.errors import Decline, IllegalCombination
from warploom.gemm.problem import GemmFunction
from warploom.relax.decisions import decisions_of
from warploom.tile import ir


class Joiner(relax.PyExprMutator):
    """Looks up which call computes an argument, and which functions calls name.

    Attributes
    ----------
    functions : dict
        Functions of the module by name, those that were made meanwhile too.
    uses : dict
        How often the current Relax function uses each of its variables.
    known : dict
        What :meth:`once` has computed.
    """

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.functions = {gv.name_hint: func for gv, func in mod.functions.items()}
        self.uses: dict[relax.Var, int] = {}
        self.known: dict[tuple[Any, ...], Any] = {}

    def once(self, key: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
        """What ``compute`` returns for a key; layers of a model call the same functions."""
        if key not in self.known:
            self.known[key] = compute()
        return self.known[key]

    def run(self, mod: tvm.IRModule) -> tvm.IRModule:
        """The module with all calls of its Relax functions visited, and without unused ones."""
        for gv, func in mod.functions.items():
            if isinstance(func, relax.Function):
                self.uses = _count_uses(func)
                self.builder_.update_func(gv, self.visit_expr(func))
        return relax.transform.DeadCodeElimination()(self.builder_.get())

    def producer(self, argument: relax.Expr) -> relax.Call | None:
        """The call that computes an argument which nothing else uses."""
        if not isinstance(argument, relax.Var) or self.uses.get(argument, 0) != 1:
            return None
        bound = self.lookup_binding(argument)
        return bound if isinstance(bound, relax.Call) and is_call_tir(bound) else None

    def function(self, call: relax.Call) -> Any:
        """The function that a ``call_tir`` calls."""
        return self.functions[call.args[0].name_hint]

    def call(
        self, func: PrimFunc, arguments: Sequence[relax.Expr], old: relax.Call
    ) -> relax.Call:
        """A call of a new function with the results of an old one."""
        variable = self.builder_.add_func(func, f"fused_{old.args[0].name_hint}")
        self.functions[variable.name_hint] = func
        return relax.call_tir(variable, relax.Tuple(list(arguments)), result_types(old))


def _count_uses(func: relax.Function) -> dict[relax.Var, int]:
    uses: dict[relax.Var, int] = {}

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call):
            for argument in _flat(expr.args):
                uses[argument] = uses.get(argument, 0) + 1
        elif isinstance(expr, (relax.Tuple, relax.SeqExpr)):
            for part in expr.fields if isinstance(expr, relax.Tuple) else [expr.body]:
                uses[part] = uses.get(part, 0) + 1

    relax.analysis.post_order_visit(func, visit)
    return uses


def _flat(arguments: Any) -> list[relax.Expr]:
    """Arguments of a call; tuples are visited by themselves."""
    return [argument for argument in arguments if not isinstance(argument, relax.Tuple)]


def is_call_tir(call: relax.Call) -> bool:
    """Whether a call is a ``call_tir`` of a function of the module, without symbolic arguments."""
    return (
        call.op == Op.get("relax.call_tir")
        and isinstance(call.args[0], GlobalVar)
        and len(call.args) == 2
    )


def equal_arguments(arguments: Sequence[relax.Expr]) -> tuple[int, ...]:
    """For each argument of a call the place of the first that is the same."""
    first: dict[relax.Expr, int] = {}
    return tuple(first.setdefault(one, place) for place, one in enumerate(arguments))


def result_types(call: relax.Call) -> list[relax.Type]:
    """Types of the results of a ``call_tir``, one by one."""
    (result,) = call.ty_args
    return list(result.fields) if isinstance(result, relax.TupleType) else [result]


def joined(producer: PrimFunc, func: PrimFunc, position: int) -> PrimFunc:
    """A function that computes one parameter of ``func`` by ``producer`` first.

    Its parameters are those of ``func``, the inputs of ``producer`` in the place of that one.
    """
    # Calls of one function, and functions that one pass made, share their variables.
    producer = renew_defs(producer)
    *inputs, result = producer.params
    operand = func.params[position]
    table = _same_sizes(result, operand)
    table |= _resized(inputs, table)
    table[result] = operand
    first = ir.substitute(producer.body, table).block
    inputs = [table.get(param, param) for param in inputs]
    second = func.body.block
    first = _named_apart(first, _block_names(second))
    root = SBlock(
        [], [], [], "root", ir.seq([first.body, second.body]), None,
        [*first.alloc_buffers, *second.alloc_buffers, operand],
    )  # fmt: skip
    params = [*func.params[:position], *inputs, *func.params[position + 1 :]]
    return _fused(params, SBlockRealize([], True, root), func)


def _block_names(block: SBlock) -> set[str]:
    names: set[str] = set()
    tvm_ffi.structural_walk(block, (SBlock, lambda inner: names.add(inner.name_hint)))
    return names


def _named_apart(root: SBlock, taken: set[str]) -> SBlock:
    """A root block whose blocks have names that are free: schedules go by them."""
    free = taken | _block_names(root)

    def rename(block: SBlock) -> SBlock:
        if block.name_hint not in taken or block.name_hint == "root":
            return block
        names = (f"{block.name_hint}_{number}" for number in count(1))
        name = next(name for name in names if name not in free)
        free.add(name)
        return SBlock(
            block.iter_vars, block.reads, block.writes, name, block.body, block.init,
            block.alloc_buffers, block.match_buffers, block.annotations,
        )  # fmt: skip

    return tvm_ffi.structural_map(root, (SBlock, rename), order="post")


def with_arguments_once(
    func: PrimFunc, arguments: Sequence[relax.Expr]
) -> tuple[PrimFunc, list[relax.Expr]]:
    """The function with one parameter for each argument, however often that is passed."""
    table: dict[Var, Any] = {}
    first: dict[relax.Expr, Var] = {}
    params, kept = [], []
    for param, argument in zip(func.params, arguments, strict=False):
        if isinstance(argument, relax.Var) and argument in first:
            table |= _same_sizes(param, first[argument]) | {param: first[argument]}
        else:
            first[argument] = param
            params.append(param)
            kept.append(argument)
    if not table:
        return func, list(arguments)
    results = func.params[len(arguments) :]
    params = [*params, *results]
    resized = _resized(params, table)
    # An argument that is passed twice is the parameter that takes the place of the first one.
    table = {old: resized.get(new, new) for old, new in table.items()} | resized
    changed = [table.get(param, param) for param in params]
    return _fused(changed, ir.substitute(func.body, table), func), kept


def _resized(params: Sequence[Var], sizes: dict[Var, Any]) -> dict[Var, Any]:
    """Parameters whose shapes are in terms of other dynamic sizes; others stay."""
    changed = {}
    for param in params:
        if ir.is_buffer(param) and any(ir.uses(extent) & sizes.keys() for extent in param.shape):
            shape = [ir.substitute(extent, sizes) for extent in param.shape]
            changed[param] = tirx.decl_buffer(
                shape, str(param.dtype), param.name, scope=param.scope(), layout=None
            )
    return changed


def _same_sizes(mine: Var, wanted: Var) -> dict[Var, Any]:
    """Dynamic sizes of a parameter, in terms of another one's."""
    pairs = zip(mine.shape, wanted.shape, strict=True)
    return {old: new for old, new in pairs if isinstance(old, Var) and not old.same_as(new)}


def _fused(params: list[Any], body: Any, old: PrimFunc) -> PrimFunc:
    # 4, for a sum with element-wise operations after it.
    return PrimFunc(params, body, old.ret_type, old.attrs).with_attr("op_pattern", 4)


def has_program(gemm: GemmFunction) -> bool:
    """Whether a tile program can be written; parts of a function may have one where it cannot."""
    try:
        decisions_of(gemm)
    except (Decline, IllegalCombination):
        return False
    return True
