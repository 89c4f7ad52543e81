"""ldmatrix, stmatrix, movmatrix and mma.sync: every shape and type of sm_90a."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np

from tests.emulator.golden.case import Case, element, poisoned
from tests.emulator.golden.values import (
    FLOATS,
    Bits,
    near_one,
    operands,
    powers,
    small_integers,
    unsigned,
    width,
)


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
class Mma:
    m: int
    n: int
    k: int
    d: str
    a: str
    b: str
    modifiers: str = ""  # before the types
    operation: str = ""  # after them
    selector: int | None = None  # of a sparse A
    ordered: bool = False  # its metadata

    @property
    def name(self) -> str:
        sparse = "" if self.selector is None else ".sp::ordered_metadata" if self.ordered else ".sp"
        shape = f"m{self.m}n{self.n}k{self.k}"
        types = f"{self.d}.{self.a}.{self.b}.{self.d}"
        return f"mma{sparse}.sync.aligned.{shape}.row.col{self.modifiers}.{types}{self.operation}"

    @property
    def shapes(self) -> tuple[tuple[int, int, str], ...]:
        """Rows, columns and type of what A, B and C hold."""
        k_of_a = self.k if self.selector is None else self.k // 2
        a, b = (self.m, k_of_a, self.a), (self.k, self.n, self.b)
        return a, b, (self.m, self.n, self.d)

    def registers(self, rows: int, columns: int, kind: str) -> int:
        return rows * columns * width(kind) // (64 if kind == "f64" else 32) // 32


def _mmas() -> Iterator[Mma]:
    for shape in ((8, 8, 4), (16, 8, 4), (16, 8, 8), (16, 8, 16)):
        yield Mma(*shape, "f64", "f64", "f64")
    for k in (8, 16):
        yield Mma(16, 8, k, "f16", "f16", "f16")
        yield Mma(16, 8, k, "f32", "f16", "f16")
        yield Mma(16, 8, k, "f32", "bf16", "bf16")
    for k in (4, 8):
        yield Mma(16, 8, k, "f32", "tf32", "tf32")
    for a, b in itertools.product(("e4m3", "e5m2"), repeat=2):
        for d, k in itertools.product(("f32", "f16"), (16, 32)):
            yield Mma(16, 8, k, d, a, b)
    for bits, k in ((8, 16), (4, 32)):
        shapes = ((8, 8, k), (16, 8, k), (16, 8, 2 * k))
        for shape, a, b in itertools.product(shapes, "su", "su"):
            for sat in ("", ".satfinite"):
                yield Mma(*shape, "s32", f"{a}{bits}", f"{b}{bits}", sat)
    for shape, op in itertools.product(((8, 8, 128), (16, 8, 128), (16, 8, 256)), ("xor", "and")):
        yield Mma(*shape, "s32", "b1", "b1", "", f".{op}.popc")


def mmas() -> Iterator[Case]:
    for mma in _mmas():
        if mma.a in FLOATS:
            yield mma_case(mma, "exact", 1)
            yield mma_case(mma, "near", 2)
            yield mma_case(mma, "powers", 2)
            yield mma_case(mma, "any", 2)
        else:
            yield mma_case(mma, "any", 1)


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


def mma_case(mma: Mma, data: str, warps: int) -> Case:
    random = Bits(f"{mma.name}/{data}")
    threads, lines, inputs, names = 32 * warps, [], [], []
    bits = 64 if mma.d == "f64" else 32
    letter = "d" if bits == 64 else "r"
    first = 0
    for i, (rows, columns, kind) in enumerate(mma.shapes):
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
    if mma.selector is not None:
        inputs.append(metadata(random, mma.a, threads, mma.ordered))
        lines += [element("%p3", 32), "ld.global.b32 %r159, [%d40];"]
        names += ["%r159", str(mma.selector)]
    lines.append(f"{mma.name} {{{', '.join(d)}}}, {', '.join(names)};")
    lines.append(element(f"%p{len(inputs)}", bits))
    lines += [f"st.global.b{bits} [%d40+{r * threads * bits // 8}], {d[r]};" for r in range(count)]
    result = poisoned(count * threads, bits)
    selected = "" if mma.selector is None else f":{mma.selector}"
    name = f"{mma.name}{selected}:{data}"
    body = "\n".join(lines)
    return Case(name, body, tuple(inputs), (result,), block=(threads, 1, 1))


def metadata(random: Bits, kind: str, count: int, ordered: bool) -> np.ndarray:
    """Words whose nibbles name two of four elements of A; of tf32, one of two."""
    if kind == "tf32":
        nibbles = [0b0100, 0b1110]
    else:
        pairs = itertools.permutations(range(4), 2)
        nibbles = [low | high << 2 for low, high in pairs if low < high or not ordered]
    drawn = random.choice(np.array(nibbles), 8 * count).astype(np.uint32).reshape(count, 8)
    return (drawn << np.arange(0, 32, 4, dtype=np.uint32)).sum(axis=1).astype(np.uint32)


#: Operands of mma.sp by type: the two values of K, and how many selectors each has.
SPARSE = {
    "f16": ((16, 4), (32, 2)),
    "bf16": ((16, 4), (32, 2)),
    "tf32": ((8, 4), (16, 2)),
    "e4m3": ((64, 1),),
    "e5m2": ((64, 1),),
    "s8": ((32, 2), (64, 1)),
    "u8": ((32, 2), (64, 1)),
    "s4": ((64, 2), (128, 1)),
    "u4": ((64, 2), (128, 1)),
}


def sparse_mmas() -> Iterator[Case]:
    for kind, shapes in SPARSE.items():
        results = {"f16": ("f32", "f16")}.get(kind, ("f32" if kind in FLOATS else "s32",))
        other = {"e4m3": "e5m2", "e5m2": "e5m2"}.get(kind, kind.replace("s", "u"))
        for (k, selectors), d in itertools.product(shapes, results):
            sat = ".satfinite" if kind == "s8" else ""
            for selector in range(selectors):
                mma = Mma(16, 8, k, d, kind, other, sat, selector=selector, ordered=True)
                yield mma_case(mma, "exact" if kind in FLOATS else "any", 2)
            yield mma_case(dataclasses.replace(mma, ordered=False), "any", 1)
            if kind in FLOATS:
                for data in ("near", "powers", "any"):
                    yield mma_case(mma, data, 2)


def quarters() -> Iterator[Case]:
    """m8n8k4 of f16, which has four MMAs: one in lanes 0 to 3 and 16 to 19, and so on."""
    for rows, columns in itertools.product(("row", "col"), repeat=2):
        for d, c in (("f32", "f32"), ("f32", "f16"), ("f16", "f16")):
            name = f"mma.sync.aligned.m8n8k4.{rows}.{columns}.{d}.f16.f16.{c}"
            for data in ("exact", "near", "any"):
                yield _quarter(name, d, c, data)


def _quarter(name: str, d: str, c: str, data: str) -> Case:
    random = Bits(f"{name}/{data}")
    lines, inputs, names, first = [], [], [], 0
    for i, (count, kind) in enumerate(((2, "f16"), (2, "f16"), (width(c) // 4, c))):
        values = fill(random, kind, 32 * count * 32 // width(kind), data)
        inputs.append(np.ascontiguousarray(values).view(np.uint32))
        lines.append(element(f"%p{i}", 32))
        lines += [f"ld.global.b32 %r{first + r}, [%d40+{128 * r}];" for r in range(count)]
        names.append("{" + ", ".join(f"%r{first + r}" for r in range(count)) + "}")
        first += count
    results = [f"%r{first + r}" for r in range(width(d) // 4)]
    lines += [f"{name} {{{', '.join(results)}}}, {', '.join(names)};", element("%p3", 32)]
    lines += [f"st.global.b32 [%d40+{128 * r}], {value};" for r, value in enumerate(results)]
    result = poisoned(32 * len(results), 32)
    return Case(f"{name}:{data}", "\n".join(lines), tuple(inputs), (result,))
