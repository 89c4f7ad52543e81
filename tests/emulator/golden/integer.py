"""Integer arithmetic, logic, shifts and bit fields."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from tests.emulator.golden.case import Case, element, elementwise, poisoned
from tests.emulator.golden.values import Bits, operands, width

_TYPES = ("s16", "u16", "s32", "u32", "s64", "u64")

_arithmetic = functools.partial(elementwise, "integer")
_bitwise = functools.partial(elementwise, "bits")


def arithmetic() -> Iterator[Case]:
    for kind in _TYPES:
        bits = width(kind)
        for op in ("add", "sub", "mul.lo", "mul.hi", "div", "rem", "min", "max"):
            name = f"{op}.{kind}"
            yield _arithmetic(name, f"{name} {{d}}, {{a}}, {{b}}", bits, [kind] * 2)
        for op in ("mad.lo", "mad.hi", "sad"):
            name = f"{op}.{kind}"
            yield _arithmetic(name, f"{name} {{d}}, {{a}}, {{b}}, {{c}}", bits, [kind] * 3)
        if kind[0] == "s":
            for op in ("abs", "neg"):
                yield _arithmetic(f"{op}.{kind}", f"{op}.{kind} {{d}}, {{a}}", bits, [kind])
        if bits < 64:
            wide = f"{kind[0]}{2 * bits}"
            name = f"mul.wide.{kind}"
            yield _arithmetic(name, f"{name} {{d}}, {{a}}, {{b}}", 2 * bits, [kind] * 2)
            name = f"mad.wide.{kind}"
            kinds = [kind, kind, wide]
            yield _arithmetic(name, f"{name} {{d}}, {{a}}, {{b}}, {{c}}", 2 * bits, kinds)
    for kind in ("s32", "u32"):
        for half in ("lo", "hi"):
            name = f"mul24.{half}.{kind}"
            yield _arithmetic(name, f"{name} {{d}}, {{a}}, {{b}}", 32, [kind] * 2)
            name = f"mad24.{half}.{kind}"
            yield _arithmetic(name, f"{name} {{d}}, {{a}}, {{b}}, {{c}}", 32, [kind] * 3)
    for name in ("add.sat.s32", "sub.sat.s32", "min.relu.s32", "max.relu.s32"):
        yield _arithmetic(name, f"{name} {{d}}, {{a}}, {{b}}", 32, ["s32"] * 2)
    for name in ("mad.hi.sat.s32", "mad24.hi.sat.s32"):
        yield _arithmetic(name, f"{name} {{d}}, {{a}}, {{b}}, {{c}}", 32, ["s32"] * 3)
    for kind in ("u16x2", "s16x2"):
        ops = ["add", "min", "max"] + (["min.relu", "max.relu"] if kind == "s16x2" else [])
        for op in ops:
            name = f"{op}.{kind}"
            yield _arithmetic(name, f"{name} {{d}}, {{a}}, {{b}}", 32, [kind] * 2)
    yield from _carries()
    for a in ("u32", "s32"):
        for b in ("u32", "s32"):
            total = "u32" if a == b == "u32" else "s32"
            for op in ("dp4a", "dp2a.lo", "dp2a.hi"):
                name = f"{op}.{a}.{b}"
                text = f"{name} {{d}}, {{a}}, {{b}}, {{c}}"
                yield _arithmetic(name, text, 32, [a, b, total])


def _carries() -> Iterator[Case]:
    """Chains: the second result holds what the carry became."""
    for kind in ("u32", "s32", "u64", "s64"):
        bits = width(kind)
        for add, carry in (("add", "addc"), ("sub", "subc")):
            text = (
                f"{add}.cc.{kind} {{d}}, {{a}}, {{b}};\n{carry}.cc.{kind} {{f}}, {{b}}, {{c}};\n"
                f"{carry}.{kind} {{g}}, {{c}}, 0"
            )
            yield _arithmetic(f"{add}.cc.{kind}", text, [bits] * 3, [kind] * 3)
    for kind in ("u32", "s32", "u64", "s64"):
        bits = width(kind)
        for first, second in (("lo", "hi"), ("hi", "lo")):
            text = (
                f"mad.{first}.cc.{kind} {{d}}, {{a}}, {{b}}, {{c}};\n"
                f"madc.{second}.cc.{kind} {{f}}, {{a}}, {{b}}, {{c}};\n"
                f"addc.{kind} {{g}}, {{c}}, 0"
            )
            yield _arithmetic(f"mad.{first}.cc.{kind}", text, [bits] * 3, [kind] * 3)


def bits() -> Iterator[Case]:
    for size in (16, 32, 64):
        kind = f"b{size}"
        for op in ("and", "or", "xor"):
            yield _bitwise(f"{op}.{kind}", f"{op}.{kind} {{d}}, {{a}}, {{b}}", size, [kind] * 2)
        for op in ("not", "cnot"):
            yield _bitwise(f"{op}.{kind}", f"{op}.{kind} {{d}}, {{a}}", size, [kind])
        for name in (f"shl.b{size}", f"shr.u{size}", f"shr.s{size}", f"shr.b{size}"):
            values = _with_amount(name, kind)
            yield _bitwise(name, f"{name} {{d}}, {{a}}, {{b}}", size, (), values=values)
    for size in (32, 64):
        for op, result in (("clz", 32), ("popc", 32), ("brev", size)):
            yield _bitwise(f"{op}.b{size}", f"{op}.b{size} {{d}}, {{a}}", result, [f"b{size}"])
        for sign in "us":
            kind = f"{sign}{size}"
            for op in ("bfind", "bfind.shiftamt"):
                yield _bitwise(f"{op}.{kind}", f"{op}.{kind} {{d}}, {{a}}", 32, [kind])
            name = f"bfe.{kind}"
            values = [*_with_amount(name, kind), _amounts(name + "/length", 96)]
            yield _bitwise(name, f"{name} {{d}}, {{a}}, {{b}}, {{c}}", size, (), values=values)
        name = f"bfi.b{size}"
        values = [operands(Bits(name + "/b"), f"b{size}", 96), *_with_amount(name, f"b{size}")]
        values.append(_amounts(name + "/length", 96))
        yield _bitwise(name, f"{name} {{d}}, {{a}}, {{b}}, {{c}}, {{e}}", size, (), values=values)
    for side in "lr":
        for mode in ("clamp", "wrap"):
            name = f"shf.{side}.{mode}.b32"
            values = [operands(Bits(name + "/low"), "b32", 96), *_with_amount(name, "b32")]
            yield _bitwise(name, f"{name} {{d}}, {{a}}, {{b}}, {{c}}", 32, (), values=values)
    for mode in ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"):
        name = f"prmt.b32{mode}"
        values = [*_with_amount(name, "b32", "b32")]
        values.append(Bits(name + "/selector").words(96).astype(np.uint32))
        yield _bitwise(name, f"{name} {{d}}, {{a}}, {{b}}, {{c}}", 32, (), values=values)
    for mode in ("clamp", "wrap"):
        name = f"bmsk.{mode}.b32"
        values = [_amounts(name + "/a", 96), _amounts(name + "/b", 96)]
        yield _bitwise(name, f"{name} {{d}}, {{a}}, {{b}}", 32, (), values=values)
        for kind in ("u32", "s32"):
            name = f"szext.{mode}.{kind}"
            values = _with_amount(name, kind)
            yield _bitwise(name, f"{name} {{d}}, {{a}}, {{b}}", 32, (), values=values)
    yield _fns()
    yield _every_lop3()
    for op in ("or", "and"):
        name = f"lop3.{op}.b32"
        text = f"setp.lt.s32 %q0, {{a}}, 0;\n{name} {{d}}|{{f}}, {{a}}, {{b}}, {{c}}, 0x96, %q0"
        yield _bitwise(name, text, [32, 1], ["b32"] * 3)


def _amounts(name: str, count: int) -> np.ndarray:
    """Positions and lengths, mostly small, and some beyond what the instruction looks at."""
    random = Bits(f"amounts/{name}")
    small, any_bits = random.below(70, count), random.words(count)
    return np.where(random.below(6, count) == 0, any_bits, small).astype(np.uint32)


def _with_amount(name: str, kind: str, amount: str | None = None) -> list[np.ndarray]:
    values = operands(Bits(f"bits/{name}"), kind, 96)
    if amount is not None:
        return [values, operands(Bits(f"bits/{name}/second"), amount, 96)]
    return [values, _amounts(name, 96)]


def _fns() -> Case:
    random = Bits("bits/fns")
    offset = random.below(41, 96).astype(np.int64) - 20
    values = [
        random.words(96).astype(np.uint32),
        random.below(32, 96).astype(np.uint32),
        offset.astype(np.int32).view(np.uint32),
    ]
    return _bitwise("fns.b32", "fns.b32 {d}, {a}, {b}, {c}", 32, (), values=values)


def _every_lop3() -> Case:
    """All 256 tables on four lanes."""
    lanes = 4
    values = tuple(Bits(f"bits/lop3/{i}").words(lanes).astype(np.uint32) for i in range(3))
    lines = []
    for i in range(3):
        lines += [element(f"%p{i}", 32), f"ld.global.b32 %r{i}, [%d40];"]
    lines.append(element("%p3", 32))
    for table in range(256):
        lines += [
            f"lop3.b32 %r9, %r0, %r1, %r2, {table};",
            f"st.global.b32 [%d40+{4 * lanes * table}], %r9;",
        ]
    result = poisoned(256 * lanes, 32)
    return Case("lop3.b32", "\n".join(lines), values, (result,), block=(lanes, 1, 1))
