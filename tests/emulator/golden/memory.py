"""Loads, stores and atomic operations."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from tests.emulator.golden.case import Case, bits_of, element, poisoned, register
from tests.emulator.golden.values import Bits, operands, unsigned, width

_BITWISE = ("b32", "b64")
_NUMBERS = ("u32", "s32", "u64", "s64")


def loads_and_stores() -> Iterator[Case]:
    """Vectors, and what happens to the rest of a register that is wider than the type."""
    for kind, into in itertools.product(("u8", "s8", "u16", "s16", "u32", "s32"), (16, 32, 64)):
        if into >= width(kind):
            for space in ("global", "shared"):
                yield _extending_load(kind, into, space)
    for kind, count in itertools.product(("u8", "b16", "b32", "b64"), (2, 4)):
        if width(kind) * count <= 128:
            yield _vector(kind, count)
    for kind, source in (("u8", 16), ("u8", 32), ("u8", 64), ("u16", 32), ("u32", 64), ("b16", 16)):
        yield _narrow_store(kind, source)


def _extending_load(kind: str, into: int, space: str) -> Case:
    name = f"ld.{space}.{kind}:{into}"
    values = operands(Bits(name), kind, 64)
    bits = width(kind)
    lines = [element("%p0", bits), f"ld.global.{kind} {register(64, 0)}, [%d40];"]
    d = register(into, 1)
    if space == "shared":
        lines[1] = f"ld.global.b{bits} {register(max(bits, 16), 0)}, [%d40];"
        lines += [
            ".shared .align 16 .b8 buffer[512];",
            f"mov.u32 %r20, buffer;\nmad.lo.u32 %r20, %t, {bits // 8}, %r20;",
            f"st.shared.b{bits} [%r20], {register(max(bits, 16), 0)};",
            f"ld.shared.{kind} {d}, [%r20];",
        ]
    else:
        lines[1] = f"ld.global.{kind} {d}, [%d40];"
    lines += [element("%p1", into), f"st.global.b{into} [%d40], {d};"]
    return Case(name, "\n".join(lines), (values,), (poisoned(64, into),), block=(64, 1, 1))


def _vector(kind: str, count: int) -> Case:
    name = f"ld.v{count}.{kind}"
    bits = width(kind)
    values = operands(Bits(name), kind, 32 * count)
    registers = ", ".join(register(bits, i) for i in range(count))
    backwards = ", ".join(register(bits, count - 1 - i) for i in range(count))
    body = "\n".join(
        [
            element("%p0", bits * count),
            f"ld.global.v{count}.{kind} {{{registers}}}, [%d40];",
            element("%p1", bits * count),
            f"st.global.v{count}.{kind} [%d40], {{{backwards}}};",
        ]
    )
    return Case(name, body, (values,), (poisoned(32 * count, bits),))


def _narrow_store(kind: str, source: int) -> Case:
    name = f"st.{kind}:{source}"
    values = operands(Bits(name), f"b{source}", 32)
    body = "\n".join(
        [
            element("%p0", source),
            f"ld.global.b{source} {register(source, 0)}, [%d40];",
            element("%p1", width(kind)),
            f"st.global.{kind} [%d40], {register(source, 0)};",
        ]
    )
    return Case(name, body, (values,), (poisoned(32, width(kind)),))


def _atomics() -> Iterator[tuple[str, str, str]]:
    """Operation, modifiers before the type, type."""
    for op, kind in itertools.product(("and", "or", "xor"), _BITWISE):
        yield op, "", kind
    for kind in (*_NUMBERS[:3], "f32", "f64"):
        yield "add", "", kind
    for kind in ("f16", "f16x2", "bf16", "bf16x2"):
        yield "add", ".noftz", kind
    for op, kind in itertools.product(("min", "max"), _NUMBERS):
        yield op, "", kind
    for op in ("inc", "dec"):
        yield op, "", "u32"


def atomics() -> Iterator[Case]:
    """One operation on each of 64 places, and then again on the same, which has a value now."""
    for (op, modifiers, kind), space in itertools.product(_atomics(), ("global", "shared")):
        yield _atomic(op, modifiers, kind, space, "atom")
        yield _atomic(op, modifiers, kind, space, "red")
    for space in ("global", "shared"):
        for kind in _BITWISE:
            yield _atomic("exch", "", kind, space, "atom")
        for kind in ("b16", "b32", "b64"):
            yield _compare_and_swap(kind, space)
    for kind, count in (("f32", 2), ("f32", 4)):
        yield _vector_atomic("add", "", kind, count)
    for op, kind, counts in (
        *((op, kind, (2, 4, 8)) for op in ("add", "min", "max") for kind in ("f16", "bf16")),
        *((op, kind, (2, 4)) for op in ("add", "min", "max") for kind in ("f16x2", "bf16x2")),
    ):
        for count in counts:
            yield _vector_atomic(op, ".noftz", kind, count)
    yield _collisions()
    yield _wide_exchange(False)
    yield _wide_exchange(True)


def _initial(name: str, kind: str, count: int) -> np.ndarray:
    return operands(Bits(f"{name}/memory"), kind, count)


def _move_to_shared(bits: int) -> list[str]:
    """The lane's element of %p1 in shared memory, at %r20."""
    temporary = register(max(bits, 16), 5)
    return [
        ".shared .align 16 .b8 buffer[1024];",
        f"mov.u32 %r20, buffer;\nmad.lo.u32 %r20, %t, {bits // 8}, %r20;",
        element("%p1", bits, into="%d41"),
        f"ld.global.b{bits} {temporary}, [%d41];",
        f"st.shared.b{bits} [%r20], {temporary};",
    ]


def _move_back(bits: int) -> list[str]:
    temporary = register(max(bits, 16), 5)
    return [f"ld.shared.b{bits} {temporary}, [%r20];", f"st.global.b{bits} [%d41], {temporary};"]


def _atomic(op: str, modifiers: str, kind: str, space: str, instruction: str) -> Case:
    name = f"{instruction}.{space}.{op}{modifiers}.{kind}"
    bits, count = width(kind), 64
    values = operands(Bits(name), kind, count)
    a, d = register(bits_of(kind), 0), register(bits_of(kind), 1)
    lines = [element("%p0", bits), f"ld.global.b{bits} {a}, [%d40];"]
    place = "%d41"
    if space == "shared":
        lines += _move_to_shared(bits)
        place = "%r20"
    else:
        lines.append(element("%p1", bits, into="%d41"))
    results = [_initial(name, kind, count)]
    if instruction == "atom":
        results.append(poisoned(count, bits))
        lines += [f"{name} {d}, [{place}], {a};", f"{name} {d}, [{place}], {a};"]
        lines += [element("%p2", bits), f"st.global.b{bits} [%d40], {d};"]
    else:
        lines += [f"{name} [{place}], {a};"] * 2
    if space == "shared":
        lines += _move_back(bits)
    return Case(name, "\n".join(lines), (values,), tuple(results), block=(count, 1, 1))


def _compare_and_swap(kind: str, space: str) -> Case:
    name = f"atom.{space}.cas.{kind}"
    bits, count = width(kind), 64
    memory = _initial(name, kind, count)
    compared = np.where(np.arange(count) % 2 == 0, memory, np.roll(memory, 1))
    swapped = operands(Bits(name), kind, count)
    names = [register(bits, i) for i in range(3)]
    lines = []
    if space == "shared":
        # %p1 is what is compared with here: the memory is %p2.
        lines += [line.replace("%p1", "%p2") for line in _move_to_shared(bits)]
    else:
        lines.append(element("%p2", bits, into="%d41"))
    lines += [element("%p0", bits), f"ld.global.b{bits} {names[0]}, [%d40];"]
    lines += [element("%p1", bits), f"ld.global.b{bits} {names[1]}, [%d40];"]
    place = "%r20" if space == "shared" else "%d41"
    lines += [f"{name} {names[2]}, [{place}], {names[0]}, {names[1]};"]
    lines += [element("%p3", bits), f"st.global.b{bits} [%d40], {names[2]};"]
    if space == "shared":
        lines += _move_back(bits)
    results = (memory, poisoned(count, bits))
    return Case(name, "\n".join(lines), (compared, swapped), results, block=(count, 1, 1))


def _vector_atomic(op: str, modifiers: str, kind: str, count: int) -> Case:
    name = f"atom.global.v{count}.{op}{modifiers}.{kind}".replace(
        f".v{count}.{op}{modifiers}", f".{op}{modifiers}.v{count}"
    )
    bits = width(kind)
    values = operands(Bits(name), kind, 32 * count)
    load = f"ld.global.v{count}.b{bits}"
    a = ", ".join(register(bits, i) for i in range(count))
    d = ", ".join(register(bits, 10 + i) for i in range(count))
    if count == 8:
        first = ", ".join(register(bits, i) for i in range(4))
        second = ", ".join(register(bits, i) for i in range(4, 8))
        loads = [
            f"ld.global.v4.b{bits} {{{first}}}, [%d40];",
            f"ld.global.v4.b{bits} {{{second}}}, [%d40+8];",
        ]
        stores = [f"st.global.b{bits} [%d40+{2 * i}], {register(bits, 10 + i)};" for i in range(8)]
    else:
        loads = [f"{load} {{{a}}}, [%d40];"]
        stores = [f"st.global.v{count}.b{bits} [%d40], {{{d}}};"]
    lines = [
        element("%p0", bits * count),
        *loads,
        element("%p1", bits * count, into="%d41"),
        f"{name} {{{d}}}, [%d41], {{{a}}};",
        element("%p2", bits * count),
        *stores,
    ]
    results = (_initial(name, kind, 32 * count), poisoned(32 * count, bits))
    return Case(name, "\n".join(lines), (values,), results)


def _collisions() -> Case:
    """Lanes of a warp at the same addresses: what is left does not depend on their order."""
    values = operands(Bits("collisions"), "u32", 32)
    lines = [
        element("%p0", 32),
        "ld.global.b32 %r0, [%d40];",
        "and.b32 %r1, %t, 3;",
        element("%p1", 32, "%r1"),
        "atom.global.add.u32 %r2, [%d40], %r0;",
        "red.global.max.s32 [%d40+16], %r0;",
        "red.global.xor.b32 [%d40+32], %r0;",
        "red.global.inc.u32 [%d40+48], 5;",
    ]
    return Case("collisions", "\n".join(lines), (values,), (np.zeros(16, np.uint32),))


def _wide_exchange(compare: bool) -> Case:
    name = "atom.global.cas.b128" if compare else "atom.global.exch.b128"
    memory = Bits(f"{name}/memory").words(64)
    compared = memory.copy()
    compared[::4] ^= np.uint64(1)
    values = Bits(name).words(64)
    lines = [".reg .b128 %w<3>;"]
    for i, pointer in enumerate(("%p0", "%p1")):
        lines += [
            "mul.wide.u32 %d40, %t, 16;",
            f"add.u64 %d40, %d40, {pointer};",
            "ld.global.v2.b64 {%d0, %d1}, [%d40];",
            f"mov.b128 %w{i}, {{%d0, %d1}};",
        ]
    lines += ["mul.wide.u32 %d41, %t, 16;", "add.u64 %d40, %d41, %p2;"]
    operand = "%w0, %w1" if compare else "%w1"
    lines += [
        f"{name} %w2, [%d40], {operand};",
        "mov.b128 {%d0, %d1}, %w2;",
        "add.u64 %d40, %d41, %p3;",
        "st.global.v2.b64 [%d40], {%d0, %d1};",
    ]
    results = (memory, np.zeros(64, unsigned(64)))
    return Case(name, "\n".join(lines), (compared, values), results)
