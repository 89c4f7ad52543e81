"""tcgen05.mma in numpy: operands in shared and tensor memory, and what D holds afterwards.

Shared memory is laid out by warploom's layouts, D by TVM's layouts of the data paths. Sums are
formed in the order that the emulator documents, so that results are equal to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import ml_dtypes
import numpy as np
from tvm.tirx.layout import tmem_datapath_layout

from tests.emulator.native import SHARED_START, emulator_function
from tests.shared.layout_evaluation import evaluate_layout
from tests.shared.reference import random_array
from warploom.layout.smem_matrix import SharedMatrix
from warploom.target.swizzle import Major, Swizzle

LANES, COLUMNS = 128, 512
E8M0, E4M3 = "ue8m0", "ue4m3"
NARROW = {"e2m3": ml_dtypes.float6_e2m3fn, "e3m2": ml_dtypes.float6_e3m2fn,
          "e2m1": ml_dtypes.float4_e2m1fn}  # fmt: skip
STORAGE = {"f16": "float16", "bf16": "bfloat16", "tf32": "float32", "e4m3": "float8_e4m3fn",
           "e5m2": "float8_e5m2", "s8": "int8", "u8": "uint8"}  # fmt: skip
#: Codes of the operands in the instruction descriptor (PTX ISA, "Instruction descriptor").
_NARROW_CODES = {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}
OPERANDS = {
    "f16": {"f16": 0, "bf16": 1},
    "tf32": {"tf32": 2},
    "f8f6f4": _NARROW_CODES,
    "i8": {"u8": 0, "s8": 1},
    "mxf8f6f4": _NARROW_CODES,
    "mxf4": {"e2m1": 1},
    "mxf4nvf4": {"e2m1": 1},
}
ACCUMULATORS = {"f16": 0, "f32": 1, "s32": 2}
KINDS = list(OPERANDS)
K = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}


@dataclass(frozen=True)
class Mma:
    """One instruction, and where its operands lie."""

    kind: str
    a: str
    b: str
    d: str
    m: int
    n: int
    cta_group: int = 1
    ws: bool = False
    majors: tuple[Major, Major] = (Major.K, Major.K)
    swizzles: tuple[Swizzle, Swizzle] = (Swizzle.B128, Swizzle.B128)
    a_in_tensor_memory: bool = False
    vectors: int = 0
    scale: str = E8M0
    ids: tuple[int, int] = (0, 0)
    negate: tuple[bool, bool] = (False, False)
    saturate: bool = False
    accumulate: bool = True
    scale_input: int = 0
    max_shift: int = 0
    zero_columns: int = 0
    ashift: bool = False
    sparse: bool = False
    selector: int = 0
    disabled: tuple[int, ...] = field(default=(0,) * 8)

    @property
    def k(self) -> int:
        return K[self.kind]

    @property
    def b_k(self) -> int:
        """Elements of a row of B."""
        return 2 * self.k if self.sparse else self.k

    @property
    def rows(self) -> int:
        """Rows of A and D in each CTA."""
        return self.m // self.cta_group

    @property
    def letter(self) -> str:
        """The data path layout."""
        if self.cta_group == 2:
            return {256: "A", 128: "B"}[self.m]
        return {128: "D", 64: "E" if self.ws else "F", 32: "G"}[self.m]

    @property
    def instruction(self) -> int:
        """The instruction descriptor."""
        codes = OPERANDS[self.kind]
        bits = codes[self.a] << 7 | codes[self.b] << 10 | self.n // 8 << 17 | self.m // 16 << 24
        bits |= self.negate[0] << 13 | self.negate[1] << 14
        bits |= self.sparse << 2 | self.selector
        bits |= (self.majors[0] is Major.MN) << 15 | (self.majors[1] is Major.MN) << 16
        if self.vectors:
            return bits | (self.scale == E8M0) << 23 | self.ids[0] << 29 | self.ids[1] << 4
        code = {0: 0, 8: 1, 16: 2, 32: 3}[self.max_shift]
        return bits | ACCUMULATORS[self.d] << 4 | self.saturate << 3 | code << 30

    @property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Lane and column ``[rows, n]`` of D in each CTA."""
        layout = tmem_datapath_layout(self.letter, self.rows, self.n)
        axes = evaluate_layout(layout, (self.rows, self.n))
        return axes["TLane"], axes["TCol"]


def random_codes(rng, shape, dtype):
    """Random operand elements as stored (narrow ones a code in a byte) and as float64."""
    if dtype in NARROW:
        codes = rng.integers(0, 1 << (4 if dtype == "e2m1" else 6), shape, "uint8")
        return codes, codes.view(NARROW[dtype]).astype("float64")
    values = random_array(rng, shape, STORAGE[dtype])
    if dtype == "tf32":  # the tensor core ignores the low bits
        garbage = rng.integers(0, 1 << 13, shape, "uint32")
        return (values.view("uint32") | garbage).view("float32"), values.astype("float64")
    return values, values.astype("float64")


def pack_nibbles(codes):
    """Two codes a byte, the first in the low bits."""
    return codes[..., 0::2] | codes[..., 1::2] << 4


def pack_shared_rows(rng, codes, dtype, kind):
    """Rows ``[rows, k]`` of codes as the bytes ``[rows, 32]`` of shared memory."""
    if kind.startswith("mxf4"):
        return pack_nibbles(codes)
    groups = codes.reshape(*codes.shape[:-1], -1, 16)
    out = rng.integers(0, 256, groups.shape, "uint8")  # what follows the codes is padding
    if dtype == "e2m1":
        out[..., :8] = pack_nibbles(groups)
    else:
        bits = (groups[..., None] >> np.arange(6) & 1).reshape(*groups.shape[:-1], 96)
        out[..., :12] = np.packbits(bits, axis=-1, bitorder="little")
    return out.reshape(*codes.shape[:-1], 32)


def pack_tensor_rows(codes, dtype, kind):
    """Rows ``[rows, k]`` as the words ``[rows, 8]`` of tensor memory."""
    if kind.startswith("mxf4"):
        codes = pack_nibbles(codes)
    elif dtype == "e2m1":
        codes = codes << 2
    return np.ascontiguousarray(codes).view("uint32")


class SharedOperand:
    """A ``rows x k`` operand in a larger shared buffer, entered at a random legal place."""

    def __init__(self, rng, geometry, mma, index, rows, start):
        dtype, major, swizzle = (mma.a, mma.b)[index], mma.majors[index], mma.swizzles[index]
        narrow = dtype in NARROW
        storage, k = ("uint8", 32) if narrow else (STORAGE[dtype], mma.b_k if index else mma.k)
        columns = swizzle.row_bytes * (32 if narrow else mma.k) // 32
        if major is Major.K:
            atoms = -(-k // columns) + int(geometry.integers(0, 2))
            extents = rows + 8 * int(geometry.integers(0, 3)), max(atoms * columns, k)
        else:
            atoms = -(-rows // columns) + int(geometry.integers(0, 2))
            extents = atoms * columns, k + 8 * int(geometry.integers(0, 3))
        matrix = SharedMatrix(storage, major, swizzle, *extents)
        mn0 = int(geometry.integers(0, (matrix.mn - rows) // matrix.mn_align + 1)) * matrix.mn_align
        k_align = k if mma.sparse and index else matrix.k_align  # rows of B end in their atom
        k0 = int(geometry.integers(0, (matrix.k - k) // k_align + 1)) * k_align
        stored, values = random_codes(rng, (matrix.mn, matrix.k), "u8" if narrow else dtype)
        if narrow:
            codes, self.values = random_codes(rng, (rows, mma.k), dtype)
            stored[mn0 : mn0 + rows, k0 : k0 + k] = pack_shared_rows(rng, codes, dtype, mma.kind)
        else:
            self.values = values[mn0 : mn0 + rows, k0 : k0 + k]
        offsets = evaluate_layout(matrix.layout(), matrix.shape)["m"]
        self.bytes = np.empty(stored.size, stored.dtype)
        self.bytes[offsets] = stored if major is Major.K else stored.T
        self.descriptor = matrix.tcgen05_descriptor + (start + matrix.byte_offset(mn0, k0) >> 4)


class TensorMemory:
    """The cells of each CTA, poisoned with random bits, and ranges of columns to put things in."""

    def __init__(self, rng, ctas):
        self.cells = rng.integers(0, 1 << 32, (ctas, LANES, COLUMNS), "uint32")
        self._next = int(rng.integers(0, 5))

    @property
    def next(self):
        return self._next

    def take(self, columns):
        start, self._next = self._next, self._next + columns
        assert self._next <= COLUMNS
        return start


def write_tensor_a(rng, mma, tensor):
    """Put A into tensor memory; returns its column and float64 ``[banks, m, k]``.

    Every bank has another A: a data path reads the lanes that it writes.
    """
    lane, _ = mma.places
    banks = 128 // mma.rows if mma.letter in "BEG" else 1
    start = tensor.take(8)
    values = np.empty((banks, mma.m, mma.k))
    for bank in range(banks):
        codes, values[bank] = random_codes(rng, (mma.m, mma.k), mma.a)
        words = pack_tensor_rows(codes, mma.a, mma.kind).reshape(mma.cta_group, mma.rows, 8)
        lanes = lane[:, bank * mma.n // banks]
        tensor.cells[:, lanes, start : start + 8] = words
    return start, values


def write_metadata(rng, mma, tensor):
    """Put the metadata of A into tensor memory; returns its column and the places in K ``[m, k]``.

    A group of elements of K is four of which two are held, or two of which one is, of tf32.
    """
    group, held = (2, 1) if mma.a == "tf32" else (4, 2)
    groups = mma.b_k // group
    picked = rng.permuted(np.tile(np.arange(group), (mma.m, groups, 1)), axis=2)[..., :held]
    picked = np.sort(picked, axis=2)  # sums are formed in this order
    places = (picked + group * np.arange(groups)[:, None]).reshape(mma.m, mma.k)
    low, high = picked[..., 0], picked[..., -1]
    nibbles = np.where(low, 0xE, 0x4) if held == 1 else low | high << 2
    shifts = 4 * np.arange(8, dtype="uint32")
    tensor.take(tensor.next % 2)
    start = tensor.take(2)
    for cta, part in enumerate(np.split(nibbles.astype("uint32"), mma.cta_group)):
        if STORAGE[mma.a] in ("float16", "bfloat16", "float32"):
            # [group of 16 rows, half, row of 8, half of K, chunk]
            parts = part.reshape(8, 2, 8, 2, 4)
            words = (parts << shifts[:4]).sum(-1)
            words = (words[:, 0] | words[:, 1] << 16).transpose(0, 2, 1).reshape(LANES)
            tensor.cells[cta, :, start + mma.selector] = words
        else:
            words = (part.reshape(LANES, 2, 8) << shifts).sum(-1)
            tensor.cells[cta, :, start : start + 2] = words
    return start, places


def spread(a, places, k):
    """The dense ``[banks, m, k]`` of held elements."""
    dense = np.zeros((*a.shape[:2], k))
    np.put_along_axis(dense, np.broadcast_to(places, a.shape), a, axis=2)
    return dense


def random_scales(rng, shape, dtype):
    """Scale factors as bytes and as float64."""
    if dtype == E8M0:
        codes = rng.integers(96, 160, shape, "uint8")
        return codes, np.exp2(codes.astype("float64") - 127)
    codes = rng.integers(0, 127, shape, "uint8")
    return codes, codes.view(ml_dtypes.float8_e4m3fn).astype("float64")


def write_scales(rng, mma, tensor):
    """Put the scale factors into tensor memory; returns columns and ``[m, v]``, ``[n, v]``."""
    a_codes, a = random_scales(rng, (mma.m, mma.vectors), mma.scale)
    b_codes, b = random_scales(rng, (mma.n, mma.vectors), mma.scale)
    starts = tensor.take(-(-mma.rows // 32)), tensor.take(-(-mma.n // 32))
    halves = mma.letter == "B"  # half of the columns of D in each half of the lanes
    cells = tensor.cells.view("uint8").reshape(*tensor.cells.shape, 4)
    for cta in range(mma.cta_group):
        for quarter in range(4):
            rows = slice(cta * mma.rows, (cta + 1) * mma.rows)
            part = slice(quarter // 2 * mma.n // 2, (quarter // 2 + 1) * mma.n // 2)
            for codes, start, byte in (
                (a_codes[rows], starts[0], mma.ids[0]),
                (b_codes[part] if halves else b_codes, starts[1], mma.ids[1]),
            ):
                i = np.arange(len(codes))
                place = cells[cta, 32 * quarter + i % 32, start + i // 32]
                place[:, byte : byte + mma.vectors] = codes
                cells[cta, 32 * quarter + i % 32, start + i // 32] = place
    return starts, a, b


def read_d(mma, cells):
    """D ``[m, n]`` of the cells of all CTAs, in its own type."""
    lane, column = mma.places
    words = np.concatenate([cta[lane, column] for cta in cells])
    if mma.d == "f16":
        return words.astype("uint16").view("float16")
    return words.view({"f32": "float32", "s32": "int32"}[mma.d])


def write_random_d(rng, mma, tensor):
    """Put a random D into tensor memory; returns its column."""
    lane, column = mma.places
    start = tensor.take(int(column.max()) + 1)
    dtype = {"f16": "float16", "f32": "float32", "s32": "int32"}[mma.d]
    values = random_array(rng, (mma.m, mma.n), dtype)
    words = values.view("uint16" if mma.d == "f16" else "uint32").astype("uint32")
    for cta, part in enumerate(np.split(words, mma.cta_group)):
        tensor.cells[cta][lane, start + column] = part
    return start


def is_zero_column(mma):
    """Which columns of B the mask replaces (PTX ISA, "Zero-Column Mask Descriptor")."""
    bits, width = mma.zero_columns, mma.n * mma.m // 128
    if not bits >> 39 & 1:
        return np.zeros(mma.n, bool)
    zeros, used = [True] * ((bits >> 40 & 255) + 1), [False] * ((bits >> 48 & 255) + 1)
    masks = []
    for i in range(mma.n // width):
        pattern = zeros + used if bits >> (32 + i) & 1 else used + zeros
        endless = pattern * (2 + (width + 255) // len(pattern))
        start = bits >> (8 * i) & 255
        masks += endless[start : start + width]
    return np.array(masks)


def accumulate(mma, a, b, c, scales):
    """D after the instruction: ``a [banks, m, k]``, ``b [n, k]``, ``c [m, n]``."""
    columns = mma.n // len(a)
    b = np.where(is_zero_column(mma)[:, None], 0.0, b[mma.zero_columns >> 56 & 63 :][: mma.n])
    sign = -1.0 if mma.negate[0] != mma.negate[1] else 1.0
    a = sign * np.repeat(a, columns, axis=0).transpose(1, 0, 2)  # [m, n, k]
    start = c if mma.accumulate else np.zeros_like(c)
    if mma.d == "s32":
        exact = (a * b).sum(-1).astype("int64") + start
        bounds = np.iinfo("int32")
        return (np.clip(exact, bounds.min, bounds.max) if mma.saturate else exact).astype("int32")
    total = (start.astype("float32") * np.float32(2.0**-mma.scale_input)).astype("float32")
    if not mma.vectors:
        return _sum(a * b, total).astype(c.dtype)
    for block in range(mma.vectors):
        part = slice(block * mma.k // mma.vectors, (block + 1) * mma.k // mma.vectors)
        scaled = _sum(a[..., part] * b[..., part], np.zeros_like(total)).astype("float64")
        scaled *= scales[0][:, block, None] * scales[1][None, :, block]
        total = (total + scaled).astype("float32")
    return total


def _sum(products, total):
    for k in range(products.shape[-1]):
        total = (total + products[..., k]).astype("float32")
    return total


@dataclass
class Run:
    """What an instruction did."""

    actual: np.ndarray  # D
    expected: np.ndarray
    before: np.ndarray  # cells of all tensor memories
    after: np.ndarray
    a_column: int = 0
    d_column: int = 0


def run(rng, mma: Mma, execute: Callable[..., np.ndarray] | None = None, repeat: int = 1) -> Run:
    """Run ``mma`` on random operands: by ``execute``, else by calling the emulator's function."""
    tensor = TensorMemory(rng, mma.cta_group)
    d_column = write_random_d(rng, mma, tensor)
    shared = [bytearray(rng.bytes(SHARED_START)) for _ in range(mma.cta_group)]
    a_column = a_descriptor = 0
    if mma.a_in_tensor_memory:
        a_column, a = write_tensor_a(rng, mma, tensor)
        a_descriptor = a_column
    else:
        a, a_descriptor = _write_shared(rng, mma, 0, mma.rows, shared)
        a = a[None]
    shift = mma.zero_columns >> 56 & 63
    b_rows = -(-(mma.n // mma.cta_group + shift) // 8) * 8
    b, b_descriptor = _write_shared(rng, mma, 1, b_rows, shared)
    scale_columns, scales = (0, 0), ()
    if mma.vectors:
        scale_columns, *scales = write_scales(rng, mma, tensor)
    metadata = 0
    if mma.sparse:
        metadata, places = write_metadata(rng, mma, tensor)
        a = spread(a, places, mma.b_k)
    before = tensor.cells.copy()
    c = read_d(mma, np.roll(before, -d_column, axis=2))
    words = [a_descriptor, b_descriptor, d_column, mma.instruction, mma.zero_columns]
    words += [*scale_columns, *mma.disabled, metadata]
    after = (execute or partial(call, repeat=repeat))(mma, words, shared, before)
    actual = read_d(mma, np.roll(after, -d_column, axis=2))
    return Run(actual, accumulate(mma, a, b, c, scales), before, after, a_column, d_column)


def call(mma, words, shared, cells, repeat=1):
    """Execute on given operands and memories; returns the cells of all tensor memories."""
    names = ("sp", "ws", "a_in_tensor_memory", "ashift", "accumulate")
    modifiers = [name for name in names if getattr(mma, "sparse" if name == "sp" else name)]
    result = emulator_function("umma")(
        *(mma.kind, mma.cta_group, mma.vectors, mma.scale_input, " ".join(modifiers)),
        np.array(words, "uint64").tobytes(),
        [bytes(memory) for memory in shared],
        [np.ascontiguousarray(cta).tobytes() for cta in cells],
        repeat,
    )
    cells = [np.frombuffer(bytes(cta), "uint32").reshape(LANES, COLUMNS) for cta in result]
    return np.stack(cells)


def _write_shared(rng, mma, index, rows, shared):
    """One operand at the same place of every shared memory; its values, one CTA after the other."""
    start = max(-(-len(memory) // 1024) * 1024 for memory in shared)
    values, descriptors = [], set()
    seed = int(rng.integers(1 << 32))
    for memory in shared:
        operand = SharedOperand(rng, np.random.default_rng(seed), mma, index, rows, start)
        memory += rng.bytes(start - len(memory)) + operand.bytes.tobytes()
        values.append(operand.values)
        descriptors.add(operand.descriptor)
    (descriptor,) = descriptors
    return np.concatenate(values), descriptor
