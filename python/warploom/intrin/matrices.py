"""``ldmatrix`` and ``stmatrix`` of four matrices of 8 x 16 bytes, and exchanges within four lanes.

Sources: PTX ISA, "ldmatrix", "stmatrix", "shfl.sync".
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T


def load_transposed(words: list[Any], address: Any) -> Any:
    """A statement's expression: four matrices of pairs of bytes, each transposed, into words.

    Parameters
    ----------
    words : list of Expr
        Four registers: register j of lane ``4 g + t`` has rows 2 t and 2 t + 1 of column g of
        matrix j.
    address : Expr
        In lane ``8 j + r``, that of row r of matrix j in shared memory, a multiple of 16.
    """
    source = (
        "__forceinline__ __device__ void warploom_ldmatrix_trans(unsigned int& a, unsigned int& b, "
        "unsigned int& c, unsigned int& d, const void* from) { "
        "unsigned int at = (unsigned int)__cvta_generic_to_shared(from); "
        'asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" '
        ': "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(at) : "memory"); }'
    )
    return T.cuda.func_call("warploom_ldmatrix_trans", *words, address, source_code=source)


def store_matrices(address: Any, words: list[Any], transposed: bool = False) -> Any:
    """A statement's expression: four words of each lane, as four matrices of eight rows.

    Parameters
    ----------
    address : Expr
        In lane ``8 j + r``, that of row r of matrix j in shared memory, a multiple of 16.
    words : list of Expr
        Four: word j of lane ``4 g + t`` are bytes 4 t to 4 t + 3 of row g of matrix j.
    transposed : bool
        Whether these are elements of 16 bits 2 t and 2 t + 1 of column g instead.
    """
    name = "warploom_stmatrix_trans" if transposed else "warploom_stmatrix"
    form = "trans.shared" if transposed else "shared"
    source = (
        f"__forceinline__ __device__ void {name}(void* to, unsigned int a, "
        "unsigned int b, unsigned int c, unsigned int d) { "
        "unsigned int at = (unsigned int)__cvta_generic_to_shared(to); "
        f'asm volatile("stmatrix.sync.aligned.m8n8.x4.{form}.b16 [%0], {{%1, %2, %3, %4}};" '
        ':: "r"(at), "r"(a), "r"(b), "r"(c), "r"(d) : "memory"); }'
    )
    return T.cuda.func_call(name, address, *words, source_code=source)


def from_lane(word: Any, lane: Any) -> Any:
    """The word that another lane of the warp gives; all lanes take part."""
    source = (
        "__forceinline__ __device__ unsigned int warploom_from_lane(unsigned int v, int lane) { "
        "return __shfl_sync(0xffffffffu, v, lane); }"
    )
    return T.cuda.func_call(
        "warploom_from_lane", word, lane, source_code=source, return_type="uint32"
    )
