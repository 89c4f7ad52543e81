"""Tensor maps of Blackwell: swizzles of larger atoms, elements of 4 and 6 bits, and im2col::w."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.native import SHARED_START, emulator_function
from tests.emulator.ptx_driver import Driver, DriverError, Im2colWideMap, emulator
from tests.emulator.run_ptx import DEVICES, HEADER
from tests.emulator.test_tma import MEMORY_BYTES, Tensor, encode
from warploom.runtime.emulator_libraries import find_libraries

#: CUtensorMapSwizzle: bytes of an atom, and whether every other line swaps halves of 16 bytes.
ATOMS = {3: (16, False), 4: (32, False), 5: (32, True), 6: (64, False)}


def places(count, start, swizzle):
    """Where bytes of lines of 128 lie: atoms change places by the number of their line."""
    linear = start + np.arange(count)
    atom, swaps = ATOMS[swizzle]
    line = linear // 128
    moved = linear ^ (line % (128 // atom)) * atom
    return moved ^ np.where(line % 2 == 1, 8, 0) if swaps else moved


@pytest.mark.parametrize("swizzle", ATOMS)
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
def test_atoms_of_the_swizzle_of_128_bytes(swizzle, dtype, rng):
    size = np.dtype(dtype).itemsize
    shape, box, place = (
        (20, 200 // size),
        (11, 128 // size),
        (int(rng.integers(-4, 12)), 16 // size),
    )
    tensor = Tensor(rng, dtype, shape)
    code, why, tensor_map = encode(
        dtype, shape, tensor.strides, box, None, tensor.address, swizzle=swizzle
    )
    assert code == 0, why
    padded = np.zeros((20 + 16, 400 // size), dtype)
    padded[8:28, : shape[1]] = tensor.array
    rows, columns = (slice(at, at + extent) for at, extent in zip(place, box, strict=True))
    expected = padded[8 + rows.start : 8 + rows.stop, columns]
    start = SHARED_START + 128 * int(rng.integers(0, 16))
    before = rng.integers(0, 256, MEMORY_BYTES, "uint8")
    after = tensor.copy("load", tensor_map, place, before, start)
    at = places(expected.nbytes, start, swizzle)
    np.testing.assert_array_equal(after[at].view(dtype).reshape(box), expected)
    kept = np.delete(np.arange(MEMORY_BYTES), at)
    np.testing.assert_array_equal(after[kept], before[kept])

    values = rng.integers(0, 100, box).astype(dtype)
    shared = before.copy()
    shared[at] = values.ravel().view("uint8")
    if ATOMS[swizzle][1]:
        with pytest.raises(ValueError, match="swaps halves of 16 bytes is for loads only"):
            tensor.copy("store", tensor_map, place, shared, start)
        return
    tensor.copy("store", tensor_map, place, shared, start)
    inside = np.s_[max(place[0], 0) : place[0] + 11, columns]
    width = tensor.array[inside].shape[1]
    stored = values[max(-place[0], 0) : 20 - place[0], :width]
    np.testing.assert_array_equal(tensor.array[inside], stored)


#: CUtensorMapDataType: bits of an element, and bytes of 16 of them in shared memory.
NARROW = {13: (4, 8), 14: (4, 16), 15: (6, 16)}


def elements(codes, bits):
    """Bytes that hold numbers of ``bits`` bits, the first one in the lowest bits."""
    spread = codes[..., None] >> np.arange(bits, dtype="uint8") & 1
    return np.packbits(spread.reshape(*codes.shape[:-1], -1), axis=-1, bitorder="little")


@pytest.mark.parametrize("swizzle", [0, 3, 4])
@pytest.mark.parametrize("dtype", NARROW)
def test_elements_of_four_and_six_bits(dtype, swizzle, rng):
    bits, size = NARROW[dtype]
    codes = rng.integers(0, 1 << bits, (12, 384)).astype("uint8")
    packed = elements(codes, bits)
    tensor = aligned_rows(rng, packed)
    width = 256 if dtype == 13 else 128
    row, column = int(rng.integers(-3, 9)), 128 * int(rng.integers(0, 3))
    code, why, tensor_map = encode(
        dtype, (12, 384), (tensor.strides[0], 1), (5, width), None, tensor.address, swizzle=swizzle
    )
    assert code == 0, why
    assert emulator_function("box_bytes")(tensor_map) == 5 * width * bits // 8
    padded = np.zeros((12 + 8, 384 + width), "uint8")
    padded[4:16, :384] = codes
    box = padded[4 + row : 9 + row, column : column + width]
    # Units of 16 elements, with a gap behind each where there is one.
    units = elements(box.reshape(5, width // 16, 16), bits)
    at = places(5 * width // 16 * size, SHARED_START, swizzle) if swizzle else (
        SHARED_START + np.arange(5 * width // 16 * size)
    )  # fmt: skip
    at = at.reshape(5, width // 16, size)[..., : units.shape[-1]]
    before = rng.integers(0, 256, MEMORY_BYTES, "uint8")
    after = tensor.copy("load", tensor_map, (row, column), before, SHARED_START)
    np.testing.assert_array_equal(after[at], units)
    if dtype == 14:
        with pytest.raises(ValueError, match="with gaps between them can be loaded, not stored"):
            tensor.copy("store", tensor_map, (row, column), before, SHARED_START)
        return
    stored = rng.integers(0, 1 << bits, (5, width)).astype("uint8")
    shared = before.copy()
    shared[at] = elements(stored.reshape(5, width // 16, 16), bits)
    tensor.copy("store", tensor_map, (row, column), shared, SHARED_START)
    padded[4 + row : 9 + row, column : column + width] = stored
    np.testing.assert_array_equal(tensor.array, elements(padded[4:16, :384], bits))


def aligned_rows(rng, packed):
    """A tensor of bytes whose rows begin at multiples of 32, as elements with gaps want it."""
    pitch = -(-packed.shape[1] // 32) * 32 + 32
    tensor = Tensor(rng, "uint8", packed.shape)
    tensor.strides = (pitch, 1)
    tensor.memory = rng.integers(0, 256, pitch * packed.shape[0] + 64, "uint8")
    tensor.address = -(-tensor.memory.ctypes.data // 64) * 64
    offset = tensor.address - tensor.memory.ctypes.data
    tensor.array = np.ndarray(packed.shape, "uint8", tensor.memory, offset, tensor.strides)
    tensor.array[...] = packed
    return tensor


@pytest.mark.parametrize(
    ("dtype", "changes", "message"),
    [
        (14, {"shape": (8, 192)}, "extent 192 of dimension 0 is no multiple of 128"),
        (15, {"box": (4, 64)}, "a box row of this type has 128 elements, not 64"),
        (15, {"address": 4096 + 16}, "is no multiple of 32"),
        (14, {"swizzle": 6}, "the type has no such swizzle"),
        (15, {"swizzle": 5}, "the type has no such swizzle"),
        (14, {"swizzle": 1}, "a box row of 128 bytes exceeds the swizzle of 32"),
        (14, {"fill": 1}, "only floating-point types have a NaN"),
        (13, {"shape": (8, 127)}, "extent 127 of dimension 0 is no multiple of 2"),
    ],
)
def test_maps_of_narrow_elements_that_do_not_exist(dtype, changes, message):
    arguments = {"dtype": dtype, "shape": (8, 128), "strides": (96, 1), "box": (4, 128)}
    code, why, _ = encode(**(arguments | changes))
    assert code == 1 and message in why


@pytest.mark.parametrize("dtype", NARROW)
def test_places_of_narrow_elements(dtype, rng):
    tensor = aligned_rows(rng, rng.integers(0, 256, (4, 96), "uint8"))
    _, _, tensor_map = encode(
        dtype, (4, 128), (tensor.strides[0], 1), (4, 128), None, tensor.address
    )
    whole = 2 if dtype == 13 else 128
    with pytest.raises(ValueError, match=f"must be a multiple of {whole} for this type"):
        tensor.copy("load", tensor_map, (0, whole // 2), np.zeros(8192, "uint8"), SHARED_START)


WIDE = """
.visible .entry kernel(.param .align 64 .b8 map[128], .param .u64 p0, .param .u64 p1)
{
.shared .align 1024 .b8 buffer[16384];
.shared .align 8 .b64 barrier;
.reg .b32 %r<8>; .reg .b64 %d<4>; .reg .b16 %h<3>; .reg .pred %q<2>;
mov.u32 %r1, buffer;
mov.u32 %r2, barrier;
mov.b64 %d1, map;
ld.param.u64 %d2, [p1];
mov.u16 %h1, HALO;
mov.u16 %h2, OFFSET;
mbarrier.init.shared::cta.b64 [%r2], 1;
fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], BYTES;
cp.async.bulk.tensor.3d.shared::cta.global.MODE.mbarrier::complete_tx::bytes
  [%r1], [%d1, {CHANNEL, PIXEL, IMAGE}], [%r2], {%h1, %h2};
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %q1, [%r2], 0;
@!%q1 bra WAIT;
cp.async.bulk.global.shared::cta.bulk_group [%d2], [%r1], BYTES;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
ret;
}
"""


def pixels_of(width, lower, upper, step, count, first, image, halo, offset, halo_every):
    """Position and image of each pixel, with those of the halos."""
    result, at = [], first + offset
    for i in range(1, count + 1):
        result.append((at, image))
        if i % halo_every == 0:
            result += [(at + (j + 1) * step, image) for j in range(halo)]
        at += step
        if at > width - 1 + upper + offset:
            at, image = lower + offset, image + 1
    return result


@pytest.mark.parametrize("mode", ["im2col::w", "im2col::w::128"])
def test_pixels_along_the_width(mode, rng):
    channels, width, images, per_pixel = 64, 21, 9, 32
    tensor = rng.integers(0, 1 << 16, (images, width, channels), "uint16")
    for _ in range(4):
        lower, upper = int(rng.integers(-3, 3)), int(rng.integers(-3, 3))
        step, halo, offset = (int(rng.integers(*range_)) for range_ in ((1, 4), (0, 4), (0, 3)))
        count = 128 if mode.endswith("128") else int(rng.integers(8, 64))
        first = int(rng.integers(lower, width - 1 + upper))
        image, channel = int(rng.integers(0, 3)), 32 * int(rng.integers(0, 2))
        every = 32 if mode.endswith("128") else count
        place = pixels_of(*(width, lower, upper, step, count, first, image), halo, offset, every)
        expected = np.zeros((len(place), per_pixel), "uint16")
        for row, (at, number) in zip(expected, place, strict=True):
            if 0 <= at < width and number < images:
                row[:] = tensor[number, at, channel : channel + per_pixel]
        values = {
            "HALO": halo, "OFFSET": offset, "BYTES": expected.nbytes, "MODE": mode,
            "CHANNEL": channel, "PIXEL": first, "IMAGE": image,
        }  # fmt: skip
        text = WIDE
        for name, value in values.items():
            text = text.replace(name, str(value))
        wide = Im2colWideMap(
            *(0, 1, (channels, width, images), (2 * channels, 2 * channels * width)),
            *(lower, upper, per_pixel, count, (1, step, 1), 2, int(mode.endswith("128"))),
        )
        out = on_device("sm_100a", text, [tensor, np.zeros(expected.size, "uint16")], wide)
        linear = np.arange(expected.nbytes)
        at = linear ^ (linear >> 7 & 3) << 4
        np.testing.assert_array_equal(out.view("uint8")[at], expected.ravel().view("uint8"))


def on_device(arch, text, arrays, tensor_map):
    driver: Driver = emulator(str(find_libraries()[0]), DEVICES[arch])
    module = driver.load_text(HEADER.format(arch=arch) + text)
    try:
        return driver.launch(module, "kernel", arrays, maps=[tensor_map], block=(1, 1, 1))[-1]
    finally:
        driver.unload(module)


def test_hopper_has_no_im2col_along_the_width():
    driver: Driver = emulator(str(find_libraries()[0]))
    wide = Im2colWideMap(0, 1, (16, 8, 2), (32, 256), 0, 0, 16, 8, (1, 1, 1), 1)
    with pytest.raises(DriverError, match=r"from compute capability 10\.0 on.*device is sm_90a"):
        driver.encode(wide, 4096)
