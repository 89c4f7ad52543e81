"""Every form of ``wgmma.mma_async`` as data (PTX ISA, "wgmma.mma_async" and its sub-sections).

With a sparse A (``.sp``) the same types and widths exist, and an instruction consumes twice the K.

A :class:`WgmmaKind` is one row of the manual's table of types; the compiler, the tests and the
emulator only read it. Nothing else in warploom knows which shapes are legal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from warploom.errors import IllegalCombination
from warploom.target.dtypes import dtype_name
from warploom.target.swizzle import Major

#: Rows of D that one instruction, issued by one warpgroup, computes.
WGMMA_M = 64
#: Bytes of a row of A that one instruction consumes, for all dtypes; of B too, unless A is sparse.
WGMMA_K_BYTES = 32
#: How many groups ``wgmma.wait_group`` may leave pending.
WGMMA_PENDING = range(8)

_N_FLOAT = tuple(range(8, 257, 8))
_N_INT = (8, 16, 24, 32, *range(48, 257, 16))

#: TVM dtype -> (PTX type suffix, bits an element occupies in shared memory).
#: TVM has no tf32 dtype: float32 operands are fed to the tensor core as tf32.
_ELEMENT = {
    "float16": ("f16", 16),
    "bfloat16": ("bf16", 16),
    "float32": ("tf32", 32),
    "float8_e4m3fn": ("e4m3", 8),
    "float8_e5m2": ("e5m2", 8),
    "int8": ("s8", 8),
    "uint8": ("u8", 8),
}
_ACCUMULATOR = {"float32": "f32", "float16": "f16", "int32": "s32"}


#: Registers that ptxas wants for one MMA beside its results (CUDA 13.5: "Insufficient registers
#: (80) to compile instruction, try 90 or higher", of 64 results).
_BESIDE_RESULTS = 26


@dataclass(frozen=True)
class WgmmaKind:
    """A legal combination of element types.

    Attributes
    ----------
    a, b, d : str
        TVM dtypes of the operands and of the accumulator.
    n : tuple of int
        Legal widths of one instruction.
    transpose : bool
        Whether MN-major shared operands exist (16-bit types only).
    negate : bool
        Whether ``imm-scale-a`` / ``imm-scale-b`` exist (floating-point types only).
    sparse : bool
        Whether A holds half of the elements of K, and metadata says which.

    Examples
    --------
    >>> max(wgmma_kind("int8", "int8", "int32").n)
    256
    """

    a: str
    b: str
    d: str
    n: tuple[int, ...]
    transpose: bool
    negate: bool
    sparse: bool = False

    def __post_init__(self) -> None:
        assert _ELEMENT[self.a][1] == _ELEMENT[self.b][1], "operands have the same width"
        assert self.a_k * self.bits == 8 * WGMMA_K_BYTES, "A's part of K is 256 bits"
        assert self.k == self.a_k * (2 if self.sparse else 1)
        assert self.transpose == (self.bits == 16), "only 16-bit operands can be MN-major"
        assert all(n % 8 == 0 and 8 <= n <= 256 for n in self.n)
        assert (self.d == "int32") == self.a.endswith("int8") and self.negate == (self.d != "int32")

    @property
    def bits(self) -> int:
        """Bits of one element of A or B."""
        return _ELEMENT[self.a][1]

    @property
    def k(self) -> int:
        """Elements of K that one instruction consumes: those of a row of B."""
        return self.a_k * (2 if self.sparse else 1)

    @property
    def a_k(self) -> int:
        """Elements of a row of A that one instruction consumes."""
        return 8 * WGMMA_K_BYTES // self.bits

    @property
    def metadata_bytes(self) -> int:
        """Bytes of metadata of a row of A for one instruction; 0 if A is not sparse."""
        return (8 if self.bits == 8 else 4) if self.sparse else 0

    @property
    def selectors(self) -> int:
        """Values of the sparsity selector: instructions whose metadata share a register."""
        return 8 // self.metadata_bytes if self.sparse else 0

    @property
    def majors(self) -> tuple[Major, ...]:
        """Legal major-ness of a shared-memory operand."""
        return (Major.K, Major.MN) if self.transpose else (Major.K,)

    @property
    def a_registers(self) -> int:
        """32-bit registers a thread holds of a ``64 x k`` A operand in the register form."""
        return WGMMA_M * WGMMA_K_BYTES // 4 // 128

    def d_registers(self, n: int) -> int:
        """32-bit registers a thread holds of a ``64 x n`` accumulator."""
        return WGMMA_M * n // 128 // (2 if self.d == "float16" else 1)

    def launch_registers(self, n: int) -> int:
        """Registers of a thread that ptxas must have, at the launch, for an instruction of ``n``.

        Examples
        --------
        >>> wgmma_kind("float16", "float16", "float32").launch_registers(256)
        154
        """
        return self.d_registers(n) + _BESIDE_RESULTS

    def opcode(self, n: int) -> str:
        """The PTX instruction, e.g. ``wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16``."""
        if n not in self.n:
            raise IllegalCombination(
                f"wgmma: N = {n} is not a legal width for {self.a} x {self.b}; "
                f"allowed are {_compact(self.n)}."
            )
        shape = f"m{WGMMA_M}n{n}k{self.k}"
        types = f"{_ACCUMULATOR[self.d]}.{_ELEMENT[self.a][0]}.{_ELEMENT[self.b][0]}"
        return f"wgmma.mma_async{'.sp' if self.sparse else ''}.sync.aligned.{shape}.{types}"

    def split_n(self, n: int, align: int = 8) -> tuple[int, ...]:
        """Widths of the fewest instructions, as equal as can be, that together cover ``n``.

        All but the last are the same multiple of ``align``: the columns of an MN-major B can only
        be entered at the start of a swizzle atom.

        Raises
        ------
        IllegalCombination
            If no sum of legal widths gives ``n`` (for instance when it is no multiple of 8).
        """
        widths = [w for w in self.n if w % align == 0]
        for count in range(max(1, -(-n // 256)), n // 8 + 1):
            for width in widths if count > 1 else (n,):
                last = n - (count - 1) * width
                if last <= width and last in self.n:
                    return (width,) * (count - 1) + (last,)
        raise IllegalCombination(
            f"wgmma: N = {n} cannot be cut into legal widths for {self.a} x {self.b}; "
            f"one instruction takes {_compact(self.n)}."
        )


def _compact(values: tuple[int, ...]) -> str:
    """``8, 16, ... 256`` for a long arithmetic sequence, else the plain list."""
    if len(values) > 3 and len({b - a for a, b in pairwise(values)}) == 1:
        return f"{values[0]}, {values[1]}, ... {values[-1]}"
    return ", ".join(map(str, values))


def _floats(a: str, b: str, *accumulators: str) -> list[WgmmaKind]:
    transpose = _ELEMENT[a][1] == 16
    return [WgmmaKind(a, b, d, _N_FLOAT, transpose, negate=True) for d in accumulators]


_FP8 = ("float8_e4m3fn", "float8_e5m2")
_INT = ("int8", "uint8")

#: Every combination of dtypes that ``wgmma.mma_async`` has, with dense operands.
WGMMA_KINDS: tuple[WgmmaKind, ...] = (
    *_floats("float16", "float16", "float32", "float16"),
    *_floats("bfloat16", "bfloat16", "float32"),
    *_floats("float32", "float32", "float32"),
    *(kind for a in _FP8 for b in _FP8 for kind in _floats(a, b, "float32", "float16")),
    *(WgmmaKind(a, b, "int32", _N_INT, False, negate=False) for a in _INT for b in _INT),
)

#: The same with a sparse A: 2:4, or 1:2 of float32.
WGMMA_SPARSE_KINDS = tuple(replace(kind, sparse=True) for kind in WGMMA_KINDS)

_BY_DTYPES = {
    (kind.a, kind.b, kind.d, kind.sparse): kind for kind in (*WGMMA_KINDS, *WGMMA_SPARSE_KINDS)
}
assert len(WGMMA_KINDS) == 16 and len(_BY_DTYPES) == 32


def wgmma_kind(a: str, b: str, d: str, sparse: bool = False) -> WgmmaKind:
    """The row for operands of dtype ``a`` and ``b`` accumulated in ``d``; of a sparse A if asked.

    Raises
    ------
    IllegalCombination
        If the hardware has no such instruction; the message lists the accumulators or the
        operand pairs that exist.

    Examples
    --------
    >>> wgmma_kind("float16", "float16", "float32").transpose
    True
    """
    a, b, d = dtype_name(a, "a"), dtype_name(b, "b"), dtype_name(d, "d")
    kind = _BY_DTYPES.get((a, b, d, sparse))
    if kind is not None:
        return kind
    accumulators = [k.d for k in WGMMA_KINDS if (k.a, k.b) == (a, b)]
    if accumulators:
        raise IllegalCombination(
            f"wgmma: {a} x {b} cannot accumulate in {d}; allowed: {', '.join(accumulators)}."
        )
    pairs = sorted({f"{k.a} x {k.b}" for k in WGMMA_KINDS})
    raise IllegalCombination(f"wgmma: no instruction for {a} x {b}; allowed: {', '.join(pairs)}.")
