"""setp, set, selp and slct, with every comparison."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

from tests.emulator.golden.case import Case, elementwise
from tests.emulator.golden.values import width

_make = functools.partial(elementwise, "compare")
_SIGNED = ("eq", "ne", "lt", "le", "gt", "ge")
_UNSIGNED = (*_SIGNED, "lo", "ls", "hi", "hs")
_FLOAT = (*_SIGNED, "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
_HALVES = ("f16", "f16x2", "bf16", "bf16x2")


def _comparisons(kind: str) -> tuple[str, ...]:
    if "f" in kind:
        return _FLOAT
    return {"b": ("eq", "ne"), "s": _SIGNED, "u": _UNSIGNED}[kind[0]]


def comparisons() -> Iterator[Case]:
    kinds = [f"{sign}{bits}" for sign in "bsu" for bits in (16, 32, 64)]
    for kind in (*kinds, "f32", "f64", *_HALVES):
        for op in _comparisons(kind):
            for ftz in ("", ".ftz") if kind in ("f32", "f16", "f16x2") else ("",):
                name = f"setp.{op}{ftz}.{kind}"
                if kind in _HALVES and kind.endswith("x2"):
                    text = f"{name} {{d}}|{{f}}, {{a}}, {{b}}"
                    yield _make(name, text, [1, 1], [kind] * 2, count=64)
                else:
                    yield _make(name, f"{name} {{d}}, {{a}}, {{b}}", 1, [kind] * 2, count=64)
    for kind, boolean in itertools.product(("s32", "f32", "f16"), ("and", "or", "xor")):
        for invert in ("", "!"):
            name = f"setp.lt.{boolean}.{kind}"
            results = "{d}" if kind == "f16" else "{d}|{f}"
            text = (
                "and.b32 %r50, %t, 1;\nsetp.eq.u32 %q0, %r50, 1;\n"
                f"{name} {results}, {{a}}, {{b}}, {invert}%q0"
            )
            bits = [1] * results.count("{")
            yield _make(f"{name}{':not' * bool(invert)}", text, bits, [kind] * 2, count=64)
    for to, kind in itertools.product(("u32", "s32", "f32"), ("s32", "u16", "f32", "f64", "b64")):
        for op in ("eq", "ne", "lt", "geu", "nan"):
            if op not in _comparisons(kind):
                continue
            name = f"set.{op}.{to}.{kind}"
            yield _make(name, f"{name} {{d}}, {{a}}, {{b}}", 32, [kind] * 2, count=64)
    for op, kind in itertools.product(("lt", "neu", "num"), _HALVES):
        targets = [kind] if kind.endswith("x2") else [kind, "u32", "s32", "u16"]
        for to in targets:
            name = f"set.{op}.{to}.{kind}"
            yield _make(name, f"{name} {{d}}, {{a}}, {{b}}", width(to), [kind] * 2, count=64)
    yield from _selections()


def _selections() -> Iterator[Case]:
    for kind in ("b16", "u16", "b32", "s32", "b64", "f32", "f64"):
        name = f"selp.{kind}"
        text = f"setp.lt.s32 %q0, {{c}}, 0;\n{name} {{d}}, {{a}}, {{b}}, %q0"
        yield _make(name, text, width(kind), [kind, kind, "s32"], count=64)
    for kind in ("b16", "b32", "b64", "u16", "s32", "u64", "f32", "f64"):
        for name in (f"slct.{kind}.s32", f"slct.{kind}.f32", f"slct.ftz.{kind}.f32"):
            kinds = [kind, kind, name[-3:]]
            yield _make(name, f"{name} {{d}}, {{a}}, {{b}}, {{c}}", width(kind), kinds, count=64)
