"""``R.nn.attention`` becomes the tile program of :mod:`warploom.programs.attention`.

TVM legalises the operator to two GEMMs and a softmax, with all scores in memory between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import GlobalVar
from tvm.tirx import IntImm, PrimFunc, Var

from warploom.decide.config import Config
from warploom.decide.families.attention import AttentionProblem
from warploom.decide.selector import choose
from warploom.errors import Decline, IllegalCombination
from warploom.fallback import attempted, with_original
from warploom.programs.attention import attention
from warploom.programs.attention_arguments import check_heads
from warploom.programs.heads_in_memory import TOKENS_FIRST, HeadsInMemory
from warploom.relax.attention_operands import Placed, as_it_is, placed
from warploom.relax.attention_operator import OPERATOR, Options, bias_batch, written_out
from warploom.relax.visiting import bound, is_for_hopper, operator_name, visited
from warploom.target import SM90A
from warploom.tile import ir

#: Types of operands.
DTYPES = frozenset({"float16", "bfloat16"})
#: Attribute of the tile program of an attention: its computation, in words.
ATTENTION = "warploom.attention"
#: Attributes of it: the orders of dimensions of keys and of the result, as letters of batch, tokens
#: and heads, and the causal mask, or nothing.
ORDERS, MASK = "warploom.attention_orders", "warploom.attention_mask"
#: Types of a bias.
_BIAS_DTYPES = frozenset({*DTYPES, "float32"})
#: The operators that compute an attention; the tile program takes the first two.
_OPERATORS = ("relax.nn.attention", "relax.nn.attention_bias", "relax.nn.attention_var_len")
_TAKEN = (*_OPERATORS[:2], OPERATOR)


@dataclass(frozen=True)
class Attention:
    """An attention of a model whose tile is to be decided.

    Attributes
    ----------
    problem : AttentionProblem
        Sizes; the larger of two head dimensions.
    words : mapping from str to str
        All that programs of it may differ in, but the tile.
    sizes : mapping from str to int or None
        Queries, keys and the batch by the names of variables; None for those of the launch.
    make : callable
        ``make(tile=(queries, keys), stages=...)`` returns its program.
    """

    problem: AttentionProblem
    words: Mapping[str, str]
    sizes: Mapping[str, int | None]
    make: Callable[..., PrimFunc]


#: An attention -> a config that was measured; None leaves it to the model.
Measured = Callable[[Attention], "Config | None"]


def CallAttention(measured: Measured = lambda _: None) -> tvm.transform.Pass:
    """A pass that calls a tile program for each attention that one can compute.

    Those of 16-bit operands, with any numbers of queries and keys, known or not, causal or not,
    with or without a bias, and with heads of up to 256 elements, a multiple of 8. Operands that
    are transposed, parts of a tensor with all of q, k and v, or repeated for several heads, are
    read where they are. The dimensions of the result are in the order of q's. Other functions stay
    as they are. To be run before ``LegalizeOps`` and
    :func:`warploom.relax.tile_programs.CallTilePrograms`.

    Parameters
    ----------
    measured : callable
        Decides tiles, where it knows more than the model of costs.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.CallAttention")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        if not is_for_hopper():
            return mod
        return visited(mod, _Caller(mod, measured))

    return run


@relax.expr_functor.mutator
class _Caller(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule, measured: Measured) -> None:
        super().__init__(mod)
        self.measured = measured
        #: Programs by all that they may differ in: layers of a model have the same attention.
        self.functions: dict[tuple[Any, ...], GlobalVar] = {}

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        name = operator_name(call)
        if name not in _TAKEN:
            return call
        program = attempted("attention", lambda: self._program(call))
        if program is None and name == OPERATOR:  # TVM does not know it
            return written_out(call, self.builder_.emit)
        return call if program is None else program

    def _program(self, call: relax.Call) -> relax.Expr:
        check_attention(call)
        operands = self._operands(call)
        result = HeadsInMemory(operands[0].heads.order)
        alike = _alike(call, operands)
        one = _attention(alike, (*(operand.heads for operand in operands), result))
        key = (*operands_of(call.args), *sorted(one.words.items()))
        if key not in self.functions:
            program = self._made(one, call, alike, operands, result)
            self.functions[key] = self.builder_.add_func(program, "attention")
        tensors = [self._in_memory(operand) for operand in operands]
        batch, tokens, heads, elements = call.ty.shape.values
        made = relax.call_tir(
            self.functions[key], relax.Tuple([*tensors, *call.args[3:]]),
            relax.TensorType(result.shape(batch, tokens, heads, elements), call.ty.dtype),
        )  # fmt: skip
        if result.order == TOKENS_FIRST.order:
            return made
        return relax.op.permute_dims(self.builder_.emit(made), _to_tokens_first(result))

    def _made(
        self, one: Attention, call: relax.Call, alike: relax.Call, operands: Sequence[Placed],
        result: HeadsInMemory,
    ) -> PrimFunc:  # fmt: skip
        """The program of an attention, with what the rest of the package asks about it."""
        config = self.measured(one)
        given = {} if config is None else as_arguments(config)
        program = one.make(**given).with_attr(
            ATTENTION, _in_words(alike, config or choose(one.problem))
        )
        program = program.with_attr(ORDERS, f"{operands[1].heads.order} {result.order}")
        program = program.with_attr(MASK, Options.of(call).causal)
        if not _has_legalisation(alike):
            return program
        return with_original(program, _of_tvm(call, operands, result))

    def _operands(self, call: relax.Call) -> list[Placed]:
        """Where q, k and v lie."""
        found = [placed(lambda expr: bound(self, expr), arg) for arg in call.args[:3]]
        q, k, v = found
        shared = q.shape[2] == _shape(call.args[0])[2] and k.shape[2] == v.shape[2]
        return found if shared else [as_it_is(arg) for arg in call.args[:3]]

    def _in_memory(self, operand: Placed) -> relax.Expr:
        """A tensor with the shape that the kernel reads."""
        if tvm_ffi.structural_equal(_shape(operand.tensor), list(operand.in_memory)):
            return operand.tensor
        return self.builder_.emit(relax.op.reshape(operand.tensor, operand.in_memory))


def _to_tokens_first(heads: HeadsInMemory) -> list[int]:
    return [*(heads.order.index(letter) for letter in TOKENS_FIRST.order), 3]


def _alike(call: relax.Call, operands: Sequence[Placed]) -> relax.Call:
    """An attention with as many heads of keys and values as there are in memory."""
    tensors = [
        relax.Var(name, relax.TensorType(operand.shape, arg.ty.dtype))
        for name, operand, arg in zip("qkv", operands, call.args, strict=False)
    ]
    return relax.Call(call.op, [*tensors, *call.args[3:]], call.attrs, call.ty_args)


def as_arguments(config: Config) -> dict[str, Any]:
    """A config as the arguments of :func:`warploom.programs.attention.attention`."""
    return {"tile": (config.tile_m, config.tile_n), "stages": config.stages}


def _attention(call: relax.Call, places: tuple[HeadsInMemory, ...]) -> Attention:
    q, k, v = map(_shape, call.args[:3])
    tokens, keys, batch = (one if isinstance(one, int) else None for one in (q[1], k[1], q[0]))
    options = Options.of(call)
    problem = AttentionProblem(
        tokens, max(q[3], v[3]), q[2], k[2], batch or 1, bool(options.causal), SM90A.name, keys,
        options.soft_cap is not None,
    )  # fmt: skip
    words = {f"operand {n}": text for n, text in enumerate(operands_of(call.args))}
    scale, cap = ("" if one is None else str(one) for one in (options.scale, options.soft_cap))
    words |= {"causal": options.causal, "scale": scale, "soft cap": cap}
    words |= {"places": str([astuple(place) for place in places])}
    sizes = {"tokens": tokens, "keys": keys, "batch": batch}
    return Attention(problem, words, sizes, partial(_tile_program, call, places))


def _tile_program(
    call: relax.Call, places: tuple[HeadsInMemory, ...], **chosen: Any
) -> PrimFunc:
    q, k, v = map(_shape, call.args[:3])
    one_size = tvm_ffi.structural_equal(q[1], k[1])
    options = Options.of(call)
    bias = call.args[3] if len(call.args) > 3 else None
    return attention(
        _rows(q[1], "tokens"),
        q[3],
        q[2],
        k[2],
        q[0] if isinstance(q[0], int) else Var("batch", "int32"),
        options.causal or False,
        str(call.args[0].ty.dtype),
        scale=options.scale,
        operands=places,
        keys=None if one_size else _rows(k[1], "keys"),
        value_dim=v[3],
        bias=None if bias is None else _letters(_shape(bias)),
        bias_dtype=None if bias is None else str(bias.ty.dtype),
        soft_cap=options.soft_cap,
        bias_batch=None if bias is None else bias_batch(call.args[0], bias),
        **chosen,
    )


def _rows(count: Any, name: str) -> int | Var:
    return count if isinstance(count, int) else Var(name, "int32")


def _letters(shape: list[Any]) -> str:
    """Dimensions of a bias that are not broadcast, as ``attention(bias=)`` names them."""
    return "".join(
        letter
        for letter, extent in zip("bhq", shape, strict=False)
        if not (isinstance(extent, int) and extent == 1)
    )


def _has_legalisation(call: relax.Call) -> bool:
    """Whether TVM can compute an attention itself."""
    shares = _shape(call.args[0])[2] != _shape(call.args[1])[2]
    return not shares and len({str(operand.ty.dtype) for operand in call.args}) == 1


def _of_tvm(call: relax.Call, operands: Sequence[Placed], result: HeadsInMemory) -> PrimFunc:
    """The function that TVM makes of an attention, with the transposes around it."""
    builder = relax.BlockBuilder()
    types = [
        *(relax.TensorType(one.in_memory, one.tensor.ty.dtype) for one in operands),
        *(bias.ty for bias in call.args[3:]),
    ]
    params = [relax.Var(f"x{number}", ty) for number, ty in enumerate(types)]
    with builder.function("attention", params, attrs={"Primitive": True}, private=True):
        with builder.dataflow():
            tensors = [
                operand.as_model_has_it(param, builder.emit)
                for operand, param in zip(operands, params, strict=False)
            ]
            tensors += params[len(operands) :]
            made = relax.Call(call.op, tensors, call.attrs, call.ty_args)
            if operator_name(call) == OPERATOR:
                made = written_out(builder.normalize(made), builder.emit)
            found = builder.emit(made)
            if result.order != TOKENS_FIRST.order:
                order = [TOKENS_FIRST.order.index(letter) for letter in result.order]
                found = builder.emit(relax.op.permute_dims(found, [*order, 3]))
            found = builder.emit_output(found)
        fused = builder.emit_func_output(found)
    params = [relax.Var(f"y{number}", ty) for number, ty in enumerate(types)]
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(relax.Call(fused, params)))
    passes = [relax.transform.LegalizeOps(), relax.transform.FuseTIR()]
    made = tvm.transform.Sequential(passes)(builder.get())
    return next(func for func in made.functions.values() if isinstance(func, PrimFunc))


def _in_words(call: relax.Call, config: Config) -> str:
    q, k, v = map(_shape, call.args[:3])
    options = Options.of(call)
    mask = "causal attention" if options.causal else "attention"
    of_keys = "" if tvm_ffi.structural_equal(q[1], k[1]) else f" to {k[1]} keys"
    elements = q[3] if q[3] == v[3] else f"{q[3]} and {v[3]}"
    bias = ", with a bias" if len(call.args) > 3 else ""
    cap = "" if options.soft_cap is None else f", logits up to {options.soft_cap:g}"
    return (
        f"{mask} of {q[0]} x {q[1]} tokens{of_keys}, {q[2]} heads of {elements} ({k[2]} of keys), "
        f"{call.args[0].ty.dtype}{bias}{cap}\n  tile {config.tile_m} queries x {config.tile_n} keys"
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
        if operator_name(expr) in _OPERATORS:
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
    options = Options.of(call)
    if options.windowed:
        raise Decline("the attention has a sliding window; the tile program knows causal masks.")
    if any(getattr(arg.ty.shape, "values", None) is None for arg in call.args):
        raise Decline("shapes of the attention are not known.")
    dtypes = {str(arg.ty.dtype) for arg in call.args[:3]}
    if len(dtypes) > 1 or not dtypes <= DTYPES:
        raise Decline(
            f"operands of the attention are {', '.join(sorted(dtypes))}; all must be "
            f"{' or '.join(sorted(DTYPES))}."
        )
    q, k, v = map(_shape, call.args[:3])
    for name, shape in zip("qkv", (q, k, v), strict=True):
        sizes = {"heads": shape[2], "head dimension": shape[3]}
        for dimension, extent in sizes.items():
            if not isinstance(extent, int):
                raise Decline(
                    f"{dimension} of {name} is {extent}; only the batch and the numbers of tokens "
                    "may be dynamic, in shapes [batch, tokens, heads, head dimension]."
                )
    try:
        check_heads(q[3], v[3], q[2], k[2])
    except IllegalCombination as error:
        raise Decline(str(error)) from None
    same_keys = tvm_ffi.structural_equal(k[1], v[1])
    if not same_keys or q[3] != k[3] or k[2] != v[2]:
        raise Decline(
            f"q, k and v are {q}, {k} and {v}; k and v must have the same tokens and heads, q and "
            "k the same elements of a head."
        )
    if not all(tvm_ffi.structural_equal(one[0], q[0]) for one in (k, v)):
        raise Decline(f"batches of q, k and v are {q[0]}, {k[0]} and {v[0]}; make them equal.")
    if len(call.args) > 3:
        _check_bias(call.args[3], q, k, operator_name(call) == OPERATOR)


def _check_bias(bias: relax.Expr, q: list[Any], k: list[Any], by_turns: bool) -> None:
    shape = _shape(bias)
    known = len(shape) == 4 and isinstance(q[0], int) and isinstance(shape[0], int)
    if by_turns and known and q[0] % shape[0] == 0:
        shape[0] = 1  # as one that is broadcast
    whole = [q[0], q[2], q[1]]
    broadcast = (
        (isinstance(extent, int) and extent == 1) or tvm_ffi.structural_equal(extent, size)
        for extent, size in zip(shape, whole, strict=False)
    )
    if len(shape) != 4 or not all(broadcast) or not tvm_ffi.structural_equal(shape[3], k[1]):
        raise Decline(
            f"the bias is {shape}; it must be {[*whole, k[1]]}, or 1 in the place of any but the "
            "last of these."
        )
    if str(bias.ty.dtype) not in _BIAS_DTYPES:
        allowed = ", ".join(sorted(_BIAS_DTYPES))
        raise Decline(f"the bias is {bias.ty.dtype}; it must be one of {allowed}.")


def _shape(tensor: relax.Expr) -> list[Any]:
    """Sizes of a tensor, those that are known as Python's integers."""
    return [
        int(extent) if isinstance(extent, IntImm) else extent for extent in tensor.ty.shape.values
    ]
