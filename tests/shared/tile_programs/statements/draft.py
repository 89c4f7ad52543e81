"""A program in the making: its source, and what it computes in numpy."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.shared.tile_programs.case import numpy_dtype, poisoned

#: The tiles of a CTA, the arguments of the program, and the number of the CTA.
Step = Callable[[dict[str, np.ndarray], dict[str, Any], int], None]
#: Elements of a tile without an MMA, and those that a sort or a scan takes.
MOST_ELEMENTS, MOST_OF_ORDER = 2048, 1024
#: The largest element that every dtype of a tile holds exactly, and that programs keep to.
EXACT = 256
DTYPES = ("float32", "float32", "float16", "bfloat16", "int32")
COUNTERS = "ijkl"


class Ended(Exception):
    """A CTA has come to its end."""


@dataclass(frozen=True)
class Tile:
    """A tile of a program; its elements are whole numbers of at most ``most``."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    scope: str
    most: int = 4

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @property
    def counters(self) -> str:
        return ", ".join(COUNTERS[: len(self.shape)])

    @property
    def whole(self) -> str:
        return ", ".join(f"0:{extent}" for extent in self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype != "int32"

    def number(self, value: int) -> str:
        return f"T.{self.dtype}({value})"


@dataclass
class Draft:
    """A program in the making."""

    rng: np.random.Generator
    ctas: int
    with_mma: bool = False
    parameters: dict[str, str] = field(default_factory=dict)
    values: dict[str, Callable[[np.random.Generator], Any]] = field(default_factory=dict)
    allocations: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    model: list[Step] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    tiles: dict[str, Tile] = field(default_factory=dict)
    indent: int = 0
    names: int = 0

    def pick(self, *choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def often(self, chance: float) -> bool:
        return bool(self.rng.random() < chance)

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def add(self, *lines: str) -> None:
        self.lines += [" " * 4 * self.indent + line for line in lines]

    @contextlib.contextmanager
    def inside(self, head: str) -> Iterator[None]:
        self.add(head)
        self.indent += 1
        yield
        self.indent -= 1

    def nest(self, shape: tuple[int, ...], store: str) -> None:
        """A nest over the elements of a shape, whose counters are i, j, k, l."""
        counters = COUNTERS[: len(shape)]
        if len(shape) == 1:
            self.add(f"for i in T.serial({shape[0]}):", f"    {store}")
        else:
            self.add(f"for {', '.join(counters)} in T.grid{shape}:", f"    {store}")

    def tile(
        self, shape: tuple[int, ...], dtype: str | None = None, scope: str | None = None,
        most: int = 4,
    ) -> Tile:  # fmt: skip
        """A new tile, which a statement has yet to write; :meth:`written` makes it known."""
        scope = scope or self.pick("fragment", "fragment", "shared")
        one = Tile(self.name("t"), shape, dtype or self.pick(*DTYPES), scope, most)
        self.allocations.append(
            f"{one.name} = T.alloc_buffer({one.shape}, {one.dtype!r}, scope={one.scope!r})"
        )
        return one

    def written(self, one: Tile, most: int | None = None) -> Tile:
        """Make known what a tile holds; one that may hold large numbers is limited at once."""
        most = one.most if most is None else most
        self.tiles[one.name] = Tile(one.name, one.shape, one.dtype, one.scope, most)
        if most > EXACT:
            self.limit(one)
        return self.tiles[one.name]

    def limit(self, one: Tile) -> None:
        """Keep the elements of a tile small."""
        low, high = one.number(-9), one.number(9)
        at = f"{one.name}[{one.counters}]"
        self.nest(one.shape, f"{at} = T.max(T.min({at}, {high}), {low})")
        self.assign(one, lambda t, m, b: np.clip(t[one.name], -9, 9))
        self.tiles[one.name] = Tile(one.name, one.shape, one.dtype, one.scope, 9)

    def assign(self, one: Tile, value: Callable[..., np.ndarray]) -> None:
        """The model of a statement that writes a tile."""

        def step(tiles: dict[str, np.ndarray], memory: dict[str, Any], b: int) -> None:
            new = np.broadcast_to(value(tiles, memory, b), one.shape)
            tiles[one.name] = rounded(new, one.dtype)

        self.model.append(step)

    def buffer(
        self, prefix: str, shape: tuple[int, ...], dtype: str,
        make: Callable[[np.random.Generator], np.ndarray],
    ) -> str:  # fmt: skip
        name = self.name(prefix)
        self.parameters[name] = f"T.Buffer({shape}, {dtype!r})"
        self.values[name] = make
        return name

    def operand(self, shape: tuple[int, ...], dtype: str) -> str:
        """A matrix of whole numbers to read."""
        make = lambda rng: rng.integers(-4, 5, shape).astype(numpy_dtype(dtype))  # noqa: E731
        return self.buffer("X", shape, dtype, make)

    def output(self, shape: tuple[int, ...], dtype: str) -> str:
        name = self.buffer("Out", shape, dtype, lambda _: poisoned(shape, dtype))
        self.outputs.append(name)
        return name

    def shape(self, most: int = MOST_ELEMENTS) -> tuple[int, ...]:
        while True:
            rank = self.pick(1, 2, 2, 2, 3, 4)
            small = (1, 2, 3, 4, 8) if rank > 2 else (1, 2, 4, 8, 12, 16, 32, 64)
            last = self.pick(1, 2, 5, 8, 16, 24, 32, 64, 100)
            found = (*(self.pick(*small) for _ in range(rank - 1)), last)
            if np.prod(found) <= most:
                return found

    def some(self, wanted: Callable[[Tile], bool] = lambda _: True) -> Tile | None:
        """A tile that is written, of those with a trait."""
        found = [one for one in self.tiles.values() if wanted(one)]
        return self.pick(*found) if found else None


def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    """Values of a dtype, as numbers that sums of do not round."""
    wide = np.asarray(values)
    if wide.dtype.kind not in "iu":
        wide = wide.astype(np.float32)
    return wide.astype(numpy_dtype(dtype)).astype(np.int64 if dtype == "int32" else np.float64)
