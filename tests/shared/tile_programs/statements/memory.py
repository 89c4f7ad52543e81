"""Tiles that come from memory, or from MMAs, and where they go."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.shared.tile_programs.statements.draft import (
    COUNTERS,
    EXACT,
    MOST_ELEMENTS,
    Draft,
    Tile,
)


def _block(array: np.ndarray, b: int, shape: tuple[int, ...]) -> np.ndarray:
    """Block b of the first dimension; 0 outside of the array."""
    found = np.zeros(shape)
    part = array[b * shape[0] : (b + 1) * shape[0]][(slice(None), *map(slice, shape[1:]))]
    found[tuple(map(slice, part.shape))] = part
    return found


def load(draft: Draft, shape: tuple[int, ...] | None = None, dtype: str | None = None) -> None:
    """A block of a matrix, which the last block and rows may reach over."""
    one = draft.tile(shape or draft.shape(), dtype)
    rows = draft.ctas * one.shape[0]
    ragged = rows - draft.pick(0, 0, min(one.shape[0] - 1, 3))
    inner = [max(1, extent - draft.pick(0, 0, 1)) for extent in one.shape[1:]]
    source = draft.operand((ragged, *inner), one.dtype)
    region = [f"b * {one.shape[0]} : b * {one.shape[0]} + {one.shape[0]}"]
    region += [f"0:{extent}" for extent in one.shape[1:]]
    places = [f"b * {one.shape[0]} + i", *COUNTERS[1 : len(one.shape)]]
    if draft.often(0.3):
        draft.nest(one.shape, f"{one.name}[{one.counters}] = {source}[{', '.join(places)}]")
    else:
        form = draft.pick("copy", "copy_async") if one.scope == "shared" else "copy"
        draft.add(f"Tx.cta.{form}({one.name}, {source}[{', '.join(region)}])")
    draft.assign(one, lambda t, m, b: _block(m[source], b, one.shape))
    draft.written(one)


def matmul(draft: Draft) -> None:
    """A sum of MMAs of small whole numbers."""
    m, n, k = draft.pick(64, 128), draft.pick(16, 32, 64), draft.pick(32, 64)
    steps, dtype = draft.pick(1, 2, 3), draft.pick("float16", "bfloat16")
    a, b = (Tile(draft.name(p), (e, k), dtype, "shared") for p, e in (("A", m), ("B", n)))
    for one in (a, b):
        draft.allocations.append(
            f"{one.name} = T.alloc_buffer({one.shape}, {dtype!r}, scope='shared')"
        )
    acc = draft.tile((m, n), "float32", "accumulator")
    left = draft.operand((draft.ctas * m, steps * k), dtype)
    right = draft.operand((n, steps * k), dtype)
    along = f"s * {k} : s * {k} + {k}"
    with draft.inside(f"for s in wl.pipelined({steps}, {draft.pick(1, 2)}):"):
        draft.add(
            f"Tx.cta.copy_async({a.name}, {left}[b * {m} : b * {m} + {m}, {along}])",
            f"Tx.cta.copy_async({b.name}, {right}[0:{n}, {along}])",
            f"Tx.cta.gemm_async({acc.name}, {a.name}, {b.name}, accum=s > 0)",
        )
    draft.assign(acc, lambda t, mem, b: mem[left][b * m : b * m + m] @ mem[right].T)
    draft.written(acc, 16 * k * steps)


def another_load(draft: Draft) -> None:
    """A tile like another, or of any shape."""
    like = draft.some()
    if draft.often(0.7) and like.size <= MOST_ELEMENTS:
        load(draft, like.shape, draft.pick(like.dtype, None))
    elif not draft.with_mma:
        load(draft)


def gather(draft: Draft) -> None:
    """Rows whose numbers lie in memory; rows that are not there are 0."""
    rows, columns = draft.pick(4, 8, 16, 64), draft.pick(8, 16, 32, 64)
    if draft.with_mma:
        rows, columns = 64, draft.pick(16, 32)
    one, held = draft.tile((rows, columns)), draft.pick(5, 20, 40)
    source = draft.operand((held, columns), one.dtype)
    beyond = 2
    index = draft.buffer(
        "I", (draft.ctas, rows), "int32",
        lambda rng: rng.integers(-beyond, held + beyond, (draft.ctas, rows)).astype("int32"),
    )  # fmt: skip
    form = draft.pick("nest", "copies") if one.scope == "shared" else "nest"
    if form == "nest":
        draft.nest(one.shape, f"{one.name}[i, j] = {source}[{index}[b, i], j]")
    else:
        with draft.inside(f"for r in T.serial({rows}):"):
            draft.add(f"Tx.cta.copy_async({one.name}[r : r + 1, 0:{columns}], "
                      f"{source}[{index}[b, r] : {index}[b, r] + 1, 0:{columns}])")  # fmt: skip

    def gathered(_: Any, m: dict[str, Any], b: int) -> np.ndarray:
        places = m[index][b]
        there = (places >= 0) & (places < held)
        return np.where(there[:, None], m[source][np.clip(places, 0, held - 1)], 0)

    draft.assign(one, gathered)
    draft.written(one)





def store(draft: Draft, one: Tile | None = None) -> None:
    """Blocks of a matrix, of which those of the last CTA may reach over the end."""
    one = one or draft.some()
    rows = draft.ctas * one.shape[0]
    ragged = rows - draft.pick(0, 0, min(one.shape[0] - 1, 2))
    inner = [max(1, extent - draft.pick(0, 0, 1)) for extent in one.shape[1:]]
    to = draft.output((ragged, *inner), one.dtype)
    first = f"b * {one.shape[0]} : b * {one.shape[0]} + {one.shape[0]}"
    region = ", ".join([first, *(f"0:{extent}" for extent in one.shape[1:])])
    if draft.often(0.7):
        draft.add(f"Tx.cta.copy({to}[{region}], {one.name})")
    else:
        places = ", ".join([f"b * {one.shape[0]} + i", *COUNTERS[1 : len(one.shape)]])
        draft.nest(one.shape, f"{to}[{places}] = {one.name}[{one.counters}]")
    name, shape = one.name, one.shape

    def step(t: dict[str, np.ndarray], m: dict[str, Any], b: int) -> None:
        to_block = m[to][b * shape[0] : (b + 1) * shape[0]]
        to_block[...] = t[name][tuple(map(slice, to_block.shape))]

    draft.model.append(step)


def scatter(draft: Draft) -> None:
    """Rows to places that lie in memory, some of them outside."""
    one = draft.some(lambda tile: len(tile.shape) == 2)
    if one is None:
        return
    rows, columns = one.shape
    held = draft.ctas * rows
    to = draft.output((held, columns), one.dtype)
    places = draft.buffer(
        "P", (draft.ctas, rows), "int32",
        lambda rng: (rng.permutation(held) + draft_offset).astype("int32").reshape(-1, rows),
    )  # fmt: skip
    draft_offset = int(draft.rng.integers(-2, 3))
    draft.nest(one.shape, f"{to}[{places}[b, i], j] = {one.name}[i, j]")
    name = one.name

    def step(t: dict[str, np.ndarray], m: dict[str, Any], b: int) -> None:
        where = m[places][b]
        there = (where >= 0) & (where < held)
        m[to][where[there]] = t[name][there]

    draft.model.append(step)


def single(draft: Draft) -> None:
    """One element, to memory or into a tile."""
    one = draft.some()
    place = tuple(int(draft.rng.integers(extent)) for extent in one.shape)
    at, name = f"{one.name}[{', '.join(map(str, place))}]", one.name
    if draft.often(0.6):
        to = draft.output((draft.ctas, 2), one.dtype)
        draft.add(f"{to}[b, 0] = {at}")

        def step(t: dict[str, np.ndarray], m: dict[str, Any], b: int) -> None:
            m[to][b, 0] = t[name][place]

    else:
        draft.add(f"{at} = {one.number(3)}")

        def step(t: dict[str, np.ndarray], m: dict[str, Any], b: int) -> None:
            t[name] = t[name].copy()
            t[name][place] = 3

    draft.model.append(step)


def update(draft: Draft) -> None:
    """Global memory that all CTAs update: by a tile, or element by element."""
    one = draft.some(lambda tile: tile.dtype in ("float32", "int32", "float16"))
    if one is None:
        return
    name = draft.pick("atomic_add", "atomic_max", "atomic_min")
    if name == "atomic_add" and one.dtype == "float16":
        return  # rounded in an order that nobody knows
    to = draft.operand(one.shape, one.dtype)
    draft.outputs.append(to)
    if draft.often(0.5):
        draft.add(f"Tx.cta.{name}({to}[{one.whole}], {one.name})")
    else:
        element = f"{to}[{one.counters}]"
        draft.nest(one.shape, f"wl.{name}({element}, {one.name}[{one.counters}])")
    join = {"atomic_add": np.add, "atomic_max": np.maximum, "atomic_min": np.minimum}[name]
    source = one.name

    def step(t: dict[str, np.ndarray], m: dict[str, Any], b: int) -> None:
        m[to] = join(m[to], t[source])

    draft.model.append(step)


def histogram(draft: Draft) -> None:
    """Counts of the elements of a tile, in global or shared memory."""
    one = draft.some(lambda tile: tile.dtype == "int32")
    if one is None:
        return
    name, shared = one.name, draft.often(0.5)
    bin_ = f"T.min(T.max({name}[{one.counters}], 0), 7)"
    counts = lambda x: np.bincount(np.clip(x, 0, 7).ravel(), minlength=8)  # noqa: E731
    if shared:
        to = draft.tile((8,), "int32", "shared", most=EXACT)
        draft.add(f"Tx.cta.zero({to.name})")
        draft.nest(one.shape, f"wl.atomic_add({to.name}[{bin_}], 1)")
        draft.assign(to, lambda t, m, b: counts(t[name]))
        draft.written(to, one.size)
        return
    to = draft.buffer("H", (8,), "int32", lambda rng: rng.integers(0, 9, 8).astype("int32"))
    draft.outputs.append(to)
    draft.nest(one.shape, f"wl.atomic_add({to}[{bin_}], 1)")

    def step(t: dict[str, np.ndarray], m: dict[str, Any], b: int) -> None:
        m[to] = m[to] + counts(t[name])

    draft.model.append(step)
