"""Matrix instructions of the emulator, to the last bit, on operands laid out by warploom's layouts.

Sums are expected as the tensor core of an H200 forms them (tensor_core.py).
"""

import itertools

import numpy as np
import pytest

from tests.emulator.native import SHARED_START, emulator_function, int64
from tests.emulator.tensor_core import product_sum
from tests.shared.layout_evaluation import evaluate_layout
from tests.shared.reference import numpy_dtype, random_array, round_to_tf32
from warploom.layout.fragment import wgmma_register_a
from warploom.layout.smem_matrix import SharedMatrix
from warploom.target.swizzle import Major, Swizzle
from warploom.target.wgmma import WGMMA_KINDS

PTX = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "tf32",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "int8": "s8",
    "uint8": "u8",
}
ACCUMULATOR = {"float32": "f32", "float16": "f16", "int32": "s32"}
LANE = np.arange(32)


def ids(kind):
    return f"{kind.a}-{kind.b}-{kind.d}"


def float_sum(a, b, c):
    """``c + a @ b^T``, term by term: what the tensor core does not do."""
    total = c.astype("float32")
    for k in range(a.shape[1]):
        product = a[:, k, None].astype("float64") * b[None, :, k]
        total = (total + product).astype("float32")
    return total


def accumulator_place(n, warps):
    """Row and column ``[registers, warps, 32]`` of a 32-bit accumulator (PTX ISA, D fragment)."""
    i, warp, lane = np.ogrid[: n // 2, :warps, :32]
    row = 16 * warp + lane // 4 + 8 * (i % 4 // 2)
    return row, 8 * (i // 4) + 2 * (lane % 4) + i % 2 + 0 * warp


def to_registers(matrix, n, warps):
    """The bytes of an accumulator ``[16 * warps, n]`` in registers ``[register, warp, lane]``."""
    row, column = accumulator_place(n, warps)
    values = matrix[row, column]
    if matrix.dtype == np.float16:
        values = np.stack([values[0::2], values[1::2]], axis=-1)
    return np.ascontiguousarray(values).tobytes()


def from_registers(data, dtype, n, warps):
    """The inverse of :func:`to_registers`."""
    values = np.frombuffer(bytes(data), dtype)
    if dtype == "float16":
        values = values.reshape(n // 4, warps, 32, 2)
        values = np.stack([values[..., 0], values[..., 1]], axis=1)
    row, column = accumulator_place(n, warps)
    matrix = np.empty((16 * warps, n), dtype)
    matrix[row, column] = values.reshape(n // 2, warps, 32)
    return matrix


class Operand:
    """A ``rows x k`` operand within a larger shared buffer, entered at a random legal place."""

    def __init__(self, rng, dtype, rows, k, major, swizzle, start):
        bits = 8 * numpy_dtype(dtype).itemsize
        columns = swizzle.row_bytes * 8 // bits
        probe = SharedMatrix(dtype, major, swizzle, *self._fit(rows, k, major, columns, rng))
        mn0 = int(rng.integers(0, (probe.mn - rows) // probe.mn_align + 1)) * probe.mn_align
        k0 = int(rng.integers(0, (probe.k - k) // probe.k_align + 1)) * probe.k_align
        stored = random_array(rng, probe.shape, dtype)
        offsets = evaluate_layout(probe.layout(), probe.shape)["m"]
        self.bytes = np.empty(stored.size, stored.dtype)
        self.bytes[offsets] = stored
        logical = stored if major is Major.K else stored.T
        self.values = logical[mn0 : mn0 + rows, k0 : k0 + k]
        self.descriptor = probe.descriptor + (start + probe.byte_offset(mn0, k0) >> 4)

    @staticmethod
    def _fit(rows, k, major, columns, rng):
        """Extents in whole atoms with room to spare."""
        if major is Major.K:
            atoms = -(-k // columns) + int(rng.integers(0, 2))
            return rows + 8 * int(rng.integers(0, 3)), max(atoms * columns, k)
        atoms = -(-rows // columns) + int(rng.integers(0, 2))
        return atoms * columns, k + 8 * int(rng.integers(0, 3))


def run_wgmma(rng, kind, n, majors, swizzles, a_in_registers=False, modifiers=()):
    """Execute one instruction on random operands; returns what came out and what should."""
    a_start, memory = SHARED_START, bytearray(SHARED_START)
    data = b""
    if a_in_registers:
        values = random_array(rng, (64, kind.k), kind.a)
        layout = evaluate_layout(wgmma_register_a(kind.a, kind.k), values.shape)
        size = numpy_dtype(kind.a).itemsize
        registers = np.empty((4, 4, 32, 4 // size), values.dtype)
        element = layout["m"]
        warp = layout["wid_in_wg"]
        registers[element * size // 4, warp, layout["laneid"], element % (4 // size)] = values
        data, a_descriptor = registers.tobytes(), 0
    else:
        a = Operand(rng, kind.a, 64, kind.k, majors[0], swizzles[0], a_start)
        memory += a.bytes.tobytes()
        values, a_descriptor = a.values, a.descriptor
    b_start = -(-len(memory) // 1024) * 1024
    memory += bytes(b_start - len(memory))
    b = Operand(rng, kind.b, n, kind.k, majors[1], swizzles[1], b_start)
    memory += b.bytes.tobytes()
    words = [*modifiers]
    words += ["trans_a"] * (majors[0] is Major.MN) + ["trans_b"] * (majors[1] is Major.MN)
    c = random_array(rng, (64, n), kind.d)
    types = ACCUMULATOR[kind.d], PTX[kind.a], PTX[kind.b]
    result = emulator_function("wgmma")(
        *(n, kind.k, *types, " ".join(words), to_registers(c, n, 4), data),
        *(int64(a_descriptor), int64(b.descriptor), bytes(memory), 1, b"", 0),
    )
    sign = -1 if ("negate_a" in words) != ("negate_b" in words) else 1
    start = c if "accumulate" in words else np.zeros_like(c)
    values = sign * values.astype("float64")
    expected = product_sum("wgmma", (kind.a, kind.b), values, b.values, start, kind.d)
    return from_registers(result, kind.d, n, 4), expected


@pytest.mark.parametrize("kind", WGMMA_KINDS, ids=ids)
@pytest.mark.some(4)
def test_wgmma_of_every_width(kind, rng):
    for n in kind.n:
        swizzle = Swizzle.B128
        actual, expected = run_wgmma(
            rng, kind, n, (Major.K, Major.K), (swizzle, swizzle), modifiers=["accumulate"]
        )
        np.testing.assert_array_equal(actual, expected, err_msg=f"n = {n}")


@pytest.mark.parametrize("kind", WGMMA_KINDS, ids=ids)
@pytest.mark.some(4)
def test_wgmma_of_every_layout_in_shared_memory(kind, rng):
    pairs = itertools.product(kind.majors, kind.majors)
    swizzles = itertools.product(Swizzle, Swizzle)
    for majors, modes in itertools.product(pairs, list(swizzles)):
        n = int(rng.choice(kind.n))
        accumulate = ["accumulate"] * int(rng.integers(0, 2))
        actual, expected = run_wgmma(rng, kind, n, majors, modes, modifiers=accumulate)
        np.testing.assert_array_equal(actual, expected, err_msg=f"{n} {majors} {modes}")


@pytest.mark.parametrize("kind", WGMMA_KINDS, ids=ids)
def test_wgmma_with_a_in_registers(kind, rng):
    for major, swizzle in itertools.product(kind.majors, Swizzle):
        n = int(rng.choice(kind.n))
        actual, expected = run_wgmma(
            rng, kind, n, (Major.K, major), (Swizzle.NONE, swizzle), True, ["accumulate"]
        )
        np.testing.assert_array_equal(actual, expected, err_msg=f"{n} {major} {swizzle}")


@pytest.mark.parametrize("kind", [kind for kind in WGMMA_KINDS if kind.negate], ids=ids)
@pytest.mark.parametrize("in_registers", [False, True])
def test_wgmma_negates(kind, in_registers, rng):
    for words in (["negate_a"], ["negate_b"], ["negate_a", "negate_b"]):
        swizzles, majors = (Swizzle.B64, Swizzle.B32), (Major.K, Major.K)
        actual, expected = run_wgmma(
            rng, kind, 24, majors, swizzles, in_registers, [*words, "accumulate"]
        )
        np.testing.assert_array_equal(actual, expected, err_msg=str(words))


@pytest.mark.parametrize("saturate", [False, True])
def test_integer_accumulators_wrap_or_saturate(saturate):
    memory = bytes(SHARED_START) + bytes([127]) * 8192
    descriptor = Swizzle.B128.wgmma_code << 62 | 64 << 32 | 1 << 16 | SHARED_START >> 4
    start = np.full((64, 8), 2**31 - 100, "int32")
    result = emulator_function("wgmma")(
        *(8, 32, "s32", "s8", "s8", "accumulate" + " satfinite" * saturate),
        *(to_registers(start, 8, 4), b"", int64(descriptor), int64(descriptor), memory, 1, b"", 0),
    )
    total = 2**31 - 100 + 32 * 127**2
    assert set(from_registers(result, "int32", 8, 4).ravel().tolist()) == {
        2**31 - 1 if saturate else total - 2**32
    }


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
def test_wgmma_propagates_what_is_not_finite(special):
    a = np.zeros((64, 16), "float16")
    a[3, 5] = special
    registers = np.empty((4, 4, 32, 2), "float16")
    layout = evaluate_layout(wgmma_register_a("float16", 16), a.shape)
    registers[layout["m"] // 2, layout["wid_in_wg"], layout["laneid"], layout["m"] % 2] = a
    memory = bytes(SHARED_START) + np.ones(512, "float16").tobytes()
    descriptor = 16 << 32 | 8 << 16 | SHARED_START >> 4
    zero = np.zeros((64, 8), "float32")
    result = emulator_function("wgmma")(
        *(8, 16, "f32", "f16", "f16", "", to_registers(zero, 8, 4), registers.tobytes()),
        *(0, int64(descriptor), memory, 1, b"", 0),
    )
    actual = from_registers(result, "float32", 8, 4)
    np.testing.assert_array_equal(actual[3], special)
    assert not np.delete(actual, 3, axis=0).any()


@pytest.mark.parametrize("warps, n, k", [(1, 8, 4), (1, 8, 16), (4, 24, 8), (4, 256, 16)])
def test_every_instruction_set_gives_the_same_bits(warps, n, k, rng):
    """The order of operands is that of ``Product`` in src/emulator/matrix/product.h."""
    kernels = list(emulator_function("product_kernels")())
    assert kernels[-1] == "any"
    a, b = random_array(rng, (16 * warps, k), "float16"), random_array(rng, (n, k), "float16")
    c = random_array(rng, (16 * warps, n), "float32")
    by_half = a.astype("float32").reshape(2 * warps, 8, k).transpose(0, 2, 1)
    columns = b.astype("float32").reshape(n // 8, 4, 2, k).transpose(0, 3, 2, 1)
    operands = np.repeat(by_half, 4, axis=2).tobytes(), np.ascontiguousarray(columns).tobytes()
    types = "float16", "float16"
    sums = {"": float_sum(a, b, c), "f16": product_sum("wgmma", types, a, b, c, "float32")}
    for kernel, (rule, expected) in itertools.product(kernels, sums.items()):
        result = emulator_function("product")(
            kernel, warps, n, k, rule, *operands, to_registers(c, n, warps)
        )
        actual = from_registers(result, "float32", n, warps)
        np.testing.assert_array_equal(actual, expected, err_msg=f"{kernel} {rule}")


@pytest.mark.parametrize(
    "form, message",
    [
        ((8, 16, "f16", "bf16", "bf16", ""), "bf16 by bf16 accumulated in f16 does not exist"),
        ((12, 16, "f32", "f16", "f16", ""), "no shape m64n12k16"),
        ((264, 16, "f32", "f16", "f16", ""), "no shape m64n264k16"),
        ((40, 32, "s32", "s8", "u8", ""), "no shape m64n40k32"),
        ((8, 8, "f32", "f16", "f16", ""), "k is 16"),
        ((8, 32, "f32", "e4m3", "e5m2", "trans_b"), "K-major operands only"),
        ((8, 16, "f32", "f16", "f16", "satfinite"), "for 8-bit integers only"),
        ((8, 32, "s32", "s8", "s8", "negate_a"), "cannot negate"),
    ],
)
def test_wgmma_forms_that_do_not_exist(form, message):
    with pytest.raises(ValueError, match=message):
        emulator_function("wgmma")(*form, b"", b"", 0, 0, b"", 1, b"", 0)


def test_wgmma_reads_in_bounds_only():
    arguments = (8, 16, "f32", "f16", "f16", "", bytes(4 * 4 * 128), b"")
    with pytest.raises(ValueError, match=r"16 bytes at shared offset 0x0 are out of bounds"):
        emulator_function("wgmma")(*arguments, 0, 0, bytes(4096), 1, b"", 0)


MMA = [
    ("float16", "float16", "float16", (8, 16)),
    ("float16", "float16", "float32", (8, 16)),
    ("bfloat16", "bfloat16", "float32", (8, 16)),
    ("float32", "float32", "float32", (4, 8)),
    *(
        (a, b, d, (16, 32))
        for a in PTX
        for b in PTX
        for d in ("float32", "float16")
        if a.startswith("float8") and b.startswith("float8")
    ),
    *((a, b, "int32", (16, 32)) for a in ("int8", "uint8") for b in ("int8", "uint8")),
]


@pytest.mark.parametrize("a, b, d, steps", MMA)
def test_mma(a, b, d, steps, rng):
    for k in steps:
        left, right = random_array(rng, (16, k), a), random_array(rng, (8, k), b)
        c = random_array(rng, (16, 8), d)
        group = 4 // numpy_dtype(a).itemsize
        r, lane, e = np.ogrid[: k // group // 2, :32, :group]
        a_registers = left[lane // 4 + 8 * (r % 2), (lane % 4 + 4 * (r // 2)) * group + e]
        r, lane, e = np.ogrid[: k // group // 4, :32, :group]
        b_registers = right[lane // 4 + 0 * r, (lane % 4 + 4 * r) * group + e]
        types = ACCUMULATOR[d], PTX[a], PTX[b], ACCUMULATOR[d]
        result = emulator_function("mma")(
            *(16, 8, k, *types, ""),
            *(a_registers.tobytes(), b_registers.tobytes(), to_registers(c, 8, 1), b"", 0),
        )
        expected = product_sum("mma", (a, b), left, right, c, d)
        np.testing.assert_array_equal(from_registers(result, d, 8, 1), expected)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_every_8_bit_float_as_operand(dtype):
    ones = np.zeros((2, 32, 4), "uint8")
    ones[0, LANE % 4 == 0, 0] = np.ones((), numpy_dtype(dtype)).view("uint8")
    for first in range(0, 256, 16):
        column = np.arange(first, first + 16, dtype="uint8")
        registers = np.zeros((4, 32, 4), "uint8")
        for half in (0, 1):
            registers[half, LANE % 4 == 0, 0] = column[8 * half : 8 * half + 8]
        result = emulator_function("mma")(
            *(16, 8, 32, "f32", PTX[dtype], PTX[dtype], "f32", ""),
            *(registers.tobytes(), ones.tobytes(), bytes(4 * 128), b"", 0),
        )
        expected = column.view(numpy_dtype(dtype)).astype("float32")
        actual = from_registers(result, "float32", 8, 1)
        np.testing.assert_array_equal(actual, np.repeat(expected[:, None], 8, axis=1))


def test_tf32_ignores_low_bits(rng):
    values = rng.standard_normal((16, 8), "float32")
    truncated = (values.view("uint32") & 0xFFFFE000).view("float32")
    assert (truncated != values).any() and (truncated != round_to_tf32(values)).any()
    r, lane = np.ogrid[:4, :32]
    registers = values[lane // 4 + 8 * (r % 2), lane % 4 + 4 * (r // 2)]
    r, lane = np.ogrid[:2, :32]
    identity = np.eye(8, dtype="float32")[lane // 4 + 0 * r, lane % 4 + 4 * r]
    result = emulator_function("mma")(
        *(16, 8, 8, "f32", "tf32", "tf32", "f32", ""),
        *(registers.tobytes(), identity.tobytes(), bytes(4 * 128), b"", 0),
    )
    np.testing.assert_array_equal(from_registers(result, "float32", 8, 1), truncated)


@pytest.mark.parametrize(
    "form, message",
    [
        ((16, 8, 16, "f16", "f16", "f16", "f32"), "does not exist"),
        ((8, 8, 8, "f32", "f16", "f16", "f32"), "allowed are m16n8k8, m16n8k16"),
        ((16, 8, 64, "f32", "s4", "s4", "f32"), "mma of s4 by s4"),
        ((16, 8, 256, "s32", "b1", "b1", "s32"), "needs .xor.popc or .and.popc"),
    ],
)
def test_mma_forms_that_do_not_exist(form, message):
    with pytest.raises(ValueError, match=message):
        emulator_function("mma")(*form, "", b"", b"", b"", b"", 0)


@pytest.mark.parametrize("count, trans", [(n, t) for n in (1, 2, 4) for t in (False, True)])
def test_ldmatrix_and_stmatrix(count, trans, rng):
    """PTX ISA: register q of lane l holds elements 2 (l % 4) and + 1 of row l // 4."""
    rows = SHARED_START + 16 * rng.permutation(64)[:32].astype("uint32")
    memory = rng.integers(0, 256, SHARED_START + 64 * 16, "uint8")
    halves = memory.view("uint16")
    matrices = np.stack([halves[row // 2 : row // 2 + 8] for row in rows]).reshape(4, 8, 8)
    matrices = matrices[:count].swapaxes(1, 2) if trans else matrices[:count]
    expected = matrices[:, LANE[:, None] // 4, 2 * (LANE[:, None] % 4) + np.arange(2)]
    loaded = emulator_function("ldmatrix")(count, trans, rows.tobytes(), memory.tobytes())
    registers = np.frombuffer(bytes(loaded), "uint16").reshape(count, 32, 2)
    np.testing.assert_array_equal(registers, expected)

    blank = bytes(memory.size)
    stored = emulator_function("stmatrix")(count, trans, rows.tobytes(), bytes(loaded), blank)
    stored = np.frombuffer(bytes(stored), "uint8")
    touched = np.zeros(memory.size, bool)
    for row in rows[: 8 * count]:
        touched[row : row + 16] = True
    np.testing.assert_array_equal(stored, np.where(touched, memory, 0))


def test_matrix_rows_are_aligned_and_in_bounds():
    rows = np.full(32, SHARED_START, "uint32")
    rows[5] += 8
    with pytest.raises(ValueError, match="lane 5 gives shared offset 0x408"):
        emulator_function("ldmatrix")(1, False, rows.tobytes(), bytes(2048))
    rows[5] = 2048
    with pytest.raises(ValueError, match="out of bounds"):
        emulator_function("stmatrix")(1, True, rows.tobytes(), bytes(128), bytes(2048))


@pytest.mark.parametrize("special", [0.0, 2.0**-133, 3e38, -3e38, np.inf, np.nan])
def test_sums_that_the_fast_loops_leave(special, rng):
    """bfloat16 has exponents that products cannot have, zeros have none, and infinities."""
    dtype = numpy_dtype("bfloat16")
    a, b = random_array(rng, (16, 16), "bfloat16"), random_array(rng, (8, 16), "bfloat16")
    c = random_array(rng, (16, 8), "float32")
    a[3] = np.asarray(special).astype(dtype)
    c[3] *= 1e-30 if abs(special) < 1 else 1
    by_half = a.astype("float32").reshape(2, 8, 16).transpose(0, 2, 1)
    columns = b.astype("float32").reshape(1, 4, 2, 16).transpose(0, 3, 2, 1)
    operands = np.repeat(by_half, 4, axis=2).tobytes(), np.ascontiguousarray(columns).tobytes()
    with np.errstate(invalid="ignore"):
        expected = product_sum("wgmma", ("bfloat16",) * 2, a, b, c, "float32")
    for kernel in emulator_function("product_kernels")():
        result = emulator_function("product")(
            kernel, 1, 8, 16, "bf16", *operands, to_registers(c, 8, 1)
        )
        actual = from_registers(result, "float32", 8, 1)
        if np.isfinite(special):
            np.testing.assert_array_equal(actual, expected, err_msg=kernel)
        else:
            assert not np.isfinite(actual[3]).any()
            others = np.delete(np.arange(16), 3)
            np.testing.assert_array_equal(actual[others], expected[others], err_msg=kernel)
