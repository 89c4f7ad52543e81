"""Arithmetic in f32 and f64, and in f16 and bf16, alone and in pairs."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import numpy as np

from tests.emulator.golden.case import Case, elementwise
from tests.emulator.golden.values import FLOATS, width

_ROUNDINGS = (".rn", ".rz", ".rm", ".rp")
_f = functools.partial(elementwise, "float")
_h = functools.partial(elementwise, "half")


def single_and_double() -> Iterator[Case]:
    arguments = {1: "{a}", 2: "{a}, {b}", 3: "{a}, {b}, {c}"}
    for op, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)):
        for rounding, ftz, sat in itertools.product(_ROUNDINGS, ("", ".ftz"), ("", ".sat")):
            name = f"{op}{rounding}{ftz}{sat}.f32"
            yield _f(name, f"{name} {{d}}, {arguments[count]}", 32, ["f32"] * count)
        for rounding in _ROUNDINGS:
            name = f"{op}{rounding}.f64"
            yield _f(name, f"{name} {{d}}, {arguments[count]}", 64, ["f64"] * count)
    for op, count in (("div", 2), ("rcp", 1), ("sqrt", 1)):
        for rounding, ftz in itertools.product(_ROUNDINGS, ("", ".ftz")):
            name = f"{op}{rounding}{ftz}.f32"
            yield _f(name, f"{name} {{d}}, {arguments[count]}", 32, ["f32"] * count)
        for rounding in _ROUNDINGS:
            name = f"{op}{rounding}.f64"
            yield _f(name, f"{name} {{d}}, {arguments[count]}", 64, ["f64"] * count)
    for op, nan, xorsign, ftz in itertools.product(
        ("min", "max"), ("", ".NaN"), ("", ".xorsign.abs"), ("", ".ftz")
    ):
        name = f"{op}{ftz}{nan}{xorsign}.f32"
        yield _f(name, f"{name} {{d}}, {{a}}, {{b}}", 32, ["f32"] * 2)
    for op in ("min", "max", "copysign"):
        yield _f(f"{op}.f64", f"{op}.f64 {{d}}, {{a}}, {{b}}", 64, ["f64"] * 2)
    yield _f("copysign.f32", "copysign.f32 {d}, {a}, {b}", 32, ["f32"] * 2)
    for op in ("neg", "abs"):
        for kind in ("f32", "f64"):
            yield _f(f"{op}.{kind}", f"{op}.{kind} {{d}}, {{a}}", width(kind), [kind])
        yield _f(f"{op}.ftz.f32", f"{op}.ftz.f32 {{d}}, {{a}}", 32, ["f32"])
    for kind in ("f32", "f64"):
        for test in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
            name = f"testp.{test}.{kind}"
            yield _f(name, f"{name} {{d}}, {{a}}", 1, [kind])


def approximate() -> Iterator[Case]:
    """Functions that PTX gives an error bound, not a definition."""
    for ftz in ("", ".ftz"):
        for op in ("div.approx", "div.full"):
            name = f"{op}{ftz}.f32"
            text = f"{name} {{d}}, {{a}}, {{b}}"
            yield elementwise("approximate", name, text, 32, ["f32"] * 2, count=512, bound="approx")
        for op in ("rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos"):
            name = f"{op}.approx{ftz}.f32"
            text = f"{name} {{d}}, {{a}}"
            yield elementwise("approximate", name, text, 32, ["f32"], count=512, bound="approx")
    name = "tanh.approx.f32"
    text = f"{name} {{d}}, {{a}}"
    yield elementwise("approximate", name, text, 32, ["f32"], count=512, bound="approx")
    for name in ("rcp.approx.ftz.f64", "rsqrt.approx.ftz.f64", "rsqrt.approx.f64"):
        text = f"{name} {{d}}, {{a}}"
        yield elementwise("approximate", name, text, 64, ["f64"], count=256, bound="approx")
    for kind in ("f16", "f16x2", "bf16", "bf16x2"):
        ftz = ".ftz" if kind.startswith("b") else ""
        for name in (f"tanh.approx.{kind}", f"ex2.approx{ftz}.{kind}"):
            text = f"{name} {{d}}, {{a}}"
            yield elementwise(
                "approximate", name, text, width(kind), [kind], count=512, bound="approx"
            )


def half() -> Iterator[Case]:
    for kind in ("f16", "f16x2", "bf16", "bf16x2"):
        bits, is_f16 = width(kind), kind.startswith("f")
        flushes = ("", ".ftz") if is_f16 else ("",)
        for op, rounding in itertools.product(("add", "sub", "mul"), ("", ".rn")):
            for ftz, sat in itertools.product(flushes, ("", ".sat") if is_f16 else ("",)):
                name = f"{op}{rounding}{ftz}{sat}.{kind}"
                yield _h(name, f"{name} {{d}}, {{a}}, {{b}}", bits, [kind] * 2)
        for ftz, clamp in itertools.product(flushes, ("", ".sat", ".relu")):
            if clamp == ".sat" and not is_f16:
                continue
            name = f"fma.rn{ftz}{clamp}.{kind}"
            yield _h(name, f"{name} {{d}}, {{a}}, {{b}}, {{c}}", bits, [kind] * 3)
        for relu in ("", ".relu"):
            name = f"fma.rn.oob{relu}.{kind}"
            yield _h(name, f"{name} {{d}}, {{a}}, {{b}}, {{c}}", bits, [kind] * 3)
        if not kind.endswith("x2"):
            yield _every_nan(kind)
        for op, ftz in itertools.product(("neg", "abs"), flushes):
            name = f"{op}{ftz}.{kind}"
            yield _h(name, f"{name} {{d}}, {{a}}", bits, [kind])
        for op, ftz, nan, xorsign in itertools.product(
            ("min", "max"), flushes, ("", ".NaN"), ("", ".xorsign.abs")
        ):
            name = f"{op}{ftz}{nan}{xorsign}.{kind}"
            yield _h(name, f"{name} {{d}}, {{a}}, {{b}}", bits, [kind] * 2)


def _every_nan(kind: str) -> Case:
    """Which NaN is the one of elements out of bounds, that fma.oob turns into zero."""
    layout = FLOATS[kind]
    infinity = ((1 << layout.exponent_bits) - 1) << layout.mantissa_bits
    mantissa = np.arange(1, 1 << layout.mantissa_bits)[-510:]
    nan = np.concatenate([infinity | mantissa, infinity | mantissa | 1 << 15]).astype(np.uint16)
    two = np.full_like(nan, (layout.bias + 1) << layout.mantissa_bits)
    name = f"fma.rn.oob.{kind}"
    return _h(f"{name}:nan", f"{name} {{d}}, {{a}}, {{b}}, {{b}}", 16, (), values=[nan, two])
