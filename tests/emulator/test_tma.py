"""Tensor maps of the emulator: the driver's rules, and boxes against numpy indexing."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.emulator.native import SHARED_START, emulator_function
from warploom.target import Swizzle, box_error, tensor_error

#: CUtensorMapDataType -> TVM dtype.
DTYPES = {
    0: "uint8",
    1: "uint16",
    2: "uint32",
    3: "int32",
    4: "uint64",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    9: "bfloat16",
}
NUMPY = {name: np.dtype(getattr(ml_dtypes, name, name)) for name in DTYPES.values()}
MEMORY_BYTES = 1 << 16


def encode(dtype, shape, strides, box, steps=None, address=4096, **options):
    """Call the encoder; strides are in bytes, dimensions in TVM's order (contiguous last)."""
    arguments = {"interleave": 0, "swizzle": 0, "l2": 0, "fill": 0} | options
    code = next((c for c, name in DTYPES.items() if name == dtype), dtype)
    steps = [1] * len(shape) if steps is None else steps

    def array(values, kind):
        return np.array(list(reversed(values)), kind).tobytes()

    return emulator_function("tensor_map")(
        *(code, address, array(shape, "uint64"), array(strides[:-1], "uint64")),
        *(array(box, "uint32"), array(steps, "uint32")),
        *(arguments[name] for name in ("interleave", "swizzle", "l2", "fill")),
    )


class Tensor:
    """An array in host memory with padded rows, as a tensor map sees it."""

    def __init__(self, rng, dtype, shape):
        self.dtype = NUMPY[dtype]
        size = self.dtype.itemsize
        pitch, self.strides = size, []
        for extent in reversed(shape):
            self.strides.insert(0, pitch)
            pitch = -(-pitch * extent // 16) * 16 + 16 * int(rng.integers(0, 2))
        self.memory = rng.integers(0, 256, pitch + 128, "uint8")
        self.address = -(-self.memory.ctypes.data // 64) * 64
        offset = self.address - self.memory.ctypes.data
        self.array = np.ndarray(shape, self.dtype, self.memory, offset, self.strides)
        values = rng.integers(0, 100, shape)
        self.array[...] = values.astype(self.dtype)

    def copy(self, direction, tensor_map, place, shared, offset, reduction=""):
        coordinates = np.array(list(reversed(place)), "int32").tobytes()
        result = emulator_function("copy_box")(
            *(direction, tensor_map, coordinates, self.memory.ctypes.data, self.memory.size),
            *(shared.tobytes(), offset, reduction),
        )
        return np.frombuffer(bytes(result), "uint8")


def swizzled_offsets(count, row_bytes, start):
    """Where each of ``count`` bytes of a dense box lies: bits 4.. are XORed with bits 7.. ."""
    linear = start + np.arange(count)
    return linear ^ ((linear >> 7 & row_bytes // 16 - 1) << 4)


@st.composite
def boxes(draw):
    """A tensor, a box that TMA can move, and a place that may lie outside of the tensor."""
    dtype = draw(st.sampled_from(sorted(NUMPY)))
    size = NUMPY[dtype].itemsize
    swizzle = draw(st.sampled_from(Swizzle))
    rank = draw(st.integers(1, 5))
    row = swizzle.row_bytes if swizzle is not Swizzle.NONE else 16 * draw(st.integers(1, 6))
    steps = [draw(st.integers(1, 3)) for _ in range(rank - 1)] + [draw(st.integers(1, 8))]
    box = [draw(st.integers(1, 6 if rank < 4 else 3)) for _ in range(rank - 1)] + [row // size]
    shape = [draw(st.integers(1, 8)) for _ in range(rank - 1)] + [draw(st.integers(1, 2 * box[-1]))]
    place = [draw(st.integers(-extent - 2, extent + 2)) for extent in shape]
    return dtype, swizzle, shape, box, steps, place, draw(st.integers(0, 2**32 - 1))


def box_in_tensor(shape, box, steps, place):
    """Index arrays of every element that is moved, and which of them are in bounds."""
    counts = [-(-b // s) for b, s in zip(box[:-1], steps, strict=False)] + [box[-1]]
    steps = [*steps[:-1], 1]  # dimension 0 of the map has no stride
    index = [p + np.arange(n) * s for p, n, s in zip(place, counts, steps, strict=True)]
    index = np.meshgrid(*index, indexing="ij")
    inside = np.all([(i >= 0) & (i < e) for i, e in zip(index, shape, strict=True)], axis=0)
    return index, inside


@given(case=boxes(), nan=st.booleans())
def test_loading_a_box(case, nan):
    dtype, swizzle, shape, box, steps, place, seed = case
    rng = np.random.default_rng(seed)
    tensor = Tensor(rng, dtype, shape)
    nan = nan and "float" in dtype
    code, why, tensor_map = encode(
        dtype, shape, tensor.strides, box, steps, tensor.address, swizzle=swizzle.bits, fill=nan
    )
    assert code == 0, why
    index, inside = box_in_tensor(shape, box, steps, place)
    clipped = tuple(np.clip(i, 0, e - 1) for i, e in zip(index, shape, strict=True))
    with np.errstate(invalid="ignore"):
        expected = np.where(inside, tensor.array[clipped], np.zeros((), tensor.dtype))
        if nan:
            expected = np.where(inside, expected, np.full((), np.nan, tensor.dtype))
    count = expected.size * tensor.dtype.itemsize
    assert emulator_function("box_bytes")(tensor_map) == count
    start = SHARED_START + 128 * int(rng.integers(0, 16))
    before = rng.integers(0, 256, MEMORY_BYTES, "uint8")
    after = tensor.copy("load", tensor_map, place, before, start)
    places = swizzled_offsets(count, swizzle.row_bytes, start)
    actual = after[places].view(tensor.dtype).reshape(expected.shape)
    np.testing.assert_array_equal(actual.astype("float64"), expected.astype("float64"))
    untouched = np.ones(MEMORY_BYTES, bool)
    untouched[places] = False
    np.testing.assert_array_equal(after[untouched], before[untouched])


@given(case=boxes())
def test_storing_a_box(case):
    dtype, swizzle, shape, box, steps, place, seed = case
    rng = np.random.default_rng(seed)
    tensor = Tensor(rng, dtype, shape)
    code, why, tensor_map = encode(
        dtype, shape, tensor.strides, box, steps, tensor.address, swizzle=swizzle.bits
    )
    assert code == 0, why
    index, inside = box_in_tensor(shape, box, steps, place)
    values = rng.integers(0, 100, inside.shape).astype(tensor.dtype)
    expected = tensor.memory.copy()
    view = np.ndarray(
        shape, tensor.dtype, expected, tensor.address - tensor.memory.ctypes.data, tensor.strides
    )
    view[tuple(i[inside] for i in index)] = values[inside]
    shared = rng.integers(0, 256, MEMORY_BYTES, "uint8")
    count = values.size * tensor.dtype.itemsize
    shared[swizzled_offsets(count, swizzle.row_bytes, SHARED_START)] = values.ravel().view("uint8")
    tensor.copy("store", tensor_map, place, shared, SHARED_START)
    # Up to the next multiple of 16 bytes, the padding of a row may be written, as on an H200.
    row = -(-shape[-1] * tensor.dtype.itemsize // 16) * 16
    kept = np.ones(expected.size, bool)
    start = tensor.address - tensor.memory.ctypes.data
    np.ndarray((*shape[:-1], row), bool, kept, start, (*tensor.strides[:-1], 1))[...] = False
    np.testing.assert_array_equal(tensor.memory[kept], expected[kept])
    after = np.ndarray(shape, tensor.dtype, tensor.memory, start, tensor.strides)
    np.testing.assert_array_equal(after, view)


OPERATIONS = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "inc": lambda old, value: np.where(old >= value, 0, old + 1),
    "dec": lambda old, value: np.where((old == 0) | (old > value), value, old - 1),
}
PTX = {
    "uint32": "u32",
    "int32": "s32",
    "uint64": "u64",
    "int64": "s64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "uint8": "u8",
    "uint16": "u16",
}


def reduction_exists(dtype, operation):
    """PTX ISA, cp.reduce.async.bulk: the table of types of each operation."""
    if operation in ("inc", "dec"):
        return dtype == "uint32"
    if operation in ("and", "or", "xor"):
        return dtype in ("uint32", "int32", "uint64", "int64")
    if operation == "add":
        return dtype not in ("uint8", "uint16", "int64")
    return dtype not in ("uint8", "uint16", "float32", "float64")


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
@pytest.mark.parametrize("dtype", sorted(PTX))
def test_reductions(dtype, operation, rng):
    numpy_type = NUMPY[dtype]
    if "float" in dtype:
        old, new = (rng.standard_normal(64).astype(numpy_type) for _ in range(2))
    else:
        limits = np.iinfo(dtype)
        old, new = (rng.integers(limits.min, limits.max, 64, dtype) for _ in range(2))
        old[:8], new[:8] = 0, 5
        old[8:16] = new[8:16]
    call = (PTX[dtype], operation, old.tobytes(), new.tobytes())
    if not reduction_exists(dtype, operation):
        with pytest.raises(ValueError, match=rf"cannot reduce {PTX[dtype]} with \.{operation}"):
            emulator_function("bulk_reduce")(*call)
        return
    result = np.frombuffer(bytes(emulator_function("bulk_reduce")(*call)), numpy_type)
    with np.errstate(over="ignore"):
        expected = OPERATIONS[operation](old, new).astype(numpy_type)
    np.testing.assert_array_equal(result, expected)


def test_a_store_that_reduces(rng):
    tensor = Tensor(rng, "float16", (5, 24))
    before = tensor.array.copy()
    _, _, tensor_map = encode("float16", (5, 24), tensor.strides, (4, 16), None, tensor.address)
    values = rng.standard_normal((4, 16)).astype("float16")
    shared = np.zeros(4096, "uint8")
    shared[SHARED_START : SHARED_START + 128] = values.ravel().view("uint8")
    tensor.copy("store", tensor_map, (2, 12), shared, SHARED_START, "add")
    before[2:5, 12:24] += values[:3, :12]
    np.testing.assert_array_equal(tensor.array, before)


@given(
    dtype=st.sampled_from(sorted(NUMPY)),
    swizzle=st.sampled_from(Swizzle),
    shape=st.lists(st.one_of(st.integers(0, 4096), st.just(1 << 33)), min_size=1, max_size=5),
    box=st.lists(st.sampled_from((0, 1, 7, 8, 16, 32, 64, 128, 256, 257)), min_size=5, max_size=5),
    steps=st.lists(st.integers(0, 9), min_size=5, max_size=5),
    padding=st.integers(0, 9),
    address=st.sampled_from((0, 8, 16, 256)),
)
def test_the_rules_are_those_of_the_target(dtype, swizzle, shape, box, steps, padding, address):
    rank, size = len(shape), NUMPY[dtype].itemsize
    box, steps = box[:rank], steps[:rank]
    strides, pitch = [], 1
    for d, extent in enumerate(reversed(shape)):
        strides.insert(0, pitch)
        pitch *= extent + (padding if d == 0 else 0)
    byte_strides = [min(stride * size, (1 << 63) - 1) for stride in strides]
    code, why, _ = encode(dtype, shape, byte_strides, box, steps, address, swizzle=swizzle.bits)
    error = tensor_error(dtype, shape, strides, address) or box_error(dtype, box, swizzle, steps)
    assert code == (0 if error is None else 1), error or why


@pytest.mark.parametrize(
    "changes, code, message",
    [
        ({"interleave": 1}, 1, "an interleaved tensor has 3 to 5 dimensions, not 2"),
        ({"interleave": 3}, 1, "interleave has no value 3"),
        ({"swizzle": 4}, 0, ""),
        ({"swizzle": 7}, 1, "swizzle has no value 7"),
        ({"dtype": 13}, 1, "a box row of 8 bytes is no multiple of 16"),
        ({"dtype": 14}, 1, "extent 64 of dimension 0 is no multiple of 128"),
        ({"dtype": 16}, 1, "data type has no value 16"),
        ({"l2": 4}, 1, "L2 promotion has no value 4"),
        ({"fill": 2}, 1, "fill has no value 2"),
        ({"fill": 1, "dtype": "int32"}, 1, "only floating-point types have a NaN"),
        ({"l2": 3, "fill": 1}, 0, ""),
    ],
)
def test_options_of_the_encoder(changes, code, message):
    arguments = {"dtype": "float32", "shape": (8, 64), "strides": (256, 4), "box": (8, 16)}
    actual, why, _ = encode(**(arguments | changes))
    assert actual == code and message in why


def test_ranks_of_the_encoder():
    for rank in (0, 6):
        code, why, _ = encode("uint8", (16,) * rank, (16,) * rank, (16,) * rank)
        assert code == 1 and f"rank {rank} is not within 1 to 5" in why


def test_what_a_copy_must_not_touch(rng):
    tensor = Tensor(rng, "float32", (8, 32))
    arguments = ("float32", (8, 32), tensor.strides, (8, 32), None)
    _, _, tensor_map = encode(*arguments, tensor.address)
    shared = np.zeros(SHARED_START + 1024, "uint8")
    with pytest.raises(ValueError, match=r"0x440: the address must be a multiple of 128"):
        tensor.copy("load", tensor_map, (0, 0), shared, SHARED_START + 64)
    with pytest.raises(ValueError, match=r"1024 bytes at shared offset 0x480 are out of bounds"):
        tensor.copy("load", tensor_map, (0, 0), shared, SHARED_START + 128)
    with pytest.raises(ValueError, match="no tensor map made by cuTensorMapEncodeTiled"):
        tensor.copy("load", bytes(128), (0, 0), shared, SHARED_START)
    with pytest.raises(ValueError, match=r"cannot reduce f32 with \.max"):
        tensor.copy("store", tensor_map, (0, 0), shared, SHARED_START, "max")
    _, _, elsewhere = encode(*arguments, tensor.address + (1 << 20))
    with pytest.raises(ValueError, match="lie in no allocation"):
        tensor.copy("load", elsewhere, (0, 0), shared, SHARED_START)
    outside = tensor.copy("load", elsewhere, (8, 0), shared + 1, SHARED_START)
    assert not outside[SHARED_START:].any() and outside[:SHARED_START].all()
