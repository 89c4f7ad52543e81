"""Buffers as words of the size that a thread moves at a time."""

from __future__ import annotations

from functools import reduce

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt

from warploom.errors import Decline
from warploom.gemm.equations import simplify
from warploom.rows.plan import VECTOR_BITS
from warploom.target.dtypes import bits_of

#: Types of words that are loaded at a time, by their bits; words of one element have its type.
_WORDS = {128: "uint32x4", 64: "uint32x2", 32: "uint32", 16: "uint16"}


def words_of(buffer: Buffer, vector: int) -> Buffer:
    """A view of a buffer whose elements are words, for vectors of so many elements.

    Raises
    ------
    Decline
        If elements share bytes.
    """
    dtype = str(buffer.dtype)
    bits = bits_of(dtype)
    if bits < 8:
        raise Decline(f"{buffer.name} has elements of {bits} bits, which share bytes.")
    word = min(vector * bits, VECTOR_BITS)
    size = reduce(lambda x, y: x * y, buffer.shape, 1)
    count = simplify(T.truncdiv(size, word // bits))
    kind = dtype if word == bits else _WORDS[word]
    return tirx.decl_buffer((count,), kind, f"{buffer.name}_words", scope=buffer.scope())


def declared(view: Buffer, buffer: Buffer) -> Stmt:
    """The statement that makes a view one of a buffer."""
    return tirx.DeclBuffer(view, data=buffer.data)
