"""Parameters seen with neighbouring dimensions as one: a reshape of the argument, which is free.

The weights ``[experts, n, k]`` of a matmul with the columns of all experts are a matrix
``[experts * n, k]``, whatever a model has reshaped and transposed on the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorRegion
from tvm.ir.expr import TensorLoad
from tvm.tirx import Buffer, BufferStore, PrimFunc

from warploom.errors import Decline
from warploom.tile import ir


def views_of(func: PrimFunc, position: int) -> Iterator[tuple[PrimFunc, list[Any]]]:
    """The function with one parameter of fewer dimensions, and the shape of that.

    First those with one dimension less, then two, and so on, down to two dimensions.

    Parameters
    ----------
    func : PrimFunc
    position : int
        Of a parameter that the function only reads.
    """
    waiting = [func]
    while waiting:
        one = waiting.pop(0)
        count = len(one.params[position].shape)
        for first in range(count - 1 if count > 2 else 0):
            made = _merged(one, position, first)
            yield made, list(made.params[position].shape)
            waiting.append(made)


def _merged(func: PrimFunc, position: int, first: int) -> PrimFunc:
    """The function whose parameter has the dimensions ``first`` and ``first + 1`` as one."""
    old = func.params[position]
    inner = old.shape[first + 1]
    shape = [*old.shape[:first], old.shape[first] * inner, *old.shape[first + 2 :]]
    new = tirx.decl_buffer(shape, str(old.dtype), old.name, layout=None)

    def place(indices: Any) -> tuple[Any, ...]:
        both = indices[first] * inner + indices[first + 1]
        return (*indices[:first], both, *indices[first + 2 :])

    def load(node: TensorLoad) -> Any:
        return new[place(node.indices)] if node.source.same_as(old) else node

    def region(node: TensorRegion) -> Any:
        return ir.whole(new) if node.source.same_as(old) else node

    _check_read_only(func, old)
    body = ir.map_nodes(func.body, {TensorLoad: load, TensorRegion: region}, {})
    params = [*func.params[:position], new, *func.params[position + 1 :]]
    return PrimFunc(params, body, func.ret_type, func.attrs)


def _check_read_only(func: PrimFunc, param: Buffer) -> None:
    def store(node: BufferStore) -> None:
        if node.buffer.same_as(param):
            raise Decline(f"{param.name} is written; only what is read can be seen otherwise.")

    tvm_ffi.structural_walk(func.body, (BufferStore, store))
