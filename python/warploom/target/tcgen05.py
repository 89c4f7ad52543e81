"""Every form of ``tcgen05.mma`` without ``.ws`` as data, and ``.sp`` of kinds without scales.

A :class:`Tcgen05Kind` is one row of the manual's table of types (PTX ISA, "tcgen05.mma", "Data
types" and "Matrix shape"). TVM's own ``gemm_async`` emits these instructions; where the manual is
wider than TVM's encoder, which takes N of a pair of blocks only in steps of 32, and of one block
with M = 128 only in steps of 16, the table follows TVM.

TVM has no tf32 dtype for buffers: float32 operands are fed to the tensor core as tf32.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from warploom.errors import IllegalCombination
from warploom.target.dtypes import bits_of, dtype_name
from warploom.target.swizzle import Major

#: CTAs of a pair, whose tensor cores compute an MMA together (``cta_group::2``).
PAIR = 2
#: Bytes of a row of A that one instruction consumes, for all dtypes; of B too, or twice as many
#: if A is sparse.
TCGEN05_K_BYTES = 32
#: Columns of tensor memory at whose multiples the address of metadata lies.
METADATA_COLUMNS = 2

_FP8 = ("float8_e4m3fn", "float8_e5m2")
_FP6 = ("float6_e2m3fn", "float6_e3m2fn")
_FP4 = ("float4_e2m1fn",)
_E8M0, _E4M3 = "float8_e8m0fnu", "float8_e4m3fn"


@dataclass(frozen=True)
class BlockScale:
    """Scale factors of both operands: one for each ``vector`` elements of K."""

    dtype: str
    vector: int

    def __post_init__(self) -> None:
        assert (self.dtype, self.vector) in {(_E8M0, 32), (_E4M3, 16)}


@dataclass(frozen=True)
class Shapes:
    """Legal M of one ``cta_group`` and, for each, N: multiples of a step up to 256.

    Attributes
    ----------
    cta_group : int
        Blocks that compute together, 1 or 2. M counts the rows of all of them.
    n_step : tuple of (int, int)
        Each legal M with the step of its N.
    n_extra : tuple of int
        Further N, smaller than a step allows.
    """

    cta_group: int
    n_step: tuple[tuple[int, int], ...]
    n_extra: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        assert self.cta_group in (1, 2)
        assert set(self.m) <= {64 * self.cta_group, 128 * self.cta_group}
        assert all(256 % step == 0 and step % 8 == 0 for _, step in self.n_step)
        assert all(n % 8 == 0 for n in self.n_extra)

    @property
    def m(self) -> tuple[int, ...]:
        """Legal M, ascending."""
        return tuple(m for m, _ in self.n_step)

    def n(self, m: int) -> tuple[int, ...]:
        """Legal N of an instruction with ``m`` rows, ascending."""
        step = dict(self.n_step)[m]
        return tuple(sorted({*range(step, 257, step), *self.n_extra}))


@dataclass(frozen=True)
class Tcgen05Kind:
    """A legal combination of element types.

    Every kind reads A from shared or from tensor memory (there always K-major) and B from shared
    memory.

    Attributes
    ----------
    kind : str
        The qualifier ``.kind::``.
    operands : tuple of str
        TVM dtypes of A and of B, in any pairing.
    d : tuple of str
        TVM dtypes of the accumulator, which lies in tensor memory.
    k : int
        Elements of K that one instruction consumes; twice as many if A is sparse.
    shapes : tuple of Shapes
        Legal M and N, for one block and for a pair.
    scales : tuple of BlockScale
        Legal scale factors; empty if the kind has none.
    container_bits : int
        Bits that an element occupies in shared memory, padding included. In kinds that mix types,
        16 elements narrower than a byte are packed at the front of 16 bytes; the kinds that take
        nothing but 4-bit elements pack them without padding.

    Examples
    --------
    >>> tcgen05_kinds("float16", "float16", "float32")[0].k
    16
    """

    kind: str
    operands: tuple[str, ...]
    d: tuple[str, ...]
    k: int
    shapes: tuple[Shapes, Shapes]
    container_bits: int
    scales: tuple[BlockScale, ...] = ()

    def __post_init__(self) -> None:
        assert self.k * self.container_bits == 8 * TCGEN05_K_BYTES, "K is 256 bits"
        assert all(bits_of(dtype) <= self.container_bits for dtype in self.operands)
        assert [s.cta_group for s in self.shapes] == [1, 2]
        assert self.kind.startswith("mx") == bool(self.scales)
        assert not self.scales or all(64 not in s.m for s in self.shapes)
        assert all(self.k % scale.vector == 0 for scale in self.scales)

    @property
    def sparse_k(self) -> int:
        """Elements of K that one instruction with a sparse A consumes."""
        return 2 * self.k

    @property
    def scaled(self) -> bool:
        """Whether the instruction multiplies blocks by scale factors."""
        return bool(self.scales)

    def majors(self, dtype: str) -> tuple[Major, ...]:
        """Legal major-ness of a shared-memory operand of ``dtype``.

        Elements narrower than a byte are K-major; all others may be either. An MN-major float32
        operand needs the 128-byte swizzle with 32-byte atoms, which no layout here has.
        """
        if dtype not in self.operands:
            raise IllegalCombination(
                f"tcgen05: kind {self.kind} has no {dtype} operand; allowed are "
                f"{', '.join(self.operands)}."
            )
        return (Major.K, Major.MN) if bits_of(dtype) in (8, 16) else (Major.K,)

    def legal_m(self, cta_group: int) -> tuple[int, ...]:
        """Rows that an instruction of one block (1) or of a pair (2) may have."""
        if cta_group not in (1, 2):
            raise IllegalCombination(f"tcgen05: cta_group is {cta_group}, allowed are 1 and 2.")
        return self.shapes[cta_group - 1].m

    def check_shape(self, m: int, n: int, cta_group: int = 1) -> None:
        """Raise :class:`IllegalCombination` if no instruction computes ``m x n``."""
        rows = self.legal_m(cta_group)
        if m not in rows:
            raise IllegalCombination(
                f"tcgen05: M = {m} is not legal for kind {self.kind} with cta_group {cta_group}; "
                f"allowed are {', '.join(map(str, rows))}."
            )
        legal = self.shapes[cta_group - 1].n(m)
        if n not in legal:
            raise IllegalCombination(
                f"tcgen05: N = {n} is not legal for kind {self.kind} with M = {m} and cta_group "
                f"{cta_group}; allowed are {', '.join(map(str, legal))}."
            )


_DENSE = (Shapes(1, ((64, 8), (128, 16))), Shapes(2, ((128, 32), (256, 32))))
_INTEGER = (Shapes(1, ((64, 16), (128, 16)), (8, 24)), Shapes(2, ((128, 32), (256, 32))))
_SCALED = (Shapes(1, ((128, 8),)), Shapes(2, ((128, 16), (256, 16))))

#: Every kind of ``tcgen05.mma`` with its dtypes and shapes.
TCGEN05_KINDS: tuple[Tcgen05Kind, ...] = (
    Tcgen05Kind("f16", ("float16",), ("float16",), 16, _DENSE, 16),
    Tcgen05Kind("f16", ("float16", "bfloat16"), ("float32",), 16, _DENSE, 16),
    Tcgen05Kind("tf32", ("float32",), ("float32",), 8, _DENSE, 32),
    Tcgen05Kind("f8f6f4", (*_FP8, *_FP6, *_FP4), ("float16", "float32"), 32, _DENSE, 8),
    Tcgen05Kind("i8", ("int8", "uint8"), ("int32",), 32, _INTEGER, 8),
    Tcgen05Kind(
        "mxf8f6f4", (*_FP8, *_FP6, *_FP4), ("float32",), 32, _SCALED, 8, (BlockScale(_E8M0, 32),)
    ),
    Tcgen05Kind("mxf4", _FP4, ("float32",), 64, _SCALED, 4, (BlockScale(_E8M0, 32),)),
    Tcgen05Kind(
        "mxf4nvf4",
        _FP4,
        ("float32",),
        64,
        _SCALED,
        4,
        (BlockScale(_E8M0, 32), BlockScale(_E4M3, 16)),
    ),
)


def tcgen05_kinds(a: str, b: str, d: str, scale: str | None = None) -> tuple[Tcgen05Kind, ...]:
    """All kinds that multiply ``a`` by ``b`` into ``d``.

    Parameters
    ----------
    a, b, d : str
        Dtypes of the operands and of the accumulator.
    scale : str, optional
        Dtype of the scale factors of a block-scaled MMA.

    Returns
    -------
    tuple of Tcgen05Kind
        At least one; 4-bit operands with float8_e8m0fnu factors have three. The one with the
        largest K comes first: it does most work for the same bytes.

    Raises
    ------
    IllegalCombination
        If there is none; the message names the wrong value and the allowed ones.

    Examples
    --------
    >>> [kind.kind for kind in tcgen05_kinds("float16", "float16", "float32")]
    ['f16']
    """
    a, b, d = dtype_name(a, "a"), dtype_name(b, "b"), dtype_name(d, "d")
    scale = None if scale is None else dtype_name(scale, "scale")
    scaled = [kind for kind in TCGEN05_KINDS if kind.scaled == (scale is not None)]
    pairs = [kind for kind in scaled if a in kind.operands and b in kind.operands]
    prefix = "block-scaled " if scale else ""
    if not pairs:
        sets = dict.fromkeys("/".join(kind.operands) for kind in scaled)
        raise IllegalCombination(
            f"tcgen05: no {prefix}instruction for {a} x {b}; both operands must be of one set: "
            f"{_listed(sets)}."
        )
    into = [kind for kind in pairs if d in kind.d]
    if not into:
        allowed = dict.fromkeys(dtype for kind in pairs for dtype in kind.d)
        raise IllegalCombination(
            f"tcgen05: {prefix}{a} x {b} cannot accumulate in {d}; allowed: {_listed(allowed)}."
        )
    if scale is None:
        return tuple(into)
    kinds = [kind for kind in into if scale in {s.dtype for s in kind.scales}]
    if not kinds:
        allowed = dict.fromkeys(s.dtype for kind in into for s in kind.scales)
        raise IllegalCombination(
            f"tcgen05: {a} x {b} cannot be scaled by {scale}; allowed: {_listed(allowed)}."
        )
    return tuple(sorted(kinds, key=lambda kind: -kind.k))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
