"""Two parts of one attention become one, in place: a kernel by hand.

Each part is a mean of values, weighted by the softmax of its own keys, and the log2 of its
denominator (lse), as in :mod:`warploom.programs.merge_parts`.
"""

from __future__ import annotations

from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from warploom.errors import IllegalCombination
from warploom.kernels.kernel_name import named
from warploom.target.dtypes import bits_of, with_dtype_names
from warploom.tile.kinds import MARK

#: Threads of a CTA, about.
_THREADS = 256
#: Bits that a thread loads at a time, and words of 32 bits.
_BITS, _WORDS = 128, 4


@with_dtype_names
@named
def merge_states(head_dim: int, dtype: str = "float16") -> PrimFunc:
    """The attention to two sets of keys, from the attention to each of them.

    The signature is that of ``merge_state_inplace``, which TVM's ``TIRPagedKVCache`` calls
    (``tvm.relax.frontend.nn.llm._decode_kernels._merge_state_inplace``).

    Parameters
    ----------
    head_dim : int
        Elements of a head, a multiple of 16 bytes.
    dtype : str
        ``"float16"``, ``"bfloat16"`` or ``"float32"``.

    Returns
    -------
    PrimFunc
        ``(v, s, v_other, s_other)``: v and v_other are ``(tokens, heads, head_dim)``, s and s_other
        ``(tokens, heads)`` of float32. v and s are overwritten.

    Raises
    ------
    IllegalCombination
        If a head is no multiple of 16 bytes, or has more of them than a CTA has threads.

    Examples
    --------
    >>> merge_states(128).attrs["global_symbol"]
    'merge_states_headdim128'
    """
    if dtype not in ("float16", "bfloat16", "float32"):
        raise IllegalCombination(f"dtype is {dtype}; it must be float16, bfloat16 or float32.")
    vector = _BITS // bits_of(dtype)
    lanes = head_dim // vector
    if head_dim < 1 or head_dim % vector or lanes > _THREADS:
        raise IllegalCombination(
            f"head_dim is {head_dim}; a thread merges {vector} {dtype} at a time, and a CTA a head "
            f"of up to {_THREADS * vector}."
        )
    rows = _THREADS // lanes

    @T.prim_func
    def merge_state_inplace(v: T.handle, s: T.handle, w: T.handle, t: T.handle):
        tokens = T.int32()
        heads = T.int32()
        V = T.match_buffer(v, (tokens, heads, head_dim), dtype, align=16)
        S = T.match_buffer(s, (tokens, heads), "float32")
        Other = T.match_buffer(w, (tokens, heads, head_dim), dtype, align=16)
        OtherS = T.match_buffer(t, (tokens, heads), "float32")
        count: T.let[T.int32] = tokens * heads
        words: T.let[T.int32] = count * lanes
        Values = T.decl_buffer((words, _WORDS), "uint32", data=V.data)
        Sums = T.decl_buffer((count,), "float32", data=S.data)
        OtherValues = T.decl_buffer((words, _WORDS), "uint32", data=Other.data)
        OtherSums = T.decl_buffer((count,), "float32", data=OtherS.data)
        T.device_entry()
        cta = T.cta_id([T.max((count + (rows - 1)) // rows, 1)])
        thread = T.thread_id([rows * lanes])
        T.ptx.griddepcontrol.launch_dependents()
        T.ptx.griddepcontrol.wait()
        value = T.alloc_buffer((vector,), dtype, scope="local")
        other = T.alloc_buffer((vector,), dtype, scope="local")
        value_words = T.decl_buffer((_WORDS,), "uint32", data=value.data, scope="local")
        other_words = T.decl_buffer((_WORDS,), "uint32", data=other.data, scope="local")
        row: T.int32 = cta * rows + T.truncdiv(thread, lanes)
        at: T.int32 = cta * (rows * lanes) + thread
        here: T.float32 = T.float32(0)
        there: T.float32 = T.float32(0)
        if row < count:
            here = Sums[row]
            there = OtherSums[row]
            for i in T.vectorized(_WORDS):
                value_words[i] = Values[at, i]
            for i in T.vectorized(_WORDS):
                other_words[i] = OtherValues[at, i]
        # All threads of a head have read its lse before one of them overwrites it.
        T.cuda.cta_sync()
        if row < count:
            largest: T.float32 = T.max(here, there)
            weight: T.float32 = T.exp2(here - largest)
            weight_of_other: T.float32 = T.exp2(there - largest)
            total: T.float32 = weight + weight_of_other
            share: T.float32 = weight / total
            rest: T.float32 = weight_of_other / total
            for i in T.unroll(vector):
                value[i] = T.cast(
                    T.cast(value[i], "float32") * share + T.cast(other[i], "float32") * rest,
                    dtype,
                )
            for i in T.vectorized(_WORDS):
                Values[at, i] = value_words[i]
            if T.truncmod(thread, lanes) == 0:
                Sums[row] = largest + T.log2(total)

    return merge_state_inplace.with_attr(MARK, True)
