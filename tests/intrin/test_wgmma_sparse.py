"""``wl.WgmmaEmitter`` with a sparse A, in kernels by hand: one warpgroup, and several."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.intrin.wgmma_block_kernels import ROLLED
from tests.shared import reference
from tests.shared.sampling import either
from warploom import language as wl
from warploom.layout.smem_matrix import SharedMatrix
from warploom.sparse import compress, decompress, prune_2_4, sparsity
from warploom.target import WGMMA_SPARSE_KINDS, Major, cuda_target

F16 = ("float16", "float16", "float32")
#: Types, the matmul, options of the emitter.
CASES = [
    (F16, (128, 24, 96), {"block_row_warps": 8}),
    (("int8", "uint8", "int32"), (64, 48, 64), {}),
    (F16, (64, 16, 64), {"a_in_registers": True}),
    (("float8_e5m2", "float8_e4m3fn", "float16"), (64, 32, 256), {"reduce_k": 2}),
    (("float32", "float32", "float32"), (128, 16, 48), {"block_row_warps": 4}),
    (("bfloat16", "bfloat16", "float32"), (64, 64, 128), {"block_col_warps": 2, "negate_a": True}),
]


def emitter_of(types, shape, options) -> wl.WgmmaEmitter:
    a, b, d = types
    return wl.WgmmaEmitter.of(*shape, a, d, b_dtype=b, sparse=True, **options)


def kernel(types, shape, options):
    e = emitter_of(types, shape, options)
    m, n, k = shape
    count, depth = prod(e.warpgroups), e.warpgroups[2]
    a_tile = e.a or SharedMatrix.widest(types[0], Major.K, m, k // 2)
    per = sparsity(types[0]).metadata_columns(k)

    def fill(shared, source, thread):
        rows, columns = (int(one) for one in shared.shape)
        with T.serial(0, -(-rows * columns // (128 * count)), annotations=ROLLED) as i:
            at = i * (128 * count) + thread
            with T.If(at < rows * columns), T.Then():
                index = [T.truncdiv(at, columns), T.truncmod(at, columns)]
                T.buffer_store(shared, source[tuple(index)], index)

    def multiply(acc, a_s, b_s, e_s, held, warpgroup):
        mine = e.at(warpgroup) if count > 1 else e
        operands = (acc, held if e.a is None else a_s, b_s, False)
        (mine.rs if e.a is None else mine.ss)(*operands, wait=0, metadata=e_s)
        mine.fence_d(acc)

    def place(warpgroup):
        row, column = (e.at(warpgroup) if count > 1 else e).origin
        return row, column, T.truncdiv(warpgroup, count // depth) if depth > 1 else 0

    @T.prim_func
    def func(a: T.handle, metadata: T.handle, b: T.handle, d: T.handle):
        A = T.match_buffer(a, (m, k // 2), types[0], align=16)
        E = T.match_buffer(metadata, (m, per), "uint8", align=16)
        B = T.match_buffer(b, (n, k), types[1], align=16)
        D = T.match_buffer(d, (depth, m, n), types[2], align=16)
        T.device_entry()
        T.cta_id([1])
        warpgroup = T.warpgroup_id([count])
        inside = T.thread_id_in_wg([128])
        pool = T.SMEMPool()
        A_s = pool.alloc((m, k // 2), types[0], align=1024, layout=a_tile.layout())
        B_s = pool.alloc((n, k), types[1], align=1024, layout=e.b_shared_layout())
        E_s = pool.alloc((m, per), "uint8", align=16)
        pool.commit()
        thread = T.meta_var(warpgroup * 128 + inside)
        fill(A_s, A, thread)
        fill(B_s, B, thread)
        fill(E_s, E, thread)
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()
        acc = T.alloc_buffer((e.m, e.n), types[2], scope="local", layout=e.d_layout)
        here = T.meta_var(place(warpgroup))
        row, column, layer = T.meta_var(here[0]), T.meta_var(here[1]), T.meta_var(here[2])
        held = T.alloc_buffer((e.m, e.k // 2), types[0], scope="local", layout=e.a_layout)
        if e.a is None:
            Tx.wg.copy(held[:, :], A[0:m, 0 : k // 2])
            e.fence_a(held)
        multiply(acc, A_s, B_s, E_s, held, warpgroup)
        Tx.wg.copy(D[layer, row : row + e.m, column : column + e.n], acc[:, :])

    return func.with_attr("global_symbol", "main")


@pytest.mark.gpu
@pytest.mark.parametrize(("types", "shape", "options"), CASES)
@pytest.mark.some(3)
def test_result_is_right(types, shape, options, rng):
    (a, b, d), (m, n, k) = types, shape
    values, metadata = compress(prune_2_4(reference.random_array(rng, (m, k), a)))
    right = reference.random_array(rng, (n, k), b)
    e, device = emitter_of(types, shape, options), tvm.cuda(0)
    result = tvm.runtime.tensor(reference.poison(rng, (e.warpgroups[2], m, n), d), device)
    module = tvm.compile(
        tvm.IRModule({"main": kernel(types, shape, options)}),
        target=cuda_target("h200"), tir_pipeline="tirx",
    )  # fmt: skip
    module["main"](*(tvm.runtime.tensor(x, device) for x in (values, metadata, right)), result)
    dense = decompress(values, metadata).astype("float64") * (-1) ** sum(e.negate)
    fraction = reference.error_fraction(a, d)
    for part, (of_a, of_b) in enumerate(
        zip(np.split(dense, e.warpgroups[2], 1), np.split(right, e.warpgroups[2], 1), strict=True)
    ):
        expected = reference.accumulate([of_a], [of_b], None, fraction)
        found = result.numpy()[part]
        assert not expected.mismatches(found).any(), expected.worst(found)


@pytest.mark.parametrize("kind", either(WGMMA_SPARSE_KINDS[::5], WGMMA_SPARSE_KINDS[1::5]),
                         ids=lambda kind: f"{kind.a}x{kind.b}_{kind.d}")  # fmt: skip
def test_counts_of_every_kind(kind):
    for m, n, steps in ((64, 8, 1), (128, 256, 3)):
        e = wl.WgmmaEmitter.of(
            m, n, steps * kind.k, kind.a, kind.d, b_dtype=kind.b, sparse=True, a_in_registers=True
        )
        assert e.kind == kind and e.steps == steps
        assert e.a_registers * 4 * 128 == m * e.k // 2 * kind.bits // 8
        assert int(e.a_layout.span("m")) * 128 == m * e.k // 2


def emitted(body) -> None:
    """Parse a kernel that makes ``body`` emit its instructions."""
    e = emitter_of(F16, (64, 16, 64), {})
    dense = wl.WgmmaEmitter.of(64, 16, 32, "float16", b_shape=(16, 64))

    @T.prim_func(check_well_formed=False)
    def program(D: T.Buffer((1,), "float32")):
        T.device_entry()
        T.cta_id([1])
        T.warpgroup_id([1])
        A_s = T.alloc_buffer((64, 32), "float16", scope="shared", layout=e.a_shared_layout())
        B_s = T.alloc_buffer((16, 64), "float16", scope="shared", layout=e.b_shared_layout())
        E_s = T.alloc_buffer((64, 8), "uint8", scope="shared")
        S = T.alloc_buffer((64, 8), "int8", scope="shared")
        G = T.alloc_buffer((64, 7), "uint8", scope="shared")
        acc = T.alloc_buffer((64, 16), "float32", scope="local", layout=e.d_layout)
        body(e, dense, acc, A_s, B_s, E_s, S, G)

    assert program is not None


@pytest.mark.parametrize(
    "body, sentence",
    [
        (lambda e, d, acc, a, b, m, s, g: e.ss(acc, a, b), "metadata of A is None; A is sparse"),
        (lambda e, d, acc, a, b, m, s, g: d.ss(acc, a, b[:, 0:32], metadata=m),
         "A is dense, drop it"),
        (lambda e, d, acc, a, b, m, s, g: e.ss(acc, a, b, metadata=s), "int8 .* must be uint8"),
        (lambda e, d, acc, a, b, m, s, g: e.ss(acc, a, b, metadata=m[0:32, :]),
         "the metadata of A is 32 x 8, this matmul needs 64 x 8"),
        (lambda e, d, acc, a, b, m, s, g: e.ss(acc, a, b, metadata=g), "7 bytes, no multiple of 4"),
        (lambda e, d, acc, a, b, m, s, g: e.ss_atom(acc, a, b, 0, 0, 0),
         "atoms of a sparse A share registers"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(body, sentence):
    with pytest.raises(Exception, match=sentence):
        emitted(body)

