"""wmma.load, wmma.mma and wmma.store of every shape, type and layout, against numpy.

Fragments are opaque: tests look at what gets back to memory only. Sums are those of mma.sync.
"""

from __future__ import annotations

import dataclasses
import itertools
from fractions import Fraction

import numpy as np
import pytest

from tests.emulator.run_ptx import kernel, launch
from tests.emulator.tensor_core import product_sum
from tests.shared.reference import random_array
from warploom.compiler.callback import compile_cached
from warploom.compiler.invoke import current_request
from warploom.target import cuda_target

PTX = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "tf32",
    "float64": "f64",
    "int8": "s8",
    "uint8": "u8",
}
RESULT = {"float16": "f16", "float32": "f32", "float64": "f64", "int32": "s32"}
POISON = 0xA5
LAYOUTS = ("row", "col")
WIDE = [(16, 16, 16), (8, 32, 16), (32, 8, 16)]
#: Shape, operands, result, what is added.
FORMS = [
    *((s, "float16", d, c) for s in WIDE for d in ("float16", "float32") for c in RESULT if c in
      ("float16", "float32")),
    *((s, "bfloat16", "float32", "float32") for s in WIDE),
    *((s, kind, "int32", "int32") for s in WIDE for kind in ("int8", "uint8")),
    ((16, 16, 8), "float32", "float32", "float32"),
    ((8, 8, 4), "float64", "float64", "float64"),
]  # fmt: skip


def name_of(shape):
    return "m{}n{}k{}".format(*shape)


def registers(first, count, wide=False):
    return "{" + ", ".join(f"%{'x' if wide else 'f'}{first + i}" for i in range(count)) + "}"


def count_of(rows, columns, kind, operand):
    """Registers of a fragment; those of float16 have eight whether they need them or not."""
    if kind == "f16" and operand != "c":
        return 8
    bits = {"f16": 16, "bf16": 16, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1, "f64": 64}
    return rows * columns * bits.get(kind, 32) // (64 if kind == "f64" else 32) // 32


@dataclasses.dataclass
class Stored:
    """A matrix in memory, its rows or columns ``stride`` elements apart."""

    values: np.ndarray
    layout: str
    stride: int

    def memory(self) -> np.ndarray:
        lines = self.values if self.layout == "row" else self.values.T
        memory = np.full((len(lines), self.stride), POISON).astype(self.values.dtype)
        memory[:, : lines.shape[1]] = lines
        return memory

    def read(self, memory: np.ndarray) -> np.ndarray:
        lines = self.values if self.layout == "row" else self.values.T
        kept = memory[:, : lines.shape[1]]
        np.testing.assert_array_equal(
            memory[:, lines.shape[1] :], self.memory()[:, kept.shape[1] :]
        )
        return kept if self.layout == "row" else kept.T


def stored(rng, values, layout):
    """With a random stride whose bytes are a multiple of 16."""
    length = values.shape[1] if layout == "row" else values.shape[0]
    step = max(16 // values.itemsize, 1)
    stride = -(-length // step) * step + step * int(rng.integers(0, 4))
    return Stored(values, layout, stride)


def copies(space, sizes):
    """Shared copies of the first arrays; returns where each matrix is, and the PTX before."""
    if space == ".global":
        return [f"%p{i}" for i in range(len(sizes))], ""
    lines, places, offset = [], [], 0
    for i, size in enumerate(sizes):
        lines.append(
            f"mov.u32 %r0, %t;\nLOOP{i}:\nshl.b32 %r1, %r0, 2;\ncvt.u64.u32 %d0, %r1;\n"
            f"add.u64 %d1, %d0, %p{i};\nld.global.u32 %r2, [%d1];\nmov.u32 %r3, buf;\n"
            f"add.u32 %r3, %r3, %r1;\nst.shared.u32 [%r3+{offset}], %r2;\nadd.u32 %r0, %r0, 32;\n"
            f"setp.lt.u32 %q0, %r0, {size // 4};\n@%q0 bra LOOP{i};\n"
        )
        places.append(f"buf+{offset}" if space else f"%g{i}")
        if not space:
            lines.append(
                f"mov.u64 %g{i}, buf;\ncvta.shared.u64 %g{i}, %g{i};\n"
                f"add.u64 %g{i}, %g{i}, {offset};"
            )
        offset += -(-size // 128) * 128
    return places, "\n".join(lines) + "\nbar.warp.sync -1;\n"


DECLARATIONS = ".reg .b32 %f<40>;\n.reg .b64 %x<8>, %g<4>;\n.shared .align 128 .b8 buf[16384];\n"


@dataclasses.dataclass(frozen=True)
class Form:
    """Names in PTX of an MMA; ``operation`` is of b1, ``rounding`` of f64."""

    shape: tuple[int, int, int]
    kind: str
    d: str
    c: str
    operation: str = ""
    rounding: str = ""
    saturation: str = ""

    def instruction(self, layouts):
        types = f"{self.d}.{self.c}" if self.kind == "f16" else ".".join(
            (self.d, self.kind, self.kind, self.c)
        )  # fmt: skip
        return (
            f"wmma.mma{self.operation}.sync.aligned.{layouts[0]}.{layouts[1]}."
            f"{name_of(self.shape)}{self.rounding}.{types}{self.saturation}"
        )


def run(form, matrices, space=".global", scale=1):
    """D in memory after load, mma and store; ``matrices`` are A, B, C and the poisoned D.

    ``scale`` is how many elements of A and B there are in one of their arrays.
    """
    (m, n, k), kind = form.shape, form.kind
    layouts = [matrix.layout for matrix in matrices]
    wide = kind == "f64"
    places, body = copies(space, [matrix.memory().nbytes for matrix in matrices[:3]])
    first, names = 0, []
    extents = [(m, k, kind, "a"), (k, n, kind, "b"), (m, n, form.c, "c")]
    for i, (rows, columns, element, operand) in enumerate(extents):
        count = count_of(rows, columns, element, operand)
        names.append(registers(first, count, wide))
        first += count
        body += (
            f"mov.u32 %r9, {matrices[i].stride * (scale if i < 2 else 1)};\n"
            f"wmma.load.{operand}.sync.aligned.{layouts[i]}.{name_of(form.shape)}{space}.{element} "
            f"{names[i]}, [{places[i]}], %r9;\n"
        )
    result = registers(first, count_of(m, n, form.d, "c"), wide)
    body += (
        f"{form.instruction(layouts)} {result}, {', '.join(names)};\n"
        f"wmma.store.d.sync.aligned.{layouts[3]}.{name_of(form.shape)}.global.{form.d} [%p3], "
        f"{result}, {matrices[3].stride};\n"
    )
    arrays = [matrix.memory() for matrix in matrices]
    out = launch(kernel(4, body, DECLARATIONS), [a.view("uint8") for a in arrays])[3]
    return matrices[3].read(out.view(arrays[3].dtype).reshape(arrays[3].shape))


def choose(rng, layouts):
    """Layouts of A, B, C and D; those of C and D are anything."""
    return *layouts, *(str(layout) for layout in rng.choice(LAYOUTS, 2))


@pytest.mark.parametrize("layouts", list(itertools.product(LAYOUTS, repeat=2)))
@pytest.mark.parametrize("shape, kind, d, c", FORMS)
def test_products(shape, kind, d, c, layouts, rng):
    m, n, k = shape
    a, b = random_array(rng, (m, k), kind), random_array(rng, (k, n), kind)
    start = random_array(rng, (m, n), c)
    values = [a, b, start, np.full((m, n), POISON).astype(d)]
    matrices = [stored(rng, v, at) for v, at in zip(values, choose(rng, layouts), strict=True)]
    space = str(rng.choice([".global", ".shared", ".shared::cta", ""]))
    actual = run(Form(shape, PTX[kind], RESULT[d], RESULT[c]), matrices, space)
    if kind == "float64":
        # The operands have 24 bits, so that products are exact, as in a fused multiply-add.
        expected = start.copy()
        for i in range(k):
            expected += a[:, i, None] * b[None, i]
        np.testing.assert_array_equal(actual, expected)
        return
    sums = "float16" if d == c == "float16" else "float32" if d != "int32" else d
    # The H200 sums tf32 in steps of four.
    step = 4 if kind == "float32" else k
    expected = start
    for i in range(0, k, step):
        part = slice(i, i + step)
        expected = product_sum("mma", (kind, kind), a[:, part], b[part].T, expected, sums)
    np.testing.assert_array_equal(actual, expected.astype(d))


def run_narrow(rng, form, a, b, c):
    """Of elements of less than a byte: ``a`` and ``b`` are rows and columns of packed bytes."""
    per_byte = 8 if form.kind == "b1" else 2
    matrices = [stored(rng, a, "row"), stored(rng, b.T, "col")]
    for values, layout in zip((c, np.full_like(c, POISON)), rng.choice(LAYOUTS, 2), strict=True):
        matrices.append(stored(rng, values, str(layout)))
    return run(form, matrices, scale=per_byte)


@pytest.mark.parametrize("saturate", ["", ".satfinite"])
@pytest.mark.parametrize("signed", [True, False])
def test_integers_of_four_bits(signed, saturate, rng):
    kind = "s4" if signed else "u4"
    low = -8 if signed else 0
    a, b = rng.integers(low, low + 16, (8, 32)), rng.integers(low, low + 16, (32, 8))
    c = random_array(rng, (8, 8), "int32")
    c[0] = 2**31 - 1
    packed_a, packed_b = (
        ((x[:, ::2] & 15) | (x[:, 1::2] & 15) << 4).astype("uint8") for x in (a, b.T)
    )
    exact = a @ b + c.astype("int64")
    expected = np.clip(exact, -(2**31), 2**31 - 1) if saturate else exact
    form = Form((8, 8, 32), kind, "s32", "s32", saturation=saturate)
    actual = run_narrow(rng, form, packed_a, packed_b, c)
    np.testing.assert_array_equal(actual, expected.astype("int32"))


@pytest.mark.parametrize("operation", ["xor", "and"])
def test_bits(operation, rng):
    a, b = rng.integers(0, 2, (8, 128)), rng.integers(0, 2, (128, 8))
    c = random_array(rng, (8, 8), "int32")
    packed_a, packed_b = (np.packbits(x, axis=1, bitorder="little") for x in (a, b.T))
    pairs = a[:, :, None] ^ b if operation == "xor" else a[:, :, None] & b
    form = Form((8, 8, 128), "b1", "s32", "s32", f".{operation}.popc")
    actual = run_narrow(rng, form, packed_a, packed_b, c)
    np.testing.assert_array_equal(actual, pairs.sum(axis=1) + c)


@pytest.mark.parametrize("rounding", [".rn", ".rz", ".rm", ".rp"])
def test_doubles_are_rounded_as_the_instruction_says(rounding, rng):
    a, b = rng.standard_normal((8, 4)), rng.standard_normal((4, 8))
    a[:, 1:] = 0
    c = np.zeros((8, 8))
    matrices = [stored(rng, v, "row") for v in (a, b, c, c + POISON)]
    actual = run(Form((8, 8, 4), "f64", "f64", "f64", rounding=rounding), matrices)
    for row, column in itertools.product(range(8), repeat=2):
        exact = Fraction(a[row, 0]) * Fraction(b[0, column])
        value = float(exact)  # rounded to nearest
        wrong = {".rm": value > exact, ".rp": value < exact, ".rz": abs(value) > abs(exact)}
        if wrong.get(rounding, False):
            up = rounding == ".rp" or (rounding == ".rz" and value < 0)
            value = np.nextafter(value, np.inf if up else -np.inf)
        assert actual[row, column] == value


def test_the_default_stride_is_the_length_of_a_line(rng):
    a = random_array(rng, (8, 16), "float16")
    body = f"""
wmma.load.b.sync.aligned.col.m32n8k16.global.f16 {registers(0, 8)}, [%p0];
wmma.load.c.sync.aligned.row.m32n8k16.global.f32 {registers(8, 8)}, [%p1];
wmma.load.a.sync.aligned.col.m32n8k16.global.f16 {registers(16, 8)}, [%p2];
wmma.mma.sync.aligned.col.col.m32n8k16.f32.f32 {registers(8, 8)}, {registers(16, 8)},
  {registers(0, 8)}, {registers(8, 8)};
wmma.store.d.sync.aligned.row.m32n8k16.global.f32 [%p1], {registers(8, 8)};
"""
    c, left = random_array(rng, (32, 8), "float32"), random_array(rng, (16, 32), "float16")
    out = launch(kernel(3, body, DECLARATIONS), [a, c, left])[1]
    expected = product_sum("mma", ("float16",) * 2, left.T, a, c, "float32")
    np.testing.assert_array_equal(out, expected)


def test_scaling_a_fragment_scales_the_matrix(rng):
    """What programs may do with a fragment: the same to all of its registers."""
    values = random_array(rng, (16, 16), "float32")
    scale = "".join(f"add.f32 %f{i}, %f{i}, %f{i};\n" for i in range(8))
    body = f"""
wmma.load.c.sync.aligned.col.m16n16k16.global.f32 {registers(0, 8)}, [%p0], 16;
{scale}
wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%p0], {registers(0, 8)}, 16;
"""
    declarations = DECLARATIONS.replace(".reg .b32 %f", ".reg .f32 %f")
    (out,) = launch(kernel(1, body, declarations), [values])
    np.testing.assert_array_equal(out, 2 * values.T)


#: The functions of NVRTC that nvcuda::wmma consists of; its header is not part of every CUDA.
CUDA = """
#include <cuda_fp16.h>
extern "C" {
__device__ void __hmma_m16n16k16_ld_a(int*, const int*, unsigned, int);
__device__ void __hmma_m16n16k16_ld_b(int*, const int*, unsigned, int);
__device__ void __hmma_m16n16k16_st_c_f32(float*, const float*, unsigned, int);
__device__ void __hmma_m16n16k16_mma_f32f32(float*, const int*, const int*, const float*, int, int);
}
extern "C" __global__ void kernel(const __half* a, const __half* b, float* c) {
  __shared__ __align__(32) __half tile[16 * 24];
  int row = 16 * (threadIdx.x / 32), column = 16 * blockIdx.x;
  float sum[8];
  for (int i = 0; i < 8; ++i) sum[i] = 0.5f;
  for (int k = 0; k < 64; k += 16) {
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) {
      tile[i / 16 * 24 + i % 16] = b[(column + i / 16) * 64 + k + i % 16];
    }
    __syncthreads();
    int left[8], right[8];
    __hmma_m16n16k16_ld_a(left, reinterpret_cast<const int*>(a + row * 64 + k), 64, 0);
    __hmma_m16n16k16_ld_b(right, reinterpret_cast<const int*>(tile), 24, 1);
    __hmma_m16n16k16_mma_f32f32(sum, left, right, sum, 1, 0);
  }
  for (int i = 0; i < 8; ++i) sum[i] *= 2;
  __hmma_m16n16k16_st_c_f32(c + row * 32 + column, sum, 32, 0);
}
"""


def test_a_program_with_fragments_of_cuda(rng):
    a, b = random_array(rng, (32, 64), "float16"), random_array(rng, (32, 64), "float16")
    with cuda_target("sm_90a"):
        ptx = compile_cached(current_request(CUDA, "ptx")).output.binary.decode()
    assert "wmma.mma" in ptx
    body = ptx.partition(".address_size 64")[2].rstrip("\0")
    c = np.full((32, 32), np.nan, "float32")
    actual = launch(body, [a, b, c], grid=(2, 1, 1), block=(64, 1, 1))[2]
    expected = np.full_like(c, 0.5)
    for k in range(0, 64, 16):
        part = np.s_[:, k : k + 16]
        expected = product_sum("mma", ("float16",) * 2, a[part], b[part], expected, "float32")
    np.testing.assert_array_equal(actual, 2 * expected)
