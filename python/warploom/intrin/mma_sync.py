"""Warps that multiply with ``mma.sync``, and load what they read once from global memory.

Sources: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type", "Cache Eviction
Priority Hints", ``createpolicy``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm.script import tirx as T

#: Rows, columns and depth of the MMA.
MMA_M, MMA_N, MMA_K = 16, 8, 16
#: Lanes that have neighbouring K of the same row, and sums of a lane.
QUAD, MMA_SUMS = 4, 4
#: Dtype -> its name in PTX.
_PTX = {"float16": "f16", "bfloat16": "bf16"}
#: Bytes -> the kind of a load.
_LOADS = {1: "u8", 2: "b16", 4: "b32", 8: "v2.b32", 16: "v4.b32"}


def multiply(dtype: str, sums: Sequence[Any], rows: Sequence[Any], columns: Sequence[Any]) -> Any:
    """``mma.sync.m16n8k16``, added to float32 sums; all lanes of a warp.

    Of lane ``4 g + t``, with K in any order that both operands have:

    Parameters
    ----------
    dtype : str
        Of both operands: ``"float16"`` or ``"bfloat16"``.
    sums : sequence of 4 registers
        Row g, columns 2 t and 2 t + 1; then row g + 8.
    rows : sequence of 4 words
        Two numbers of row g, two of row g + 8, two more of row g and of row g + 8.
    columns : sequence of 2 words
        The numbers of column g that belong to the first two words, and to the last two.
    """
    kind = _PTX[dtype]
    name = f"warploom_mma_m16n8k16_{kind}"
    d = [f"float& d{i}" for i in range(MMA_SUMS)]
    a = [f"unsigned int a{i}" for i in range(4)]
    b = [f"unsigned int b{i}" for i in range(2)]
    outputs = ", ".join(f'"+f"(d{i})' for i in range(MMA_SUMS))
    inputs = ", ".join(f'"r"({word.split()[-1]})' for word in (*a, *b))
    source = (
        f"__forceinline__ __device__ void {name}({', '.join([*d, *a, *b])}) "
        f'{{ asm("mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 {{%0, %1, %2, %3}}, '
        f'{{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};" : {outputs} : {inputs}); }}'
    )
    return T.cuda.func_call(name, *sums, *rows, *columns, source_code=source)


def load_ahead(words: Sequence[Any], address: Any, size: int, once: bool = False) -> Any:
    """``size`` bytes of global memory, aligned, into words: 1, 2, 4, 8 or 16 bytes.

    Such loads stay in the order in which they are written, so that many are on their way before
    the first is waited for.

    Parameters
    ----------
    words : sequence of registers
        uint32, as many as the bytes fill; the rest of the last one is zero.
    address : Expr
    size : int
    once : bool
        Whether nobody else reads them: the L1 cache does not keep them, the L2 cache drops them
        first.
    """
    count = max(1, size // 4)
    name = f"warploom_load_{'once' if once else 'ahead'}_{size}"
    parameters = ", ".join(f"unsigned int& w{i}" for i in range(count))
    places = ", ".join(f"%{i}" for i in range(count))
    places = f"{{{places}}}" if count > 1 else places
    results = ", ".join(f'"=r"(w{i})' for i in range(count))
    before = after = policy = hint = ""
    if size < 4:
        results, before, after = '"=h"(half)', "unsigned short half; ", " w0 = half;"
    if once:
        hint, policy = f", %{count + 1}", ', "l"(policy)'
        before += (
            'unsigned long long policy; asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" '
            ': "=l"(policy)); '
        )
    caches = ".L1::no_allocate.L2::cache_hint" if once else ""
    source = (
        f"__forceinline__ __device__ void {name}({parameters}, const void* from) {{ {before}"
        f'asm volatile("ld.global{caches}.{_LOADS[size]} {places}, [%{count}]{hint};" '
        f': {results} : "l"(from){policy});{after} }}'
    )
    return T.cuda.func_call(name, *words, address, source_code=source)
