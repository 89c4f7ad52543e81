"""Random tile programs, and independently of them what they compute in numpy.

A program is a loop of loads, an optional transformation of an operand, one or two matmuls, and a
chain of elementwise steps and reductions. Each decision appends TVMScript to the program and a
function of whole matrices to the model, which works on operands padded with zeros to full tiles:
just what regions over the edge of a buffer read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.philox import first_word
from tests.shared.tile_programs.case import Case, poisoned, precision, random_values, wide
from tests.shared.tile_programs.scaled import FORMATS, in_blocks, in_rows
from warploom import language as wl
from warploom.layout.metadata_words import WORD, from_words, to_words
from warploom.sparse import compress, decompress, prune_2_4

Model = dict[str, Any]


@dataclass
class Draft:
    """A program in the making; every size and dtype is drawn from ``rng`` first."""

    rng: np.random.Generator
    by_tma: bool = False
    scaled: bool = False
    sparse: bool = False
    parameters: dict[str, str] = field(default_factory=dict)
    values: dict[str, Callable[[np.random.Generator], Any]] = field(default_factory=dict)
    tiles: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    model: list[Callable[[Model], None]] = field(default_factory=list)
    outputs: dict[str, Callable[[Model], np.ndarray]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.scaled:
            self._draw_scaled()
            return
        pick = self.pick
        self.dtype = pick("float16", "bfloat16", "float8_e4m3fn", "int8")
        self.byte = self.dtype in ("float8_e4m3fn", "int8")
        self.integer = self.dtype == "int8"
        self.float8 = self.byte and not self.integer
        self.acc = "int32" if self.integer else "float32"
        # Results of few rows are computed as their transpose, whose rows are the columns.
        few = () if self.by_tma else (64, 128, 8, 16, 32)
        self.bm, self.bn = pick(64, 128, *few), pick(16, 32, 48, 64, 96)
        if self.sparse and self.bm < 128:
            self.bm = pick(64, 128, 128)
        self.few = self.bm < 64
        if self.few:
            # tcgen05 has no MMA of 128 rows and 8 columns.
            self.bn = 64 if self.bm == 8 else pick(64, 128)
        self.bk = pick(32, 64, 128) if self.byte else pick(16, 32, 64)
        self.trans_a, self.trans_b = (pick(False, True) for _ in range(2))
        if self.byte and self.bm < 16:
            self.trans_a = False  # a row of 8 bytes is no operand's on Blackwell
        self.stages = pick(None, 1, 2, 3, 4)
        depth = self.stages or 3
        self.trips = pick(0, 1, depth - 1, depth, depth + 1, 2 * depth + 1)
        self.dynamic = self.trips == 0 or pick(False, True)
        self.rows, self.columns = pick(1, 2), pick(1, 2)
        # TMA takes rows of multiples of 16 bytes; threads copy others.
        whole = 16 if self.byte else 8
        step = 1 if not self.trans_a else whole if self.by_tma else pick(whole, 1)
        self.m = self._ragged(self.rows, self.bm, step)
        self.n = self._ragged(self.columns, self.bn, 16 if self.by_tma else pick(16, 16, 2))
        trips = max(self.trips, 1)
        step = 16 if self.by_tma else pick(16, 16, 16, 4, 1)
        # Of its own generator: other programs are as they were without sparse operands.
        own = self.rng.spawn(1)[0]
        drawn = own.integers(5) == 0
        self.sparse = bool(self.sparse or drawn) and not (self.few or self.by_tma)
        self.words = own.integers(2) == 0
        if self.sparse:
            self.bk, step = max(self.bk, 64 if self.byte else 32), 16
        self.k = trips * self.bk if self.dynamic else self._ragged(trips, self.bk, step)
        # So are rows that have an index each.
        by_index = self.rng.spawn(1)[0]
        self.gathers, self.scatters = (not self.by_tma and by_index.integers(5) == 0 for _ in "ab")
        self.gathers &= not (self.trans_a or self.sparse)
        self.in_loop = bool(by_index.integers(2))
        #: K of A and of its tile, as they are stored.
        self.held = (self.k // 2, self.bk // 2) if self.sparse else (self.k, self.bk)
        self.symbolic = not self.trans_a and pick(False, True)

    def _draw_scaled(self) -> None:
        """Operands with scales, whose K lies along rows, with tiles of any number of scales."""
        pick = self.pick
        self.format = pick(*FORMATS)
        row = FORMATS[self.format]
        self.dtype, self.acc, self.byte = row.dtype, "float32", True
        self.integer, self.float8 = False, row.packed == 1
        self.blocks = pick(False, True)
        self.bm, self.bn = pick(64, 128, 128, 16), pick(16, 32, 64, 96, 128)
        self.few = self.bm < 64
        if self.few:
            self.bn = pick(64, 128)
        # Blocks have 4 scales along K; instructions for 4-bit elements take 64 of them.
        self.bk = row.block * pick(4, 8 if row.block == 16 else 4) if self.blocks else (
            row.block * pick(1, 2, 4)
        )  # fmt: skip
        self.trans_a = self.trans_b = False
        self.stages = pick(None, 1, 2, 3)
        depth = self.stages or 3
        self.trips = pick(0, 1, depth - 1, depth, depth + 1)
        self.dynamic = self.trips == 0 or pick(False, True)
        # Blocks begin at multiples of 128 rows.
        self.rows, self.columns = (
            pick(1, 2) if not self.blocks or size == 128 else 1 for size in (self.bm, self.bn)
        )
        self.m = self._ragged(self.rows, self.bm, 1)
        self.n = self._ragged(self.columns, self.bn, pick(16, 2))
        trips = max(self.trips, 1)
        step = pick(32, 32, 8) if not self.dynamic else self.bk
        self.k = self._ragged(trips, self.bk, min(step, self.bk))
        self.symbolic = pick(False, True)

    def pick(self, *choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def _ragged(self, tiles: int, tile: int, step: int) -> int:
        """A size of so many tiles, the last of them not always full."""
        sizes = [s for s in range((tiles - 1) * tile + 1, tiles * tile + 1) if s % step == 0]
        return self.pick(sizes[-1], self.pick(*sizes))

    def buffer(self, name: str, shape: tuple[int, ...], dtype: str, output: bool = False) -> None:
        extents = [
            "'m'" if self.symbolic and e == self.m and d == "m" else str(e)
            for e, d in zip(shape, self._dimensions(name), strict=True)
        ]
        self.parameters[name] = f"T.Buffer(({', '.join(extents)},), {dtype!r})"
        make = poisoned if output else None
        self.values[name] = lambda rng: (
            make(shape, dtype) if make else random_values(rng, shape, dtype)
        )

    def _dimensions(self, name: str) -> str:
        a = "km" if self.trans_a else "mk"
        return {"A": a, "E": "m ", "C": "mn", "R": "mn", "Column": "m"}.get(
            name, "  "
        )[: 1 if name in ("Row", "Column") else 2]

    def tile(self, name: str, shape: tuple[int, ...], dtype: str, scope: str) -> None:
        self.tiles.append(f"{name} = T.alloc_buffer({shape}, {dtype!r}, scope={scope!r})")

    def add(self, *lines: str, indent: int = 0) -> None:
        self.lines += [" " * 4 * indent + line for line in lines]

    def nest(self, store: str, extents: tuple[int, int] | None = None, indent: int = 0) -> None:
        extents = extents or (self.bm, self.bn)
        self.add(f"for i, j in T.grid{extents}:", f"    {store}", indent=indent)


def random_program(
    rng: np.random.Generator, by_tma: bool = False, scaled: bool = False, sparse: bool = False
) -> Case:
    """A random program; the same generator state gives the same program.

    With ``by_tma``, TMA can load and store all its matrices, each tile at once, results have at
    least 64 rows, and no CTA ends early: a program for tests that force a lowering whose loads are
    TMA's, or CTAs that share tiles. With ``scaled``, operands have scales for blocks along K. With
    ``sparse``, A is sparse, and often has 128 rows.
    """
    draft = Draft(rng, by_tma, scaled, sparse)
    if scaled:
        _scaled_loop(draft)
    else:
        deep, _ = draft.held
        draft.buffer("A", (deep, draft.m) if draft.trans_a else (draft.m, deep), draft.dtype)
        _main_loop(draft)
    for step in rng.permutation(list(_INTEGER_STEPS if draft.integer else _STEPS))[:3]:
        _STEPS[step](draft)
    if not draft.few and draft.pick(False, True):
        _reduction(draft)
    _output(draft)
    if draft.dynamic:
        draft.parameters["steps"] = "T.int32"
        draft.values["steps"] = lambda _: draft.trips
    func = tvm.script.from_source(_source(draft), {"T": T, "Tx": Tx, "wl": wl, "tvm": tvm})
    names = list(draft.parameters)

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        state: Model = dict(zip(names, args, strict=True))
        for step in draft.model:
            step(state)
        return {names.index(name): result(state) for name, result in draft.outputs.items()}

    def arguments(rng: np.random.Generator) -> list[Any]:
        return [draft.values[name](rng) for name in names]

    # float32 sums of different order, in terms of the largest result.
    tolerance = precision(draft.out) + (0 if draft.integer else 2e-5)
    return Case(func, arguments, expected, tolerance)


def _padded(array: np.ndarray, *tiles: int) -> np.ndarray:
    widths = [(0, -size % tile) for size, tile in zip(array.shape, tiles, strict=True)]
    return np.pad(wide(array), widths)


def _main_loop(draft: Draft) -> None:
    d, loop = draft, 1
    stored = "int8" if not d.byte and d.pick(False, False, True) else d.dtype
    converted = stored != d.dtype
    products = d.pick(1, 1, 2)
    partial = not d.integer and not d.few and products == 1 and d.pick(False, False, True)
    clipped = d.pick(False, False, True)
    held = clipped and not d.trans_a and not d.few
    scope = d.pick("shared", "fragment") if held else "shared"
    scope = "shared" if d.sparse else scope
    # A tile may come in parts of some rows: all by TMA, or by threads.
    rows = 0 if d.trans_a or d.by_tma else d.pick(0, 0, 0, 1, 8, d.bm)
    gathers = d.gathers
    _, a_bk = d.held
    a_tile = (a_bk, d.bm) if d.trans_a else (d.bm, a_bk)
    b_tile = (d.bk, d.bn) if d.trans_b else (d.bn, d.bk)
    d.tile("A_s", a_tile, d.dtype, "shared")
    d.tile(
        "acc", (d.bm, d.bn), d.acc, d.pick("fragment", "accumulator") if partial else "accumulator"
    )
    zeroed = d.dynamic or partial or d.pick(False, True)
    if zeroed:
        d.add("Tx.cta.zero(acc)", *(["Tx.cta.zero(acc2)"] if products == 2 else []))
    if partial:
        d.tile("part", (d.bm, d.bn), d.acc, "accumulator")
        d.tile("best", (d.bm,), d.acc, "fragment")
        d.add("Tx.cta.zero(best)")
    extent = "steps" if d.dynamic else str(-(-d.k // d.bk))
    d.add(f"for k in wl.pipelined({extent}, {d.stages}):")
    at = {
        "m": f"bi * {d.bm} : bi * {d.bm} + {d.bm}",
        "n": f"bj * {d.bn} : bj * {d.bn} + {d.bn}",
        "k": f"k * {d.bk} : k * {d.bk} + {d.bk}",
    }
    a_k = f"k * {a_bk} : k * {a_bk} + {a_bk}"
    a_at = f"{a_k}, {at['m']}" if d.trans_a else f"{at['m']}, {a_k}"
    b_at = f"{at['k']}, {at['n']}" if d.trans_b else f"{at['n']}, {at['k']}"
    if gathers:
        count = d.rows * d.bm
        d.parameters["OfA"] = f"T.Buffer(({count},), 'int32')"
        d.values["OfA"] = lambda rng: rng.integers(-2, d.m + 2, count).astype(np.int32)
        size = "m" if d.symbolic else d.m
        if d.in_loop:
            d.add(f"for r in T.serial({d.bm}):", f"    row: T.let = OfA[bi * {d.bm} + r]",
                  f"    Tx.cta.copy_async(A_s[r : r + 1, 0:{a_bk}], A[row : row + 1, {a_k}])",
                  indent=loop)  # fmt: skip
        else:
            place = f"lambda r: OfA[bi * {d.bm} + r]"
            d.add(f"Tx.cta.gather(A_s, A[0:{size}, {a_k}], {place})", indent=loop)
    elif rows:
        first = f"bi * {d.bm} + part * {rows}"
        d.add(f"for part in T.serial({d.bm // rows}):", indent=loop)
        d.add(f"Tx.cta.copy_async(A_s[part * {rows} : part * {rows} + {rows}, 0:{a_bk}], "
              f"A[{first} : {first} + {rows}, {a_k}])", indent=loop + 1)  # fmt: skip
    else:
        d.add(f"Tx.cta.copy_async(A_s, A[{a_at}])", indent=loop)
    if d.sparse:
        width = d.bk // (32 if d.words else 8)
        shape = (d.rows * d.bm, -(-d.k // d.bk) * width) if d.words else (d.m, d.k // 8)
        dtype = WORD if d.words else "uint8"
        d.buffer("E", shape, dtype)

        def metadata(rng: np.random.Generator) -> np.ndarray:
            dense = prune_2_4(rng.standard_normal((d.m, d.k)).astype("float16"))
            rows = compress(dense)[1]
            return to_words(rows, d.dtype, (d.bm, width)) if d.words else rows

        d.values["E"] = metadata
        d.tile("E_s", (d.bm, width), dtype, "shared")
        d.add(f"Tx.cta.copy_async(E_s, E[{at['m']}, k * {width} : k * {width} + {width}])",
              indent=loop)  # fmt: skip
    a = "A_s"
    if clipped:
        a = "A_c"
        d.tile(a, a_tile, d.dtype, scope)
        # 8-bit floats have no arithmetic of their own.
        value = "A_s[i, j]" if d.float8 else f"T.max(A_s[i, j], T.{d.dtype}(0))"
        d.nest(f"A_c[i, j] = {value}", a_tile, loop)
    for number in range(1, products + 1):
        suffix = "" if number == 1 else str(number)
        d.buffer(f"B{suffix}", (d.k, d.n) if d.trans_b else (d.n, d.k), stored)
        d.tile(f"B{suffix}_s", b_tile, stored, "shared")
        numbers = "(k, bj)" if d.trans_b else "(bj, k)"
        short = f"wl.tile(B{suffix}, {numbers}, B{suffix}_s)"
        d.add(f"Tx.cta.copy_async(B{suffix}_s, {d.pick(f'B{suffix}[{b_at}]', short)})", indent=loop)
        b = f"B{suffix}_s"
        if converted:
            b = f"B{suffix}_c"
            d.tile(b, b_tile, d.dtype, "shared")
            value = f"T.cast(B{suffix}_s[i, j], 'float32') * T.float32(0.0625)"
            d.nest(f"{b}[i, j] = T.cast({value}, {d.dtype!r})", b_tile, loop)
        if number == 2:
            d.tile("acc2", (d.bm, d.bn), d.acc, "accumulator")
        target = "part" if partial else f"acc{suffix}"
        accum = "False" if partial else "True" if zeroed else "k > 0"
        flags = f"transA={d.trans_a}, transB={d.trans_b}, accum={accum}"
        flags += ", sparse=E_s" if d.sparse else ""
        d.add(f"Tx.cta.gemm_async({target}, {a}, {b}, {flags})", indent=loop)
    if partial:
        d.add("Tx.cta.max(best, part, axes=(1,), accum=True)", indent=loop)
        d.nest("acc[i, j] += part[i, j] * T.cast(k + 1, 'float32')", indent=loop)
        d.buffer("Best", (d.columns, d.m), d.acc, output=True)
        d.add(f"Tx.cta.copy(Best[bj, bi * {d.bm} : bi * {d.bm} + {d.bm}], best)")
        d.outputs["Best"] = lambda s: s["best"][:, : d.m]

    def model(s: Model) -> None:
        left = s["A"].T if d.trans_a else s["A"]
        if gathers:
            inside = ((s["OfA"] >= 0) & (s["OfA"] < d.m))[:, None]
            left = np.where(inside, wide(left)[np.clip(s["OfA"], 0, d.m - 1)], 0)
        if d.sparse:
            rows = from_words(s["E"], d.dtype, d.k // 8)[: d.m] if d.words else s["E"]
            left = decompress(left, rows)
        left = _padded(left, d.bm, d.bk)
        left = np.maximum(left, 0) if clipped and not d.float8 else left
        s["best"] = np.zeros((d.columns, len(left)))
        for name, acc in (("B", "acc"), ("B2", "acc2"))[:products]:
            right = s[name].T if d.trans_b else s[name]
            right = _padded(right, d.bn, d.bk) * (0.0625 if converted else 1)
            s[acc] = np.zeros((len(left), len(right)))
            for step in range(d.trips):
                part = left[:, step * d.bk :][:, : d.bk] @ right[:, step * d.bk :][:, : d.bk].T
                s[acc] += part * (step + 1 if partial else 1)
                blocks = part.reshape(len(left), -1, d.bn).max(2).T
                s["best"] = np.maximum(s["best"], blocks)

    d.model.append(model)
    if products == 2:
        _join(d)


def _scaled_loop(d: Draft) -> None:
    """One or two MMAs with scales; both have the same A."""
    row = FORMATS[d.format]
    products = d.pick(1, 1, 2)
    count, steps = -(-d.k // row.block), d.bk // row.block
    d.tile("acc", (d.bm, d.bn), "float32", "accumulator")
    zeroed = d.dynamic or d.pick(False, True)
    if products == 2:
        d.tile("acc2", (d.bm, d.bn), "float32", "accumulator")
    if zeroed:
        d.add("Tx.cta.zero(acc)", *(["Tx.cta.zero(acc2)"] if products == 2 else []))
    d.add(f"for k in wl.pipelined({'steps' if d.dynamic else -(-d.k // d.bk)}, {d.stages}):")
    operands = {"A": ("bi", d.bm, d.m), "B": ("bj", d.bn, d.n), "B2": ("bj", d.bn, d.n)}
    for name, (number, tile, size) in list(operands.items())[: products + 1]:
        d.buffer(name, (size, d.k // row.packed), d.dtype)
        d.values[name] = partial(row.operand, rows=size, k=d.k)
        d.tile(f"{name}_s", (tile, d.bk // row.packed), d.dtype, "shared")
        d.add(f"Tx.cta.copy_async({name}_s, wl.tile({name}, ({number}, k), {name}_s))", indent=1)
        shape, extents = (size, count), (tile, steps)
        place = f"wl.tile(S{name}, ({number}, k), S{name}_s)"
        if d.blocks:
            shape = (-(-size // 128), -(-count // 4), 32, 16)
            extents = (-(-tile // 128), steps // 4, 32, 16)
            place = f"S{name}[{number} : {number} + 1, k * {steps // 4} : k * {steps // 4} + "
            place += f"{steps // 4}, 0:32, 0:16]"
        d.parameters[f"S{name}"] = f"T.Buffer({shape}, {row.scale!r})"
        d.values[f"S{name}"] = lambda rng, size=size: (
            in_blocks if d.blocks else np.asarray
        )(row.scales(rng, size, d.k))  # fmt: skip
        d.tile(f"S{name}_s", extents, row.scale, "shared")
        d.add(f"Tx.cta.copy_async(S{name}_s, {place})", indent=1)
    for suffix in ("", "2")[:products]:
        d.add(f"Tx.cta.gemm_async(acc{suffix}, A_s, B{suffix}_s, SA_s, SB{suffix}_s, "
              f"accum={'True' if zeroed else 'k > 0'})", indent=1)  # fmt: skip

    def model(s: Model) -> None:
        def values(name: str) -> np.ndarray:
            _, tile, size = operands[name]
            scales = s[f"S{name}"]
            scales = in_rows(scales, size, count) if d.blocks else scales
            return _padded(row.values(s[name], scales), tile, d.bk)[:, : d.trips * d.bk]

        for suffix in ("", "2")[:products]:
            s[f"acc{suffix}"] = values("A") @ values(f"B{suffix}").T

    d.model.append(model)
    if products == 2:
        _join(d)


def _join(d: Draft) -> None:
    _either(d, "Tx.cta.add(acc, acc, acc2)", "acc[i, j] + acc2[i, j]")
    d.model.append(lambda s: s.update(acc=s["acc"] + s["acc2"]))


def _either(d: Draft, primitive: str, expression: str) -> None:
    """One elementwise step, as a primitive or as a nest."""
    if d.pick(False, True):
        d.add(primitive)
    else:
        d.nest(f"acc[i, j] = {expression}")


def _row(d: Draft) -> None:
    d.buffer("Row", (d.n,), d.acc)
    d.nest(f"acc[i, j] = acc[i, j] + Row[bj * {d.bn} + j]")
    d.model.append(lambda s: s.update(acc=s["acc"] + _padded(s["Row"], d.bn)))


def _column(d: Draft) -> None:
    d.buffer("Column", (d.m,), d.acc)
    d.tile("column", (d.bm, 1), d.acc, "fragment")
    d.add(f"Tx.cta.copy(column, Column[bi * {d.bm} : bi * {d.bm} + {d.bm}])")
    _either(d, "Tx.cta.add(acc, acc, column)", "acc[i, j] + column[i, 0]")
    d.model.append(lambda s: s.update(acc=s["acc"] + _padded(s["Column"], d.bm)[:, None]))


def _relu(d: Draft) -> None:
    zero = f"T.{d.acc}(0)"
    _either(d, f"Tx.cta.maximum(acc, acc, {zero})", f"T.max(acc[i, j], {zero})")
    d.model.append(lambda s: s.update(acc=np.maximum(s["acc"], 0)))


def _some_rows(d: Draft) -> None:
    """A step that only CTAs of even rows take."""
    d.add("if bi % 2 == 0:", f"    Tx.cta.mul(acc, acc, T.{d.acc}(3))")

    def model(s: Model) -> None:
        even = np.arange(len(s["acc"])) // d.bm % 2 == 0
        s["acc"] = np.where(even[:, None], 3 * s["acc"], s["acc"])

    d.model.append(model)


def _scale(d: Draft) -> None:
    d.parameters["alpha"] = "T.float32"
    d.values["alpha"] = lambda rng: float(np.float32(rng.uniform(0.1, 2)))
    _either(d, "Tx.cta.mul(acc, acc, alpha)", "acc[i, j] * alpha")
    d.model.append(lambda s: s.update(acc=s["acc"] * s["alpha"]))


def _tanh(d: Draft) -> None:
    d.nest("acc[i, j] = T.tanh(acc[i, j] * T.float32(0.125))")
    d.model.append(lambda s: s.update(acc=np.tanh(s["acc"] * 0.125)))


def _silu(d: Draft) -> None:
    d.add("Tx.cta.silu(acc, acc)")
    d.model.append(lambda s: s.update(acc=s["acc"] / (1 + np.exp(-s["acc"]))))


def _residual(d: Draft) -> None:
    d.buffer("R", (d.m, d.n), "float16")
    d.tile("R_s", (d.bm, d.bn), "float16", "shared")
    rows, columns = (f"{b} * {s} : {b} * {s} + {s}" for b, s in (("bi", d.bm), ("bj", d.bn)))
    d.add(f"Tx.cta.copy_async(R_s, R[{rows}, {columns}])")
    d.nest("acc[i, j] = acc[i, j] + T.cast(R_s[i, j], 'float32')")
    d.model.append(lambda s: s.update(acc=s["acc"] + _padded(s["R"], d.bm, d.bn)))


def _scan(d: Draft) -> None:
    """A scan of the tile of each CTA, through two shared tiles of its size."""
    if d.bm * d.bn > 64 * 96:
        return
    axis, reverse = d.pick(0, 1), d.pick(False, True)
    name = "cummax" if d.integer else d.pick("cumsum", "cummin")
    d.add(f"Tx.cta.{name}(acc, acc, {axis}, reverse={reverse})")
    function = {"cumsum": np.cumsum, "cummax": np.maximum.accumulate,
                "cummin": np.minimum.accumulate}[name]  # fmt: skip

    def model(s: Model) -> None:
        blocks = s["acc"].reshape(d.rows, d.bm, d.columns, d.bn)
        along = 2 * axis + 1
        blocks = np.flip(blocks, along) if reverse else blocks
        scanned = function(blocks, axis=along)
        s["acc"] = (np.flip(scanned, along) if reverse else scanned).reshape(s["acc"].shape)

    d.model.append(model)


def _repeated(d: Draft) -> None:
    """A nest that a loop repeats: its variable is no index of what is stored."""
    d.buffer("Steps", (3, d.n), d.acc)
    loops = f"for t, i, j in T.grid(3, {d.bm}, {d.bn}):"
    d.add(loops, f"    acc[i, j] = acc[i, j] + Steps[t, bj * {d.bn} + j]")
    d.model.append(lambda s: s.update(acc=s["acc"] + _padded(s["Steps"].sum(0), d.bn)))


def _repeat(d: Draft) -> None:
    """A loop of as many steps as memory says, for each tile."""
    d.buffer("Left", (d.rows, d.columns), "int32")
    d.values["Left"] = lambda rng: rng.integers(0, 4, (d.rows, d.columns)).astype(np.int32)
    d.add("left: T.int32 = Left[bi, bj]", "while left > 0:",
          f"    Tx.cta.add(acc, acc, T.{d.acc}(2))", "    left = left - 1")  # fmt: skip

    def model(s: Model) -> None:
        steps = np.kron(s["Left"].astype(np.int64), np.ones((d.bm, d.bn), np.int64))
        s.update(acc=s["acc"] + 2 * steps)

    d.model.append(model)


def _dropout(d: Draft) -> None:
    """Elements that a random number chooses are 0."""
    seed = int(d.rng.integers(2**31))
    width = d.columns * d.bn
    place = f"(bi * {d.bm} + i) * {width} + bj * {d.bn} + j"
    d.nest(
        f"acc[i, j] = T.if_then_else(wl.rand({seed}, {place}) < T.float32(0.25), "
        f"T.{d.acc}(0), acc[i, j])"
    )

    def model(s: Model) -> None:
        offsets = np.arange(s["acc"].size).reshape(s["acc"].shape)
        words = np.vectorize(lambda offset: first_word(seed, int(offset)))(offsets)
        s.update(acc=np.where((words >> 8) * 2.0**-24 < 0.25, 0, s["acc"]))

    d.model.append(model)


def _assertion(d: Draft) -> None:
    """Conditions that hold, of an element in registers and of scalars."""
    element = f"acc[{d.bm - 1}, 3]"
    d.add(f"wl.device_assert({element} < T.{d.acc}(1000000000), 'acc is {{}}', {element})")
    d.add("wl.device_assert(bi >= 0 and bj >= 0, 'tile {}', bi)")


_INTEGER_STEPS = {
    "row": _row,
    "column": _column,
    "relu": _relu,
    "some rows": _some_rows,
    "scan": _scan,
    "repeated": _repeated,
    "repeat": _repeat,
    "dropout": _dropout,
    "assertion": _assertion,
}
_STEPS = _INTEGER_STEPS | {
    "scale": _scale,
    "tanh": _tanh,
    "silu": _silu,
    "residual": _residual,
}


def _reduction(d: Draft) -> None:
    """The tile of each CTA, reduced along its rows, its columns or both."""
    name, axes = d.pick("sum", "max", "min"), d.pick((1,), (0,), (0, 1))
    place = {"m": f"bi * {d.bm} : bi * {d.bm} + {d.bm}", "n": f"bj * {d.bn} : bj * {d.bn} + {d.bn}"}
    shape, extents, at = {
        (1,): ((d.columns, d.m), (d.bm,), f"bj, {place['m']}"),
        (0,): ((d.rows, d.n), (d.bn,), f"bi, {place['n']}"),
        (0, 1): ((d.rows, d.columns), (1, 1), "bi : bi + 1, bj : bj + 1"),
    }[axes]
    d.buffer("Reduced", shape, d.acc, output=True)
    d.tile("reduced", extents, d.acc, "fragment")
    d.add(f"Tx.cta.{name}(reduced, acc, axes={axes})")
    d.add(f"Tx.cta.copy(Reduced[{at}], reduced)")

    def result(s: Model) -> np.ndarray:
        blocks = s["acc"].reshape(d.rows, d.bm, d.columns, d.bn)
        reduced = getattr(np, name)(blocks, axis=tuple(2 * axis + 1 for axis in axes))
        if axes == (1,):
            return reduced.reshape(-1, d.columns).T[:, : d.m]
        return reduced.reshape(d.rows, -1)[:, : d.n] if axes == (0,) else reduced

    d.outputs["Reduced"] = result


def _output(d: Draft) -> None:
    d.out = "int32" if d.integer else d.pick("float16", "bfloat16", "float32")
    # A sum of 16 bits would be rounded once more.
    names = ("atomic_max", "atomic_min", *(["atomic_add"] if d.out in ("int32", "float32") else []))
    updates = d.pick(*names) if d.pick(False, False, True) else None
    d.buffer("C", (d.m, d.n), d.out, output=updates is None)
    d.tile("out", (d.bm, d.bn), d.out, d.pick("fragment", "shared"))
    if d.pick(False, True):
        d.add("Tx.cta.cast(out, acc)")
    else:
        d.nest(f"out[i, j] = T.cast(acc[i, j], {d.out!r})")
    rows, columns = (f"{b} * {s} : {b} * {s} + {s}" for b, s in (("bi", d.bm), ("bj", d.bn)))
    update = f"Tx.cta.{updates}(C[{rows}, {columns}], out)"
    copy = d.pick(f"Tx.cta.copy(C[{rows}, {columns}], out)", "wl.store(C, (bi, bj), out)")
    scatters = not d.scaled and d.scatters and not updates
    if scatters:
        count, size = d.rows * d.bm, "m" if d.symbolic else d.m
        d.parameters["To"] = f"T.Buffer(({count},), 'int32')"
        d.values["To"] = lambda rng: np.pad(
            rng.permutation(d.m), (0, count - d.m), constant_values=-1
        ).astype(np.int32)
        copy = f"Tx.cta.scatter(C[0:{size}, {columns}], out, lambda r: To[bi * {d.bm} + r])"
    d.add(update if updates else copy)
    join = {"atomic_add": np.add, "atomic_max": np.maximum, "atomic_min": np.minimum}

    def result(s: Model) -> np.ndarray:
        new = s["acc"][: d.m, : d.n]
        if scatters:
            moved = np.empty_like(new)
            moved[s["To"][: d.m]] = new
            return moved
        return new if updates is None else join[updates](new, wide(s["C"]))

    d.outputs["C"] = result


def _source(d: Draft) -> str:
    parameters = ", ".join(f"{name}: {kind}" for name, kind in d.parameters.items())
    entry = ["m = T.int32()"] if d.symbolic else []
    entry.append("T.device_entry()")
    hints = {
        "persistent": d.pick(True, False),
        "stages": d.stages,
        # Blackwell has sparse MMAs of 128 rows alone.
        "consumers": max(1, d.bm // 128) if d.sparse else (d.bn if d.few else d.bm) // 64,
    }
    chosen = [f"{k}={v}" for k, v in hints.items() if v is not None and d.pick(False, True)]
    entry += [f"wl.hints({', '.join(chosen)})"] if chosen else []
    rows = f"(m + {d.bm - 1}) // {d.bm}" if d.symbolic else str(d.rows)
    if not (d.symbolic or d.by_tma) and d.pick(False, False, False, True):
        # CTAs beyond the last rows end at once.
        entry.append(f"bi, bj = T.cta_id([{d.rows + 1}, {d.columns}])")
        entry.append(f"wl.exit_if(bi >= {d.rows})")
    elif d.symbolic or d.pick(False, True):
        entry.append(f"bi, bj = T.cta_id([{rows}, {d.columns}])")
    else:
        entry.append(f"t = T.cta_id([{d.rows * d.columns}])")
        entry += [f"bi: T.int32 = t // {d.columns}", f"bj: T.int32 = t % {d.columns}"]
    body = "\n".join("    " + line for line in (*entry, *d.tiles, *d.lines))
    return f"@T.prim_func\ndef program({parameters}):\n{body}\n"
