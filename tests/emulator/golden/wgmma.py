"""wgmma: every type with several widths, layouts in shared memory, and scales.

Shared memory is filled with elements and any descriptor that stays within it is good: both sides
see the same bytes, so that an address that is computed otherwise gives another result.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np

from tests.emulator.golden.case import Case, element, poisoned
from tests.emulator.golden.matrix import fill, metadata
from tests.emulator.golden.values import FLOATS, Bits, width

#: Bytes of each operand in shared memory.
_OPERAND = 1 << 14


@dataclasses.dataclass(frozen=True)
class Operand:
    """A descriptor without its address: bytes from the start of the operand, and the fields."""

    offset: int = 0
    leading: int = 16
    stride: int = 128
    base: int = 0
    swizzle: int = 0

    @property
    def bits(self) -> int:
        low = (self.leading >> 4) << 16 | (self.stride >> 4) << 32
        return low | self.base << 49 | self.swizzle << 62


@dataclasses.dataclass(frozen=True)
class Wgmma:
    d: str
    a: str
    b: str
    n: int
    left: Operand | None  # None: in registers
    right: Operand
    scale: tuple[int, int, int] = (1, 1, 1)  # of d, a and b
    trans: tuple[int, int] = (0, 0)
    modifiers: str = ""
    selector: int | None = None  # of a sparse A
    ordered: bool = True  # its metadata

    @property
    def k(self) -> int:
        return 256 // width(self.a) * (1 if self.selector is None else 2)

    @property
    def instruction(self) -> str:
        types = f"{self.d}.{self.a}.{self.b}"
        if self.a == "b1":
            types += ".and.popc"
        sparse = "" if self.selector is None else ".sp"
        return f"wgmma.mma_async{sparse}.sync.aligned.m64n{self.n}k{self.k}{self.modifiers}.{types}"

    @property
    def immediates(self) -> str:
        text = ""
        if self.a in FLOATS:
            text += f", {self.scale[1]}, {self.scale[2]}"
        if width(self.a) == 16:
            text += f", {self.trans[0]}" if self.left is not None else ""
            text += f", {self.trans[1]}"
        return text

    @property
    def name(self) -> str:
        left = "registers" if self.left is None else _describe(self.left)
        name = f"{self.instruction}:{left}:{_describe(self.right)}:{self.scale}:{self.trans}"
        return name if self.selector is None else f"{name}:{self.selector}:{self.ordered}"


def _describe(operand: Operand) -> str:
    return "-".join(str(value) for value in dataclasses.astuple(operand))


def k_major(swizzle: int, offset: int = 0) -> Operand:
    """The usual layout: rows as wide as the swizzle, in groups of eight."""
    if swizzle == 0:
        return Operand(offset, leading=128, stride=256)
    return Operand(offset, leading=16, stride={1: 1024, 2: 512, 3: 256}[swizzle], swizzle=swizzle)


def mn_major(swizzle: int, offset: int = 0) -> Operand:
    """16-bit elements; eight rows of K as wide as the swizzle, then the next eight."""
    if swizzle == 0:
        return Operand(offset, leading=1024, stride=128)
    row = {1: 128, 2: 64, 3: 32}[swizzle]
    return Operand(offset, leading=2048, stride=8 * row, swizzle=swizzle)


def kinds() -> list[tuple[str, str, str]]:
    """Types of d, a and b."""
    result = [("f32", "f16", "f16"), ("f16", "f16", "f16"), ("f32", "bf16", "bf16")]
    result.append(("f32", "tf32", "tf32"))
    eights = ("e4m3", "e5m2")
    result += [(d, a, b) for d in ("f32", "f16") for a in eights for b in eights]
    result += [("s32", a, b) for a in ("s8", "u8") for b in ("s8", "u8")]
    return [*result, ("s32", "b1", "b1")]


def _layouts(d: str, a: str, b: str) -> Iterator[Wgmma]:
    for swizzle in range(4):
        yield Wgmma(d, a, b, 24 if width(a) != 8 else 16, k_major(swizzle), k_major(swizzle))
        yield Wgmma(d, a, b, 16, None, k_major(swizzle))
    # Swizzles that differ, steps within a row, and unusual strides.
    yield Wgmma(d, a, b, 32, k_major(1, 32), k_major(2, 32))
    yield Wgmma(d, a, b, 8, k_major(1, 96), k_major(1, 64))
    yield Wgmma(d, a, b, 8, k_major(2, 32), k_major(3))
    yield Wgmma(d, a, b, 16, Operand(0, 48, 400), Operand(64, 160, 336))
    yield Wgmma(d, a, b, 16, Operand(0, 16, 1040, 0, 1), Operand(0, 16, 528, 0, 2))
    yield Wgmma(d, a, b, 8, Operand(256, 16, 1024, 2, 1), Operand(128, 16, 1024, 1, 1))
    yield Wgmma(d, a, b, 8, Operand(0, 32, 1024, 0, 1), Operand(0, 48, 256, 0, 3))
    yield Wgmma(d, a, b, 64, k_major(1), k_major(1))
    yield Wgmma(d, a, b, 8, k_major(1), k_major(1), scale=(0, 1, 1))
    if a in FLOATS:
        for scale in ((1, -1, 1), (1, 1, -1), (0, -1, -1)):
            yield Wgmma(d, a, b, 8, k_major(1), k_major(1), scale=scale)
        yield Wgmma(d, a, b, 8, None, k_major(1), scale=(1, -1, 1))
    elif a != "b1":
        yield Wgmma(d, a, b, 8, k_major(1), k_major(1), modifiers=".satfinite")
    if width(a) == 16:
        for swizzle, trans in itertools.product(range(4), ((1, 0), (0, 1), (1, 1))):
            left = mn_major(swizzle) if trans[0] else k_major(swizzle)
            right = mn_major(swizzle) if trans[1] else k_major(swizzle)
            yield Wgmma(d, a, b, 32, left, right, trans=trans)
        for swizzle in range(4):
            yield Wgmma(d, a, b, 72, None, mn_major(swizzle), trans=(0, 1))
        odd = Operand(0, 2064, 1040, 0, 1), Operand(0, 1072, 176)
        yield Wgmma(d, a, b, 24, *odd, trans=(1, 1))


def layouts() -> Iterator[Case]:
    for d, a, b in kinds():
        data = "exact" if a in FLOATS else "any"
        for wgmma in _layouts(d, a, b):
            yield case(wgmma, data)
    yield case(Wgmma("f32", "f16", "f16", 256, k_major(0), k_major(0)), "exact")


def sums() -> Iterator[Case]:
    """Sums that are rounded."""
    for d, a, b in kinds():
        if a not in FLOATS:
            continue
        for data, n in (("near", 16), ("powers", 16), ("any", 8)):
            yield case(Wgmma(d, a, b, n, k_major(1), k_major(1)), data)
            yield case(Wgmma(d, a, b, 8, None, k_major(1)), data)


def _sparse_layouts(d: str, a: str, b: str, selectors: int) -> Iterator[Wgmma]:
    """B has 64 bytes of K in each row, A the usual 32."""
    for selector, swizzle in itertools.product(range(selectors), range(4)):
        yield Wgmma(d, a, b, 16, k_major(swizzle), k_major(swizzle), selector=selector)
        yield Wgmma(d, a, b, 24 if width(a) != 8 else 16, None, k_major(swizzle), selector=selector)
    # Steps within a row, across the end of one, and unusual strides.
    yield Wgmma(d, a, b, 8, k_major(1, 32), k_major(1, 64), selector=0)
    yield Wgmma(d, a, b, 8, k_major(1, 64), k_major(1, 96), selector=0)
    yield Wgmma(d, a, b, 8, None, Operand(32, 512, 1024, 0, 2), selector=0)
    yield Wgmma(d, a, b, 8, None, Operand(0, 512, 1024, 0, 3), selector=0)
    yield Wgmma(d, a, b, 16, Operand(0, 48, 400), Operand(64, 160, 336), selector=0)
    yield Wgmma(d, a, b, 8, k_major(1), k_major(1), selector=0, ordered=False)
    yield Wgmma(d, a, b, 8, k_major(1), k_major(1), scale=(0, 1, 1), selector=0)
    if a in FLOATS:
        yield Wgmma(d, a, b, 8, None, k_major(1), scale=(1, -1, 1), selector=0)
    else:
        yield Wgmma(d, a, b, 8, k_major(1), k_major(1), modifiers=".satfinite", selector=0)
    if width(a) == 16:
        for swizzle, trans in itertools.product(range(4), ((1, 0), (0, 1))):
            left = mn_major(swizzle) if trans[0] else k_major(swizzle)
            right = mn_major(swizzle) if trans[1] else k_major(swizzle)
            yield Wgmma(d, a, b, 32, left, right, trans=trans, selector=0)


def sparse() -> Iterator[Case]:
    eights = (("f32", "e4m3", "e5m2"), ("f16", "e5m2", "e4m3"), ("s32", "s8", "u8"))
    for d, a, b in (*kinds()[:4], *eights):
        for wgmma in _sparse_layouts(d, a, b, 2 if width(a) > 8 else 1):
            yield case(wgmma, "exact" if a in FLOATS else "any")
        for data in ("near", "powers", "any") if a in FLOATS else ():
            yield case(Wgmma(d, a, b, 8, None, k_major(1), selector=0), data)


def case(wgmma: Wgmma, data: str) -> Case:
    random = Bits(f"{wgmma.name}/{data}")
    shared = np.concatenate(
        [
            np.ascontiguousarray(fill(random, kind, _OPERAND * 8 // width(kind), data)).view("u1")
            for kind in (wgmma.a, wgmma.b)
        ]
    ).view(np.uint32)
    per_register = 2 if wgmma.d == "f16" else 1
    count = wgmma.n // 2 // per_register
    c = np.ascontiguousarray(fill(random, wgmma.d, 64 * wgmma.n, data)).view(np.uint32)
    a = np.ascontiguousarray(fill(random, wgmma.a, 64 * 256 // width(wgmma.a), data))
    inputs = [shared, c, a.view(np.uint32)]
    if wgmma.selector is not None:
        inputs.append(metadata(random, wgmma.a, 128, wgmma.ordered))
    return build(wgmma, tuple(inputs), count, f"{wgmma.name}:{data}")


def build(wgmma: Wgmma, inputs: tuple[np.ndarray, ...], count: int, name: str) -> Case:
    """The kernel: inputs are shared memory, the accumulator, A for its registers, and metadata."""
    d = [f"%r{i}" for i in range(count)]
    lines = [
        ".shared .align 1024 .b8 buffer[32768];",
        *(element("%p0", 32), "mov.u32 %r140, buffer;", "mad.lo.u32 %r141, %t, 4, %r140;"),
        "mov.u32 %r142, 0;",
        "FILL:",
        "ld.global.b32 %r143, [%d40];\nst.shared.b32 [%r141], %r143;",
        "add.u64 %d40, %d40, 512;\nadd.u32 %r141, %r141, 512;\nadd.u32 %r142, %r142, 1;",
        "setp.lt.u32 %q0, %r142, 64;\n@%q0 bra FILL;",
        "fence.proxy.async;\nbar.sync 0;",
        element("%p1", 32),
        *(f"ld.global.b32 {d[i]}, [%d40+{512 * i}];" for i in range(count)),
        element("%p2", 32),
        *(f"ld.global.b32 %r{144 + i}, [%d40+{512 * i}];" for i in range(4)),
        "shr.u32 %r140, %r140, 4;\nand.b32 %r140, %r140, 0x3fff;\ncvt.u64.u32 %d0, %r140;",
        f"setp.ne.u32 %q1, {wgmma.scale[0]}, 0;",
    ]
    operands = []
    for i, operand in enumerate((wgmma.left, wgmma.right)):
        if operand is None:
            operands.append("{%r144, %r145, %r146, %r147}")
            continue
        start = (i * _OPERAND + operand.offset) >> 4
        lines += [f"add.u64 %d{1 + i}, %d0, {start};", f"mov.b64 %d{3 + i}, {operand.bits};"]
        lines.append(f"or.b64 %d{1 + i}, %d{1 + i}, %d{3 + i};")
        operands.append(f"%d{1 + i}")
    if wgmma.selector is not None:
        lines += [element("%p3", 32), "ld.global.b32 %r150, [%d40];"]
        operands += ["%r150", str(wgmma.selector)]
    lines += [
        "wgmma.fence.sync.aligned;",
        f"{wgmma.instruction} {{{', '.join(d)}}}, {', '.join(operands)}, %q1{wgmma.immediates};",
        "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;",
        element(f"%p{len(inputs)}", 32),
        *(f"st.global.b32 [%d40+{512 * i}], {d[i]};" for i in range(count)),
    ]
    result = poisoned(128 * count, 32)
    return Case(name, "\n".join(lines), inputs, (result,), block=(128, 1, 1))
