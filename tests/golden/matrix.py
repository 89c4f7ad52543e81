"""ldmatrix, stmatrix, movmatrix and mma.sync: every shape and type of sm_90a."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np

from golden.case import Case, element, poisoned
from golden.values import FLOATS, Bits, near_one, operands, powers, small_integers, unsigned, width


def matrices() -> Iterator[Case]:
    for count, trans in itertools.product((1, 2, 4), ("", ".trans")):
        yield _ldmatrix(count, trans)
        yield _stmatrix(count, trans)
    values = Bits("movmatrix").words(32).astype(np.uint32)
    body = [element("%p0", 32), "ld.global.b32 %r0, [%d40];"]
    body += ["movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r0;"]
    body += [element("%p1", 32), "st.global.b32 [%d40], %r1;"]
    yield Case("movmatrix", "\n".join(body), (values,), (poisoned(32, 32),))


_ROWS = 48
_BUFFER = f".shared .align 128 .b8 buffer[{16 * _ROWS}];"


def _row_address(name: str) -> tuple[np.ndarray, list[str]]:
    """For each lane a row of 16 bytes, no row twice; %r20 becomes its address."""
    order = np.argsort(Bits(f"{name}/rows").words(_ROWS), kind="stable")[:32]
    lines = [element("%p1", 32), "ld.global.b32 %r21, [%d40];", "mov.u32 %r20, buffer;"]
    return order.astype(np.uint32), [*lines, "mad.lo.u32 %r20, %r21, 16, %r20;"]


def _fill_buffer() -> list[str]:
    """Lane i copies words i, i + 32, ... of %p0."""
    lines = [_BUFFER, element("%p0", 32), "mov.u32 %r22, buffer;\nmad.lo.u32 %r22, %t, 4, %r22;"]
    for i in range(_ROWS * 4 // 32):
        lines += [f"ld.global.b32 %r0, [%d40+{128 * i}];", f"st.shared.b32 [%r22+{128 * i}], %r0;"]
    return [*lines, "bar.warp.sync -1;"]


def _ldmatrix(count: int, trans: str) -> Case:
    name = f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16"
    data = Bits(name).words(_ROWS * 2).view(np.uint32)
    rows, address = _row_address(name)
    registers = ", ".join(f"%r{i}" for i in range(count))
    lines = [*_fill_buffer(), *address, f"{name} {{{registers}}}, [%r20];", element("%p2", 32)]
    lines += [f"st.global.b32 [%d40+{128 * i}], %r{i};" for i in range(count)]
    return Case(name, "\n".join(lines), (data, rows), (poisoned(32 * count, 32),))


def _stmatrix(count: int, trans: str) -> Case:
    name = f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16"
    data = Bits(name).words(_ROWS * 2).view(np.uint32)
    rows, address = _row_address(name)
    values = Bits(f"{name}/values").words(64).view(np.uint32)
    registers = ", ".join(f"%r{i}" for i in range(count))
    lines = [*_fill_buffer(), *address, element("%p2", 32)]
    lines += [f"ld.global.b32 %r{i}, [%d40+{128 * i}];" for i in range(count)]
    lines += [f"{name} [%r20], {{{registers}}};", "bar.warp.sync -1;", element("%p3", 32)]
    for i in range(_ROWS * 4 // 32):
        lines += [f"ld.shared.b32 %r0, [%r22+{128 * i}];", f"st.global.b32 [%d40+{128 * i}], %r0;"]
    return Case(name, "\n".join(lines), (data, rows, values), (poisoned(_ROWS * 4, 32),))


@dataclasses.dataclass(frozen=True)
class _Mma:
    m: int
    n: int
    k: int
    d: str
    a: str
    b: str
    modifiers: str = ""  # before the types
    operation: str = ""  # after them

    @property
    def name(self) -> str:
        shape = f"m{self.m}n{self.n}k{self.k}"
        types = f"{self.d}.{self.a}.{self.b}.{self.d}"
        return f"mma.sync.aligned.{shape}.row.col{self.modifiers}.{types}{self.operation}"

    def registers(self, rows: int, columns: int, kind: str) -> int:
        return rows * columns * width(kind) // (64 if kind == "f64" else 32) // 32


def _mmas() -> Iterator[_Mma]:
    for shape in ((8, 8, 4), (16, 8, 4), (16, 8, 8), (16, 8, 16)):
        yield _Mma(*shape, "f64", "f64", "f64")
    for k in (8, 16):
        yield _Mma(16, 8, k, "f16", "f16", "f16")
        yield _Mma(16, 8, k, "f32", "f16", "f16")
        yield _Mma(16, 8, k, "f32", "bf16", "bf16")
    for k in (4, 8):
        yield _Mma(16, 8, k, "f32", "tf32", "tf32")
    for a, b in itertools.product(("e4m3", "e5m2"), repeat=2):
        for d, k in itertools.product(("f32", "f16"), (16, 32)):
            yield _Mma(16, 8, k, d, a, b)
    for bits, k in ((8, 16), (4, 32)):
        shapes = ((8, 8, k), (16, 8, k), (16, 8, 2 * k))
        for shape, a, b in itertools.product(shapes, "su", "su"):
            for sat in ("", ".satfinite"):
                yield _Mma(*shape, "s32", f"{a}{bits}", f"{b}{bits}", sat)
    for shape, op in itertools.product(((8, 8, 128), (16, 8, 128), (16, 8, 256)), ("xor", "and")):
        yield _Mma(*shape, "s32", "b1", "b1", "", f".{op}.popc")


def mmas() -> Iterator[Case]:
    for mma in _mmas():
        if mma.a in FLOATS:
            yield _mma(mma, "exact", 1)
            yield _mma(mma, "near", 2)
            yield _mma(mma, "powers", 2)
            yield _mma(mma, "any", 2)
        else:
            yield _mma(mma, "any", 1)


def fill(random: Bits, kind: str, count: int, data: str) -> np.ndarray:
    """Elements of a matrix: "exact" has sums that no order of addition rounds."""
    if data == "exact":
        return small_integers(random, kind, count, 3)
    if data == "near":
        return near_one(random, kind, count, 3 if kind == "e4m3" else 5)
    if data == "powers":
        return powers(random, kind, count)
    if kind in FLOATS:
        return operands(random, kind, count)
    words = random.words(count * width(kind) // 64 + 1)
    return words.view(np.uint8)[: count * width(kind) // 8]


def _mma(mma: _Mma, data: str, warps: int) -> Case:
    random = Bits(f"{mma.name}/{data}")
    threads, lines, inputs, names = 32 * warps, [], [], []
    bits = 64 if mma.d == "f64" else 32
    letter = "d" if bits == 64 else "r"
    shapes = ((mma.m, mma.k, mma.a), (mma.k, mma.n, mma.b), (mma.m, mma.n, mma.d))
    first = 0
    for i, (rows, columns, kind) in enumerate(shapes):
        count = mma.registers(rows, columns, kind)
        values = fill(random, kind, rows * columns * warps, data)
        inputs.append(np.ascontiguousarray(values).view(unsigned(bits)))
        lines.append(element(f"%p{i}", bits))
        for r in range(count):
            offset = r * threads * bits // 8
            lines.append(f"ld.global.b{bits} %{letter}{first + r}, [%d40+{offset}];")
        names.append("{" + ", ".join(f"%{letter}{first + r}" for r in range(count)) + "}")
        first += count
    count = mma.registers(mma.m, mma.n, mma.d)
    d = [f"%{letter}{first + r}" for r in range(count)]
    lines.append(f"{mma.name} {{{', '.join(d)}}}, {', '.join(names)};")
    lines.append(element("%p3", bits))
    lines += [f"st.global.b{bits} [%d40+{r * threads * bits // 8}], {d[r]};" for r in range(count)]
    result = poisoned(count * threads, bits)
    name = f"{mma.name}:{data}"
    body = "\n".join(lines)
    return Case(name, body, tuple(inputs), (result,), block=(threads, 1, 1))
