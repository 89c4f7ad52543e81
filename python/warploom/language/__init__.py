"""The language of tile programs: plain TIRx that one CTA executes as if one statement at a time.

A tile program is an ordinary TIRx ``PrimFunc``. It describes the computation, tile by tile, and
nothing of how: no thread, no barrier, no phase. Where the author knows better, he may write
barriers himself, in part of the program or, with threads too, in all of it (last section).

.. code-block:: python

    from tvm.script import tirx as T
    from tvm.script.tirx import tile as Tx
    from warploom import language as wl

    @T.prim_func
    def matmul(A: T.Buffer((M, K), "float16"), B: T.Buffer((N, K), "float16"),
               C: T.Buffer((M, N), "float16")):
        T.device_entry()
        bm, bn = T.cta_id([M // BM, N // BN])
        A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
        B_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
        acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
        out = T.alloc_buffer((BM, BN), "float16", scope="fragment")
        for k in wl.pipelined(K // BK):
            Tx.cta.copy_async(A_s[:, :], A[bm * BM : bm * BM + BM, k * BK : k * BK + BK])
            Tx.cta.copy_async(B_s[:, :], B[bn * BN : bn * BN + BN, k * BK : k * BK + BK])
            Tx.cta.gemm_async(acc[:, :], A_s[:, :], B_s[:, :], accum=k > 0)
        Tx.cta.cast(out[:, :], acc[:, :])
        Tx.cta.copy(C[bm * BM : bm * BM + BM, bn * BN : bn * BN + BN], out[:, :])

Buffers
-------
Parameters are in global memory; their extents may be variables. ``T.alloc_buffer`` makes a tile of
the CTA, whose contents are undefined until written: a tile that is read before is refused, and so
is a ``gemm_async`` whose result no statement reads.

``shared``
    Any rank, any dtype; operands of GEMMs, and data that several threads need at any index.
``accumulator``
    Two dimensions, float32, float16 or int32: the result of ``gemm_async``.
``fragment``
    Any rank: values that are worked on element by element. Those of more than two dimensions are
    reduced over their last dimension, all but their last, or all.

``tmem``
    An accumulator that must lie in tensor memory, which Blackwell has; the passes choose columns.
``mbarrier``
    ``uint64``: barriers that the author operates (:mod:`warploom.language.mbarrier`).

``x: T.int32 = ...`` declares a scalar, equal in all threads. Layouts are hints to the passes. Give
a single value the shape ``(1, 1)``, or pass a number: TVM prints an element of a buffer of shape
``(1,)`` as the name of the buffer, and cannot parse that.

Statements
----------
``Tx.cta.copy_async(dst, src)`` and ``Tx.cta.copy(dst, src)``
    One dtype, and equal extents apart from those of 1. With ``dispatch="tma_auto"``, which keeps
    TVM from comparing them, one region may be a matrix, and the other have its rows in several
    dimensions, such as the pixels of a rectangle. A region of a global buffer may reach over
    its edges: elements outside are read as 0, and not written. With ``steps=(...)``, one for each
    dimension of a global source, a load takes every few elements: extents count those taken. What
    ``cache_hint=`` says of a load, such as ``"evict_first"``, is TVM's, for the L2 cache.
``Tx.cta.gemm_async(acc, A, B, transA=, transB=, accum=)``
    ``acc = A Bᵀ``, or ``acc += A Bᵀ`` where ``accum`` is true. A is ``[M, K]`` in shared memory or
    a fragment, B is ``[N, K]`` in shared memory; transA and transB swap their two dimensions. With
    ``sparse=E``, A is ``[M, K / 2]`` in shared memory, and E, uint8 ``[M, K / 8]`` there, says
    which two of each four elements of K it holds (:mod:`warploom.sparse`); or uint32, in the order
    of Blackwell's tensor core (:mod:`warploom.layout.metadata_words`). With ``SFA=`` and
    ``SFB=``, shared tiles, each block of elements along K has a scale: operands are mxfp8, mxfp4
    or nvfp4, by their dtypes (:mod:`warploom.target.scaled_formats`).
``Tx.cta.fill zero memset cast add sub mul fdiv fma maximum minimum select``
    Elementwise, into a tile; operands are broadcast as NumPy does.
``Tx.cta.sqrt exp exp2 log2 reciprocal silu``
    Elementwise functions, into a tile.
``Tx.cta.sum max min``, ``argmax argmin``, ``cumsum cumprod cummax cummin``, ``sort``
    Reductions over ``axes=``, and what goes along an ``axis`` (:mod:`warploom.tile_primitives`).
``Tx.cta.gather(tile, A[0:M, k : k + BK], lambda r: index[r])``, ``scatter(C[...], tile, ...)``
    Rows of global memory that have an index each are loaded into a tile, or stored from one: with
    a function for each dimension of the tensor before the last. A row outside of the tensor reads
    as 0, and is not stored. Rows that are stored differ (:mod:`warploom.tile_primitives`).
``Tx.cta.atomic_add atomic_max atomic_min(C[region], tile)``
    Global memory is updated with a tile. Several CTAs may update one element.
``for i, j in T.grid(BM, BN): out[i, j] = ...``
    An element-wise nest: loops of any kind around ``T.let`` bindings, stores of single elements
    into tiles or global memory, and ``if`` around those, alone. Its loops count a rectangle, whose
    size is a constant in a kernel. Iterations are independent: no two store one element, and none
    reads an element that another stores; a loop around it whose variable is no index of what is
    stored repeats the nest. The condition of an ``if`` may depend on loop variables,
    scalars and global memory; a choice by elements of tiles is a value, ``T.if_then_else``. What
    no iteration stores keeps its value.

    Any expression is an index. A tile has no elements outside, and an index that leaves it is
    refused. Global buffers read as 0 outside, and stores there are dropped.

    An index may be read from memory: ``y[i, j] = x[index[i], j]`` gathers,
    ``y[index[i], j] = x[i, j]`` scatters. Outside of a buffer, of a tile too, such a read gives 0
    and such a store is dropped. A scatter is one to one: the interpreter refuses an index that two
    iterations have; a kernel, which cannot see it, leaves there what one of them stores, whichever
    it is. What a nest scatters into, it does not read.
    ``wl.atomic_add(H[index[i]], x)`` (:func:`atomic_add`) updates an element, which several
    iterations may do.
``for k in wl.pipelined(extent, stages=...)``, ``T.serial``, ``if``, ``while``
    Control that is the same for all threads of a CTA.
``wl.print("k {}: {:.3f}", k, acc[0, 0])``
    Prints a line for each CTA and each time that it comes here (:func:`print`). Values are scalars
    and elements of any tile or buffer; outside of global memory they are 0.
``wl.device_assert(k > 0, "k is {}", k)``
    Ends the kernel where the condition does not hold (:func:`device_assert`).
``wl.exit_if(b * BM >= length[s])``
    Ends the CTA, at the top level of the kernel (:func:`exit_if`).
``wl.rand(seed, i * BN + j)``, ``randn``, ``randint``
    Random numbers as functions of a seed and an offset (:mod:`warploom.language.random`).

``wl.mbarrier.init arrive expect wait``, and ``mbar=wl.mbarrier.address(b, stage)`` of a load
    The author synchronises this load himself: nothing is added to it. Copies with ``mbar=`` and
    ``expect`` are of the thread that loads, and so is what ``with wl.loading():`` contains; all
    computing threads wait, and one arrives when all have come there. ``init`` stands outside of
    loops and branches. One after the other, copies are complete at once, and a wait that is not
    over then never is. The grid is not persistent.

Statements before ``T.device_entry()`` are of the host: ``T.let`` values, ``assert``, other shapes
of parameters (``T.decl_buffer``) and workspaces. ``with wl.kernel():`` stands in its place where a
function has several kernels (:func:`kernel`).

Short forms
-----------
:func:`tile`, :func:`load`, :func:`store`, :func:`gemm`, :func:`cast`, :func:`alloc_accumulator` and
:func:`alloc_fragment` write these statements with fewer words, :class:`OnlineSoftmax` those of
attention (:mod:`warploom.language.tiles`, :mod:`warploom.language.online_softmax`).

Orchestrated by hand
--------------------
A kernel that defines ids of threads (``T.warpgroup_id`` and so on) is no sequential program: what
it says, each thread executes. The passes resolve its scopes and do no more: ``mbarrier`` and
``shared`` buffers get a place in shared memory, ``accumulator`` and ``fragment`` are tiles of one
warpgroup, ``wgmma.descriptor`` buffers are registers for what :func:`descriptor` computes, and
``tmem`` is allocated, and freed at the end. A layout that is written stays, others follow from
use. :class:`WgmmaEmitter` issues the matmuls of Hopper, all at once or one by one with work of
one's own between them. TVM's ``TMABar(wl.mbarrier.Pool(), stages)`` and ``T.SMEMPool`` may be used
beside them. :func:`alloc_barrier` makes mbarriers with a count each, ready for use.

Single instructions beyond ``T.ptx`` and ``T.cuda`` (bulk copies, waits, shuffles, wide loads and
more) are ``wl.<name>``, or ``T.warploom.<name>``: :mod:`warploom.language.builtins`.

:func:`interpret` executes a tile program on the CPU, and defines its meaning. It and
``tvm.compile`` first check the same rules (:mod:`warploom.language.rules`), and refuse a program
that breaks one with the same sentence and the author's line, a
:class:`~warploom.errors.TileProgramError`. Rules that take the data, such as that of a scatter,
which is one to one, the interpreter checks as it runs.

:func:`jit` makes a function of a program, to be called with tensors; :func:`autotune` chooses tile
sizes and hints of a factory by measurements, among those of :func:`space`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from warploom.language import builtins, mbarrier
from warploom.language.atomics import atomic_add, atomic_max, atomic_min
from warploom.language.builtins import *  # noqa: F403  (the names are in its __all__)
from warploom.language.descriptor import descriptor
from warploom.language.exits import exit_if
from warploom.language.kernel_entry import kernel
from warploom.language.mbarrier import alloc_barrier, loading
from warploom.language.pipelined import pipelined
from warploom.language.printing import device_assert, print
from warploom.language.random import rand, randint, randn
from warploom.language.span import span
from warploom.messages import advice
from warploom.tile.hint_attributes import read_hints
from warploom.tile.hints import Hints, hints

if TYPE_CHECKING:  # __getattr__ below imports these when they are first used
    from warploom.intrin.wgmma_emitter import WgmmaEmitter
    from warploom.language.calls.arguments import TensorSpec
    from warploom.language.calls.kernel import jit
    from warploom.language.interpreter import interpret
    from warploom.language.online_softmax import OnlineSoftmax
    from warploom.language.tiles import (
        alloc_accumulator,
        alloc_fragment,
        cast,
        gemm,
        load,
        store,
        tile,
    )
    from warploom.language.tuning.decorator import autotune
    from warploom.language.tuning.space import space

__all__ = [
    *builtins.__all__,
    "Hints",
    "OnlineSoftmax",
    "TensorSpec",
    "WgmmaEmitter",
    "alloc_accumulator",
    "alloc_barrier",
    "alloc_fragment",
    "atomic_add",
    "atomic_max",
    "atomic_min",
    "autotune",
    "builtins",
    "cast",
    "descriptor",
    "device_assert",
    "exit_if",
    "gemm",
    "hints",
    "interpret",
    "jit",
    "kernel",
    "load",
    "loading",
    "mbarrier",
    "pipelined",
    "print",
    "rand",
    "randint",
    "randn",
    "read_hints",
    "space",
    "span",
    "store",
    "tile",
]


#: Names that ``import tvm`` does not need when it loads the plugin: name -> module.
_LATER = {
    "OnlineSoftmax": "warploom.language.online_softmax",
    "TensorSpec": "warploom.language.calls.arguments",
    "WgmmaEmitter": "warploom.intrin.wgmma_emitter",
    "autotune": "warploom.language.tuning.decorator",
    "interpret": "warploom.language.interpreter",
    "jit": "warploom.language.calls.kernel",
    "space": "warploom.language.tuning.space",
} | dict.fromkeys(
    ("alloc_accumulator", "alloc_fragment", "cast", "gemm", "load", "store", "tile"),
    "warploom.language.tiles",
)


advice.SCRIPT_MODULES.insert(0, __name__)  # whose names its fixes know first


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)
