"""Cases for the property suite of ``gemm_async``: every legal combination, in samples of two sizes.

A :class:`Case` is one small matmul. Its axes are the choices a user has: element types, where A
and B lie and how, the extents, what is accumulated. :func:`quick_cases` covers every pair of
choices that can occur together; :func:`full_cases` covers every operand form at several widths and
every width at one swizzle. Both are the same on every machine.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, fields

import tvm

from warploom.target.swizzle import Major, Swizzle
from warploom.target.wgmma import WGMMA_KINDS, WGMMA_M, WgmmaKind

#: Shared memory of one thread block and registers of a thread and of a block on sm_90a.
_SHARED_BYTES = 227 * 1024
_THREAD_REGISTERS, _BLOCK_REGISTERS = 255, 65536
#: Registers that the loads and stores around the matmul may use.
_OTHER_REGISTERS = 48

#: (M, warpgroups): one warpgroup with several 64-row blocks, or several that share the rows.
ROWS = ((64, 1), (128, 1), (192, 1), (128, 2), (192, 3), (256, 2))
#: Widths of the quick sample: narrowest, two instructions for int8 (40), not a power of two,
#: ``n % 16 == 8``, the widest, and more than one instruction.
WIDTHS = (8, 16, 40, 64, 136, 192, 256, 320)
ALL_WIDTHS = (*range(8, 257, 8), 264, 320, 384, 512)
#: K in instructions: one, one whole 128-byte atom, a part of a second atom.
STEPS = (1, 4, 5)
#: What the accumulator starts from: nothing, its old value, or nothing in the first iteration only.
ACCUM = ("overwrite", "keep", "first")


@dataclass(frozen=True)
class Form:
    """How one operand is stored; ``None`` stands for A in registers."""

    major: Major
    swizzle: Swizzle

    def __str__(self) -> str:
        return f"{self.major.value}{self.swizzle.value}"


@dataclass(frozen=True)
class Case:
    """One matmul ``D[m, n] (+)= A[m, k] B[n, k]^T``, computed in two iterations over its stages.

    Attributes
    ----------
    kind : WgmmaKind
        Element types.
    a_form, b_form : Form or None
        Storage; ``a_form`` is None for A in registers.
    rows : (int, int)
        M and the number of warpgroups that share it.
    n, steps : int
        Columns of D, and K in instructions.
    stages : int
        1: operands without a stage dimension, used twice; 2: one stage for each iteration.
    inner : bool
        Whether the operands are parts of larger tiles that are poisoned around them.
    accum : str
        One of :data:`ACCUM`.
    wait : bool
        Whether the call itself emits fence, commit and wait.
    """

    kind: WgmmaKind
    a_form: Form | None
    b_form: Form
    rows: tuple[int, int]
    n: int
    steps: int
    stages: int
    inner: bool
    accum: str
    wait: bool

    def __str__(self) -> str:
        short = [name.replace("float", "f").replace("int", "i") for name in self.dtypes]
        m, warpgroups = self.rows
        parts = [
            "x".join(short[:2]) + f"={short[2]}",
            f"{self.a_form or 'reg'}*{self.b_form}",
            f"m{m}w{warpgroups}n{self.n}k{self.k}",
            f"s{self.stages}",
            "inner" if self.inner else "whole",
            self.accum + ("+wait" if self.wait else ""),
        ]
        return "-".join(parts)

    @property
    def dtypes(self) -> tuple[str, str, str]:
        return self.kind.a, self.kind.b, self.kind.d

    @property
    def m(self) -> int:
        return self.rows[0]

    @property
    def warpgroups(self) -> int:
        return self.rows[1]

    @property
    def k(self) -> int:
        return self.steps * self.kind.k

    @property
    def group(self) -> str:
        """Name under which results are reported: element types and form of A."""
        a, b, d = self.dtypes
        return f"{a} x {b} = {d}, {'RS' if self.a_form is None else 'SS'}"

    @property
    def a_tile(self) -> Tile:
        if self.a_form is None:
            start = self.kind.k if self.inner else 0
            return Tile((self.m, start + self.k), (0, start), (self.m, self.k))
        return _shared_tile(self, self.a_form, self.m, skipped_steps=1)

    @property
    def b_tile(self) -> Tile:
        return _shared_tile(self, self.b_form, self.n, skipped_steps=2)

    @property
    def d_tile(self) -> Tile:
        """D starts eight columns into its fragment if ``inner``."""
        start = 8 if self.inner else 0
        return Tile((self.m, start + self.n), (0, start), (self.m, self.n))

    @property
    def is_legal(self) -> bool:
        """Whether the hardware has it, and it fits in shared memory and in registers."""
        shared = [self.b_tile] + ([self.a_tile] if self.a_form else [])
        size = sum(tile.count for tile in shared) * self.stages * self.kind.bits // 8
        if size + 1024 > _SHARED_BYTES or (self.a_form is None and self.warpgroups > 1):
            return False
        registers = _OTHER_REGISTERS + _thread_words(self.d_tile, self.warpgroups, self.kind.d)
        if self.a_form is None:
            registers += _thread_words(self.a_tile, 1, self.kind.a)
        limit = _BLOCK_REGISTERS // (128 * self.warpgroups)
        if registers > min(limit, _THREAD_REGISTERS):
            return False
        in_k_rows = self.b_form.major is Major.K
        align = 8 if in_k_rows else self.b_form.swizzle.value * 8 // self.kind.bits
        try:
            return bool(self.kind.split_n(self.n, align))
        except ValueError:
            return False


@dataclass(frozen=True)
class Tile:
    """A part of a stored matrix: ``start`` and ``extent`` within ``shape``."""

    shape: tuple[int, int]
    start: tuple[int, int]
    extent: tuple[int, int]

    def __post_init__(self) -> None:
        axes = zip(self.shape, self.start, self.extent, strict=True)
        assert all(start + extent <= size for size, start, extent in axes)

    @property
    def count(self) -> int:
        return self.shape[0] * self.shape[1]

    @property
    def slices(self) -> tuple[slice, slice]:
        rows, columns = zip(self.start, self.extent, strict=True)
        return slice(rows[0], sum(rows)), slice(columns[0], sum(columns))


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _shared_tile(case: Case, form: Form, mn: int, skipped_steps: int) -> Tile:
    """The smallest buffer of whole swizzle atoms around an ``mn x k`` operand.

    An inner operand starts at the second legal place along M or N, and ``skipped_steps``
    instructions into K; A and B skip different numbers, so that mixing them up cannot pass.
    """
    columns_of_atom = form.swizzle.value * 8 // case.kind.bits
    mn_unit = 8 if form.major is Major.K else columns_of_atom
    mn_start, k_start = (mn_unit, skipped_steps * case.kind.k) if case.inner else (0, 0)
    extents, starts = (mn, case.k), (mn_start, k_start)
    if form.major is Major.MN:
        extents, starts = extents[::-1], starts[::-1]
    shape = (
        _round_up(starts[0] + extents[0], 8),
        _round_up(starts[1] + extents[1], columns_of_atom),
    )
    return Tile(shape, starts, extents)


def _thread_words(tile: Tile, warpgroups: int, dtype: str) -> int:
    return tile.count * tvm.DataType(dtype).bits // (32 * 128 * warpgroups)


def forms(kind: WgmmaKind) -> list[Form]:
    """Every way to store an operand of ``kind`` in shared memory."""
    return [Form(major, swizzle) for major in kind.majors for swizzle in Swizzle]


def _draw(rng: random.Random, **fixed) -> Case:
    """A random legal case in which the axes in ``fixed`` have the given values."""
    while True:
        kind = fixed.get("kind") or rng.choice(WGMMA_KINDS)
        axes = {
            "kind": kind,
            "a_form": None if rng.random() < 0.3 else rng.choice(forms(kind)),
            "b_form": rng.choice(forms(kind)),
            "rows": rng.choice(ROWS),
            "n": rng.choice(WIDTHS),
            "steps": rng.choice(STEPS),
            "stages": rng.choice((1, 2)),
            "inner": rng.random() < 0.5,
            "accum": rng.choice(ACCUM),
            "wait": rng.random() < 0.25,
        }
        case = Case(**(axes | fixed))
        if case.is_legal:
            return case


def pairs(case: Case) -> set[tuple]:
    """Every combination of two choices that ``case`` makes."""
    choices = [(field.name, getattr(case, field.name)) for field in fields(case)]
    return set(itertools.combinations(choices, 2))


@functools.cache
def quick_cases(draws: int = 4000, seed: int = 2) -> tuple[Case, ...]:
    """Few cases that together make every pair of choices which ``draws`` random cases make."""
    rng = random.Random(seed)
    pool = [_draw(rng) for _ in range(draws)]
    uncovered = set().union(*map(pairs, pool))
    chosen = []
    # A case is taken while it adds many new pairs; later passes are content with fewer.
    for wanted in (40, 30, 20, 12, 8, 5, 3, 2, 1):
        for case in pool:
            new = pairs(case) & uncovered
            if len(new) >= wanted:
                chosen.append(case)
                uncovered -= new
    assert not uncovered
    return tuple(chosen)


@functools.cache
def full_cases(widths: tuple[int, ...] = (8, 64, 136, 256), seed: int = 3) -> tuple[Case, ...]:
    """The quick sample, every pair of operand forms at ``widths``, every width at 128 bytes.

    The remaining axes are drawn at random from a fixed seed.
    """
    rng = random.Random(seed)
    cases = dict.fromkeys(quick_cases())
    for kind in WGMMA_KINDS:
        for a_form, b_form in itertools.product([None, *forms(kind)], forms(kind)):
            for n in widths:
                cases[_draw(rng, kind=kind, a_form=a_form, b_form=b_form, n=n)] = None
        for fixed in _every_width(kind):
            cases[_draw(rng, kind=kind, **fixed)] = None
    return tuple(cases)


def _every_width(kind: WgmmaKind) -> Iterator[dict]:
    """Every width, from shared memory and from registers, with 128-byte swizzles."""
    for major, in_registers in itertools.product(kind.majors, (False, True)):
        form = Form(major, Swizzle.B128)
        for n in ALL_WIDTHS:
            if WGMMA_M * n * tvm.DataType(kind.d).bits // (32 * 128) <= 192:
                yield {"a_form": None if in_registers else form, "b_form": form, "n": n}


def find_case(name: str) -> Case:
    """The case whose identifier is ``name``, as a failure report prints it."""
    for case in full_cases():
        if str(case) == name:
            return case
    raise KeyError(name)
