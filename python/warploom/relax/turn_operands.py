"""The tensor between two functions changes the order of its dimensions.

A weight that is converted and transposed on its way to a matmul is one function in TVM, whose
result ``[K, N]`` no TMA loads where N is no whole number of 16 bytes, and which is written across
the rows of the weight. No other function sees that tensor: it may as well be ``[N, K]``, and the
conversion that of one row after the other. A weight that is a constant of the model, which TVM has
transposed while it folded constants, is transposed back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.ir import TensorRegion
from tvm.ir.expr import TensorLoad
from tvm.tirx import BufferStore, PrimFunc

from warploom.errors import Decline, IllegalCombination
from warploom.gemm.memory import operand_faults
from warploom.gemm.recognition import read_product
from warploom.rows.choose import arranged
from warploom.rows.problem import read_rows
from warploom.tile import ir


def turned(
    producer: PrimFunc, func: PrimFunc, position: int
) -> tuple[PrimFunc, PrimFunc, list[int]] | None:
    """Both functions with the tensor between them along K, and the order of its dimensions.

    None if that makes no operand loadable that was not, and no vectors of what the producer reads.

    Parameters
    ----------
    producer : PrimFunc
        Its last parameter is the tensor.
    func : PrimFunc
        A matmul.
    position : int
        Of the tensor among the parameters of ``func``.

    Raises
    ------
    Decline
        If ``func`` is no matmul.
    """
    found = _along_k(func, position)
    if found is None:
        return None
    changed, order, mends = found
    made = _permuted(producer, len(producer.params) - 1, order)
    if not mends and (_is_along_rows(producer) or not _is_along_rows(made)):
        return None
    return made, changed, order


def turned_constant(func: PrimFunc, position: int) -> tuple[PrimFunc, list[int]] | None:
    """A matmul whose parameter lies along K, and the order of the dimensions of that constant.

    None if that makes no operand loadable that was not. Parameters are those of :func:`turned`.

    Raises
    ------
    Decline
        If ``func`` is no matmul.
    """
    found = _along_k(func, position)
    return None if found is None or not found[2] else found[:2]


def _along_k(func: PrimFunc, position: int) -> tuple[PrimFunc, list[int], bool] | None:
    """A matmul with a parameter along K, the order of its dimensions, and whether that mends it."""
    gemm = read_product(func)
    param = gemm.func.params[position]  # its indices have 32 bits, those of `func` 64
    inner = gemm.summed[-1].var
    faulty = [operand for operand, _ in operand_faults(gemm)]
    operands = [operand for product in gemm.products for operand in (product.a, product.b)]
    own = [operand.load for operand in operands if operand.load is not None]
    loads = [load for load in own if gemm.param_of(load.source).same_as(param)]
    if not loads or len(loads[0].indices) != len(param.shape):
        return None
    mends = any(load.same_as(operand.load) for operand in faulty for load in loads)
    along = [d for d, index in enumerate(loads[0].indices) if index.same_as(inner)]
    if not along or along[0] == len(param.shape) - 1:
        return None
    order = [d for d in range(len(param.shape)) if d != along[0]] + along
    changed = _permuted(func, position, order)
    faults = sum(1 for _ in operand_faults(read_product(changed)))
    if faults > len(faulty) - mends:
        return None
    return changed, order, mends


def _is_along_rows(producer: PrimFunc) -> bool:
    """Whether a function reads and stores its rows in vectors."""
    try:
        _, plan = arranged(read_rows(producer))
    except (Decline, IllegalCombination):
        return False
    return not plan.across


def _permuted(func: PrimFunc, position: int, order: Sequence[int]) -> PrimFunc:
    """A function one of whose parameters has its dimensions in another order."""
    old = func.params[position]
    new = tirx.decl_buffer(
        [old.shape[d] for d in order], str(old.dtype), old.name, scope=old.scope(), layout=None
    )

    def moved(parts: Any) -> list[Any]:
        return [parts[d] for d in order]

    def load(node: TensorLoad) -> Any:
        return new[tuple(moved(node.indices))] if node.source.same_as(old) else node

    def store(node: BufferStore) -> Any:
        mine = node.buffer.same_as(old)
        return BufferStore(new, node.value, moved(node.indices)) if mine else node

    def region(node: TensorRegion) -> Any:
        return ir.region(new, *moved(ir.ranges(node))) if node.source.same_as(old) else node

    callbacks = {TensorLoad: load, BufferStore: store, TensorRegion: region}
    body = ir.map_nodes(func.body, callbacks, {})
    params = [*func.params[:position], new, *func.params[position + 1 :]]
    return PrimFunc(params, body, func.ret_type, func.attrs)
