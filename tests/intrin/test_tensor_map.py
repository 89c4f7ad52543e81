"""Tensor maps that an author describes: the rules, and what copies with them bring."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm.backend.cuda.lang.pipeline import TMABar
from tvm.script import tirx as T

from warploom import language as wl
from warploom.errors import IllegalCombination
from warploom.intrin import tensor_map
from warploom.target import Swizzle, cuda_target
from warploom.target.tensor_map import Interleave, L2Promotion, OobFill, TensorMap

IMAGES = (2, 3, 5, 16)  # images, slices of channels, rows, columns


def copy(description: TensorMap, shape: tuple[int, ...], at: tuple[int, ...]):
    """``copy(source, box)``: what one load brings, as it lies in shared memory."""
    count = description.box_bytes * 8 // bits(description.dtype)

    @T.prim_func
    def kernel(a: T.handle, b: T.handle):
        A = T.match_buffer(a, shape, description.dtype, align=128)
        B = T.match_buffer(b, (count,), description.dtype)
        described = T.meta_var(tensor_map.encode(description, A))
        T.device_entry()
        T.cta_id([1])
        thread = T.thread_id([32])
        pool = T.SMEMPool()
        box = pool.alloc((count,), description.dtype, align=1024)
        full = TMABar(pool, 1)
        pool.commit()
        full.init(1)
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()
        if thread == 0:
            full.arrive(0, description.box_bytes)
            wl.tma_load(described, full.ptr_to([0]), box, *at)
        full.wait(0, 0)
        for i in T.serial(-(-count // 32)):
            if i * 32 + thread < count:
                B[i * 32 + thread] = box[i * 32 + thread]

    return kernel


def bits(dtype: str) -> int:
    return tvm.DataType(dtype).bits


def run(description: TensorMap, source: np.ndarray, at: tuple[int, ...]) -> np.ndarray:
    module = tvm.IRModule({"main": copy(description, source.shape, at)})
    kernel = tvm.compile(module, cuda_target("h200"), tir_pipeline="tirx")["main"]
    size = description.box_bytes // source.dtype.itemsize
    result = tvm.runtime.tensor(np.full(size, 99, source.dtype), tvm.cuda(0))
    kernel(tvm.runtime.tensor(source, tvm.cuda(0)), result)
    return result.numpy()


def boxed(source: np.ndarray, box, at, steps, fill: float) -> np.ndarray:
    """The box, element by element."""
    result = np.full([-(-b // s) for b, s in zip(box, steps, strict=True)], fill, source.dtype)
    for index in np.ndindex(*result.shape):
        place = [a + i * s for a, i, s in zip(at, index, steps, strict=True)]
        if all(0 <= p < extent for p, extent in zip(place, source.shape, strict=True)):
            result[index] = source[tuple(place)]
    return result


@pytest.mark.gpu
@pytest.mark.parametrize(
    "promotion, fill, steps, at",
    [
        (L2Promotion.NONE, OobFill.ZERO, None, (2, 8)),
        (L2Promotion.B256, OobFill.NAN, None, (-3, 24)),
        (L2Promotion.B64, OobFill.ZERO, (3, 1), (1, -8)),
    ],
)
def test_a_box_with_every_option(promotion, fill, steps, at, rng):
    source = rng.standard_normal((13, 32), np.float32)
    description = TensorMap(
        "float32", source.shape, (8, 16), Swizzle.NONE, promotion, fill, element_strides=steps
    )
    outside = 0.0 if fill is OobFill.ZERO else np.nan
    expected = boxed(source, (8, 16), at, steps or (1, 1), outside)
    np.testing.assert_array_equal(run(description, source, at), expected.ravel())


@pytest.mark.gpu
@pytest.mark.parametrize("swizzle", [Swizzle.B32, Swizzle.B128])
def test_swizzles_permute_chunks(swizzle, rng):
    width = swizzle.row_bytes // 2
    source = rng.standard_normal((16, 2 * width), np.float32).astype(np.float16)
    description = TensorMap("float16", (None, 2 * width), (8, width), swizzle)
    found = run(description, source, (4, width)).view(np.uint8)
    plain = np.ascontiguousarray(source[4:12, width:]).view(np.uint8).ravel()
    places = [swizzle.apply(byte) for byte in range(plain.size)]
    np.testing.assert_array_equal(found[places], plain)


@pytest.mark.gpu
@pytest.mark.parametrize("interleave", [Interleave.B16, Interleave.B32])
def test_slices_of_channels(interleave, rng):
    """A box is one slice of channels of some pixels, those outside zero."""
    channels = interleave.slice_bytes // 2
    source = rng.standard_normal((*IMAGES, channels), np.float32).astype(np.float16)
    swizzle = Swizzle.B32 if interleave is Interleave.B32 else Swizzle.NONE
    box, at = (2, 1, 3, 8), (0, 2, 3, -1)
    description = TensorMap("float16", IMAGES, box, swizzle, interleave=interleave)
    assert description.box_bytes == 2 * 3 * 8 * interleave.slice_bytes
    expected = boxed(source, (*box, channels), (*at, 0), (1,) * 5, 0.0)
    found = run(description, source, at).view(np.uint8)
    plain = expected.ravel().view(np.uint8)
    places = [swizzle.apply(byte) for byte in range(plain.size)]
    np.testing.assert_array_equal(found[places], plain)


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"box": (8,)}, "box of 1 dimensions for a tensor of 2"),
        ({"box": (8, 12)}, "a box row of 12 float16 is 24 bytes"),
        ({"box": (300, 8)}, "box extent 300 of dimension 0"),
        ({"swizzle": Swizzle.B32, "box": (8, 64)}, "swizzle B32 permutes rows of at most 32"),
        ({"shape": (16, 20)}, "stride 20 of dimension 0 is 40 bytes"),
        ({"strides": (64, 2)}, "the last dimension must be contiguous, but its stride is 2"),
        ({"element_strides": (9, 1)}, "element stride 9 of dimension 0"),
        ({"dtype": "int8", "oob_fill": OobFill.NAN}, "int8 has no NaN to fill with"),
        ({"interleave": Interleave.B16}, "an interleaved tensor has 3 to 5 dimensions"),
        (
            {"shape": IMAGES, "box": (1, 1, 2, 8), "interleave": Interleave.B32},
            "slices of 32 bytes need the swizzle B32, got NONE",
        ),
        (
            {"shape": IMAGES, "box": (1, 2, 2, 8), "interleave": Interleave.B16},
            "a box holds one slice of channels, got 2",
        ),
    ],
)
def test_rules(changes, sentence):
    legal = {"dtype": "float16", "shape": (16, 64), "box": (8, 16)}
    TensorMap(**legal)
    with pytest.raises(IllegalCombination, match=sentence):
        TensorMap(**legal | changes)


def test_what_the_buffer_must_be():
    description = TensorMap("float16", (16, 64), (8, 16))
    for shape, dtype, sentence in (
        ((16, 32), "float16", r"A has shape \(16, 32\), the map is made for \(16, 64\)"),
        ((16, 64), "bfloat16", "A has elements of bfloat16, the map of float16"),
    ):
        buffer = tvm.tirx.decl_buffer(shape, dtype, "A", scope="global")
        with pytest.raises(IllegalCombination, match=sentence):
            tensor_map.encode(description, buffer)


def test_copies_of_tvm_take_its_options():
    description = TensorMap("float16", (16, 64), (8, 16), l2_promotion=L2Promotion.B256)
    assert description.copy_options == {"dispatch": "tma_auto", "tensormap_l2_promotion": 3}
    filled = TensorMap("float16", (16, 64), (8, 16), oob_fill="nan").copy_options
    assert (filled["dispatch"], filled["oob"]) == ("tma_explicit", "nan")
    with pytest.raises(IllegalCombination, match=r"no tensor maps with slices .* element strides"):
        _ = TensorMap("float16", (16, 64), (8, 16), element_strides=(2, 1)).copy_options
