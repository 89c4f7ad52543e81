"""cvt between every pair of types that sm_90a has, and cvt.pack."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

from tests.emulator.golden.case import Case, elementwise
from tests.emulator.golden.values import width

_INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
_FLOATS = ("f16", "bf16", "f32", "f64")
_TO_INTEGER = (".rni", ".rzi", ".rmi", ".rpi")
_ROUNDINGS = (".rn", ".rz", ".rm", ".rp")


def _register_bits(kind: str) -> int:
    return 32 if kind in ("tf32",) else max(width(kind), 16)


def _cvt(modifiers: str, to: str, *sources: str) -> Case:
    name = f"cvt{modifiers}.{to}.{sources[0]}"
    letters = ", ".join("{a}" if i == 0 else "{b}" for i in range(len(sources)))
    return elementwise(
        "convert", name, f"{name} {{d}}, {letters}", _register_bits(to), list(sources)
    )


def _holds(to: str, source: str) -> bool:
    """Whether an integer type has every value of another one; .sat is not allowed then."""
    if to[0] == source[0]:
        return width(to) >= width(source)
    return to[0] == "s" and width(to) > width(source)


def conversions() -> Iterator[Case]:
    yield from _integers()
    yield from _integer_and_float()
    yield from _floats()
    yield from _packed()
    yield from _pack()


def _integers() -> Iterator[Case]:
    for to, source in itertools.product(_INTEGERS, _INTEGERS):
        yield _cvt("", to, source)
        if not _holds(to, source):
            yield _cvt(".sat", to, source)
    # Into registers that are wider than the type: the result is extended.
    for to in ("u8", "s8", "u16", "s16", "u32", "s32"):
        name = f"cvt.{to}.u64"
        yield elementwise(
            "convert", f"{name}:wide", f"{name} {{d}}, {{a}}", 2 * max(width(to), 16), ["u64"]
        )


def _integer_and_float() -> Iterator[Case]:
    for integer, real in itertools.product(_INTEGERS, _FLOATS):
        if real == "bf16" and width(integer) == 8:
            continue
        for rounding in _TO_INTEGER:
            yield _cvt(rounding, integer, real)
            if real == "f32":
                yield _cvt(f"{rounding}.ftz", integer, real)
        if real != "bf16":
            yield _cvt(".rzi.sat", integer, real)
        for rounding in _ROUNDINGS:
            yield _cvt(rounding, real, integer)
        if real in ("f32", "f64"):
            yield _cvt(".rn.sat", real, integer)


def _floats() -> Iterator[Case]:
    for kind in _FLOATS:
        for rounding, sat in itertools.product(_TO_INTEGER, ("", ".sat")):
            if kind == "bf16" and sat:
                continue
            yield _cvt(f"{rounding}{sat}", kind, kind)
    for rounding in _TO_INTEGER:
        yield _cvt(f"{rounding}.ftz", "f32", "f32")
    for to, source in (("f32", "f16"), ("f32", "bf16"), ("f64", "f16"), ("f64", "bf16")):
        yield _cvt("", to, source)
    yield _cvt("", "f64", "f32")
    yield _cvt(".ftz", "f64", "f32")
    yield _cvt(".ftz", "f32", "f16")
    for kind in ("f32", "f64", "f16"):
        yield _cvt(".sat", kind, kind)
    for to, source in (("f32", "f64"), ("f16", "f32"), ("f16", "f64")):
        for rounding, sat in itertools.product(_ROUNDINGS, ("", ".sat")):
            yield _cvt(f"{rounding}{sat}", to, source)
            if "f32" in (to, source):
                yield _cvt(f"{rounding}.ftz{sat}", to, source)
    for to, source in (("bf16", "f32"), ("bf16", "f64"), ("bf16", "f16"), ("f16", "bf16")):
        for rounding in _ROUNDINGS:
            yield _cvt(rounding, to, source)
    for rounding, relu, to in itertools.product((".rn", ".rz"), ("", ".relu"), ("f16", "bf16")):
        if relu:
            yield _cvt(f"{rounding}{relu}", to, "f32")
        yield _cvt(f"{rounding}{relu}.satfinite", to, "f32")
    for rounding, relu in itertools.product((".rn", ".rz"), ("", ".relu")):
        yield _cvt(f"{rounding}{relu}", "tf32", "f32")
    yield _cvt(".rna", "tf32", "f32")
    yield _cvt(".rna.satfinite", "tf32", "f32")


def _packed() -> Iterator[Case]:
    for rounding, relu, to in itertools.product((".rn", ".rz"), ("", ".relu"), ("f16", "bf16")):
        for satfinite in ("", ".satfinite"):
            yield _cvt(f"{rounding}{relu}{satfinite}", f"{to}x2", "f32", "f32")
    for kind, relu in itertools.product(("e4m3x2", "e5m2x2"), ("", ".relu")):
        yield _cvt(f".rn.satfinite{relu}", kind, "f32", "f32")
        yield _cvt(f".rn.satfinite{relu}", kind, "f16x2")
        yield _cvt(f".rn{relu}", "f16x2", kind)


def _pack() -> Iterator[Case]:
    make = functools.partial(elementwise, "convert")
    for kind in ("u16", "s16"):
        name = f"cvt.pack.sat.{kind}.s32"
        yield make(name, f"{name} {{d}}, {{a}}, {{b}}", 32, ["s32"] * 2)
    for kind in ("u8", "s8", "u4", "s4", "u2", "s2"):
        name = f"cvt.pack.sat.{kind}.s32.b32"
        yield make(name, f"{name} {{d}}, {{a}}, {{b}}, {{c}}", 32, ["s32", "s32", "b32"])
