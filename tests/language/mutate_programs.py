"""Legal tile programs, each with one random change, most of which make them illegal.

A change rewrites one line of the printed script. What the parser itself refuses is drawn again.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from tests.shared import tile_programs
from tests.shared.tile_programs.case import Case
from warploom import language as wl

Lines = list[str]
#: A nest over i and j, and its store.
_GRID = re.compile(r"( *)for i, j in T\.grid\((\d+), (\d+)\):")
_STORE = re.compile(r"( *)(\w+)\[i, j\] = (.*)")
_ALLOC = re.compile(r" *(\w+) = T\.alloc_(?:buffer|shared)\(")
_SHAPE = re.compile(r"\((\d+)(?:, (\d+))?,?\)")
_DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "int32", "float8_e4m3fn")
_SCOPES = ("acumulator", "fragments", "shard", "register", "local", "warp", "shared.mine", "acc")


def mutant(
    seed: int, among: Iterable[str] = (), scaled: bool = False
) -> tuple[str, PrimFunc, Case]:
    """The change of a seed, the program that it gives, and the case of the legal program.

    The change is one of those named, or, without any, one of all. With ``scaled``, operands of
    MMAs have scales.
    """
    names = sorted(among) or list(CHANGES)
    rng = np.random.default_rng(seed)
    while True:
        case = tile_programs.random_program(rng, scaled=scaled)
        name = str(rng.choice(names))
        lines = case.func.script().splitlines()
        if not CHANGES[name](lines, rng):
            continue
        func = _parsed("\n".join(lines) + "\n")
        if func is not None:
            return name, func, case


def _parsed(script: str) -> PrimFunc | None:
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        try:
            return tvm.script.from_source(script, {"T": T, "Tx": Tx, "wl": wl, "tvm": tvm})
        except Exception:  # whatever TVM's parser raises
            return None


def _nests(lines: Lines) -> list[int]:
    """Numbers of the stores of nests; the loops are the lines before."""
    return [n for n in range(1, len(lines)) if _GRID.match(lines[n - 1]) and _STORE.match(lines[n])]


def _pick(rng: np.random.Generator, choices: Any) -> Any:
    choices = list(choices)
    return choices[rng.integers(len(choices))] if choices else None


def _in_nest(change: Callable[[Lines, int, np.random.Generator], None]) -> Any:
    def apply(lines: Lines, rng: np.random.Generator) -> bool:
        at = _pick(rng, _nests(lines))
        if at is None:
            return False
        before = list(lines)
        change(lines, at, rng)
        return lines != before

    return apply


def _extents(lines: Lines, at: int, rng: np.random.Generator) -> None:
    indent, *sizes = _GRID.match(lines[at - 1]).groups()
    sizes[rng.integers(2)] = str(int(sizes[0]) + int(_pick(rng, (-8, 8, 16))))
    lines[at - 1] = f"{indent}for i, j in T.grid({', '.join(sizes)}):"


def _start(lines: Lines, at: int, rng: np.random.Generator) -> None:
    """The loop over columns begins later or earlier."""
    indent, rows, columns = _GRID.match(lines[at - 1]).groups()
    first = _pick(rng, (1, 8, -1))
    last = int(columns) + _pick(rng, (0, 0, first))
    lines[at - 1 : at + 1] = [
        f"{indent}for i in range({rows}):",
        f"{indent}    for j in range({first}, {last}):",
        f"    {lines[at]}",
    ]


def _read_elsewhere(lines: Lines, at: int, rng: np.random.Generator) -> None:
    indent, target, value = _STORE.match(lines[at]).groups()
    other = _pick(rng, ("i, j - 1", "i + 1, j", "i, j + 1", "j, i", "i, 0", "i, j // 2"))
    lines[at] = f"{indent}{target}[i, j] = {value.replace('[i, j]', f'[{other}]', 1)}"


def _store_elsewhere(lines: Lines, at: int, rng: np.random.Generator) -> None:
    indent, target, value = _STORE.match(lines[at]).groups()
    other = _pick(rng, ("i, 0", "0, j", "i // 2, j", "i, j % 8", "i, j + 1", "i, i", "j, i"))
    lines[at] = f"{indent}{target}[{other}] = {value}"


def _depend(lines: Lines, at: int, rng: np.random.Generator) -> None:
    _, _, columns = _GRID.match(lines[at - 1]).groups()
    indent, target, value = _STORE.match(lines[at]).groups()
    other = _pick(rng, (f"i, (j + 1) % {columns}", "i, 0", f"i, {columns} - 1 - j"))
    lines[at] = f"{indent}{target}[i, j] = T.max({target}[{other}], {value})"


def _carry(lines: Lines, at: int, _: np.random.Generator) -> None:
    indent = _GRID.match(lines[at - 1])[1]
    lines[at - 1 : at + 1] = [
        f"{indent}total: T.int32 = 0", lines[at - 1], f"{indent}    total = total + 1", lines[at],
    ]  # fmt: skip


def _guard(lines: Lines, at: int, rng: np.random.Generator) -> None:
    """By an element, which is illegal, or by a place, which is not."""
    indent, target, _ = _STORE.match(lines[at]).groups()
    by_place = ("i < j", "j % 2 == 0", "i + j > 40")
    condition = _pick(rng, (*[f"{target}[i, j] > {target}[i, 0]"] * 3, *by_place))
    lines[at : at + 1] = [f"{indent}if {condition}:", f"    {lines[at]}"]


def _allocation(change: Callable[[str, np.random.Generator], str]) -> Any:
    def apply(lines: Lines, rng: np.random.Generator) -> bool:
        tiles = [n for n, line in enumerate(lines) if _ALLOC.match(line) and _SHAPE.search(line)]
        at = _pick(rng, tiles)
        if at is None:
            return False
        old, lines[at] = lines[at], change(lines[at], rng)
        return lines[at] != old

    return apply


def _scope(line: str, rng: np.random.Generator) -> str:
    line = line.replace("T.alloc_shared(", "T.alloc_buffer(")
    if "scope=" not in line:
        line = f'{line[:-1]}, scope="shared")'
    return re.sub(r'scope="[\w.]+"', f'scope="{_pick(rng, _SCOPES)}"', line)


def _rank(line: str, rng: np.random.Generator) -> str:
    rows, columns = _SHAPE.search(line).groups()
    one = f"({rows},)" if columns else f"({rows}, 1)"
    more = f"({rows}, {columns or 1}, 1)"
    return _SHAPE.sub(str(_pick(rng, (one, more, f"(1, {rows}, {columns or 1})"))), line, count=1)


def _shape(line: str, rng: np.random.Generator) -> str:
    sizes = [int(one) for one in _SHAPE.search(line).groups() if one]
    sizes[rng.integers(len(sizes))] += int(_pick(rng, (-16, -1, 16)))
    return _SHAPE.sub(f"({', '.join(map(str, sizes))},)", line, count=1)


def _dtype(line: str, rng: np.random.Generator) -> str:
    found = re.search(r'"(\w+)"', line.replace("scope=", "", 1)) and re.search(
        r'\), "(\w+)"', line
    )
    if found is None:
        return _SHAPE.sub(lambda m: f'{m[0]}, "{_pick(rng, _DTYPES)}"', line, count=1)
    return line.replace(f'"{found[1]}"', f'"{_pick(rng, _DTYPES)}"', 1)


def _flags(lines: Lines, rng: np.random.Generator) -> bool:
    """A matmul that forgets accum=, or takes an operand the other way."""
    at = _pick(rng, [n for n, line in enumerate(lines) if "gemm_async(" in line])
    parts = lines[at].rsplit(", ", 3)
    which = int(_pick(rng, (1, 2, 3, 3, 3)))
    flag = str(_pick(rng, ("False", "True", "k > 0", "k == 0")))
    parts[which] = flag + ")" * (which == 3)
    old, lines[at] = lines[at], ", ".join(parts)
    return lines[at] != old


def _statements(lines: Lines) -> list[int]:
    return [n for n, line in enumerate(lines) if "T.cta." in line]


def _drop(lines: Lines, rng: np.random.Generator) -> bool:
    """A statement less: a result that is not stored, a tile that nobody fills."""
    at = _pick(rng, _statements(lines))
    lines[at] = lines[at][: len(lines[at]) - len(lines[at].lstrip())] + "T.evaluate(0)"
    return True


def _swap(lines: Lines, rng: np.random.Generator) -> bool:
    """Two statements in the other order."""
    a, b = rng.choice(_statements(lines), 2, replace=False)
    indents = [len(lines[n]) - len(lines[n].lstrip()) for n in (a, b)]
    texts = [lines[n].lstrip() for n in (a, b)]
    lines[a], lines[b] = " " * indents[0] + texts[1], " " * indents[1] + texts[0]
    return texts[0] != texts[1]


def _region(lines: Lines, rng: np.random.Generator) -> bool:
    """A region of a tile that begins later or is smaller."""
    at = _pick(rng, [n for n in _statements(lines) if re.search(r"\b0:\d+", lines[n])])
    if at is None:
        return False
    found = list(re.finditer(r"\b0:(\d+)", lines[at]))
    one, by = _pick(rng, found), int(_pick(rng, (1, 8, 16)))
    size = int(one[1])
    new = _pick(rng, (f"{by}:{size + by}", f"0:{size - by}", f"0:{size + by}"))
    lines[at] = lines[at][: one.start()] + new + lines[at][one.end() :]
    return True


CHANGES: dict[str, Callable[[Lines, np.random.Generator], bool]] = {
    "extents of a nest": _in_nest(_extents),
    "start of a nest": _in_nest(_start),
    "read elsewhere": _in_nest(_read_elsewhere),
    "store elsewhere": _in_nest(_store_elsewhere),
    "dependence": _in_nest(_depend),
    "carried scalar": _in_nest(_carry),
    "guard": _in_nest(_guard),
    "scope": _allocation(_scope),
    "rank": _allocation(_rank),
    "shape": _allocation(_shape),
    "dtype": _allocation(_dtype),
    "flags of a matmul": _flags,
    "dropped statement": _drop,
    "swapped statements": _swap,
    "region": _region,
}
