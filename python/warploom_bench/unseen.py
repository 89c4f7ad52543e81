"""Random GEMM shapes and cases of attention: drawn in strata, from a seed that is printed.

The analytic model was fitted to the suite ``public``, and the shipped records cover it, so
it says little of other shapes. Figures of these suites name their seed; nothing may be fitted to
the seed that judges.
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass

from warploom.errors import WarploomError

#: How the command line names such a suite.
FORM = "unseen:SEED[:COUNT]"
#: Shapes of a suite that names no count.
_COUNT = 30
#: Most operations and bytes of one GEMM.
_OPERATIONS, _BYTES = 4e12, 6e9
#: The same of one case of attention, not causal.
_ATTENTION_OPERATIONS = 2e13


@dataclass(frozen=True)
class Extent:
    """A range, drawn evenly by its logarithm and rounded to a multiple of ``step``."""

    low: int
    high: int
    step: int = 1

    def draw(self, rng: random.Random, step: int = 1) -> int:
        """A number that is a multiple of another step, too; one step divides the other."""
        step = max(step, self.step)
        value = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        return max(step, round(value / step) * step)


_LAYER, _TOKENS = Extent(512, 32768, 128), Extent(128, 32768)
#: Group -> M, N and K. Rows of 16-bit operands are multiples of 16 bytes, as TMA wants; whoever
#: draws GEMMs of another kind says of what else M, N and K are multiples.
STRATA: dict[str, tuple[Extent, Extent, Extent]] = {
    "decode": (Extent(1, 128), _LAYER, _LAYER),
    "prefill": (Extent(129, 16384), _LAYER, _LAYER),
    "small": (Extent(16, 2048, 8), Extent(64, 2048, 8), Extent(64, 2048, 8)),
    "ragged": (Extent(1, 8192), Extent(72, 8192, 8), Extent(72, 8192, 8)),
    "deep": (Extent(64, 2048, 8), Extent(64, 2048, 8), Extent(8192, 65536, 64)),
    "shallow": (Extent(512, 16384, 8), Extent(512, 16384, 8), Extent(32, 512, 8)),
}


def draw(
    seed: int, count: int = _COUNT, steps: tuple[int, int, int] = (1, 1, 1)
) -> dict[str, list[list[int]]]:
    """``count`` shapes ``[M, N, K]``, group by group in turn, in multiples of ``steps``.

    Example
    -------
    >>> sum(map(len, draw(7, 12).values()))
    12
    >>> {k % 16 for shapes in draw(7, 12, (1, 16, 16)).values() for m, n, k in shapes}
    {0}
    """
    rng = random.Random(seed)
    strata: dict[str, list[list[int]]] = {name: [] for name in STRATA}
    for group in itertools.islice(itertools.cycle(STRATA), count):
        strata[group].append(_shape(rng, STRATA[group], steps))
    return {group: shapes for group, shapes in strata.items() if shapes}


def _shape(
    rng: random.Random, extents: tuple[Extent, Extent, Extent], steps: tuple[int, int, int]
) -> list[int]:
    while True:
        m, n, k = (extent.draw(rng, step) for extent, step in zip(extents, steps, strict=True))
        if 2 * m * n * k <= _OPERATIONS and 2 * (m * k + n * k + m * n) <= _BYTES:
            return [m, n, k]


def draw_attention(name: str) -> list[dict[str, int | bool]]:
    """The random cases of attention that ``unseen:SEED[:COUNT]`` names.

    Example
    -------
    >>> len(draw_attention("unseen:7:12"))
    12
    """
    seed, count = seed_and_count(name)
    rng = random.Random(seed)
    return [_case(rng) for _ in range(count)]


def _case(rng: random.Random) -> dict[str, int | bool]:
    while True:
        heads = rng.choice([8, 16, 24, 32, 40, 64])
        kv_heads = heads // rng.choice([1, 1, 4, 8])
        batch, head_dim = rng.choice([1, 1, 2, 4, 16]), rng.choice([64, 128, 128, 256])
        tokens = _TOKENS.draw(rng)
        causal = rng.random() < 0.5
        if 4 * batch * heads * tokens**2 * head_dim > _ATTENTION_OPERATIONS:
            continue
        if batch * heads * tokens * head_dim * 8 <= _BYTES:
            return {
                "tokens": tokens, "head_dim": head_dim, "heads": heads, "causal": causal,
                "kv_heads": kv_heads, "batch": batch,
            }  # fmt: skip


def parse(
    name: str, steps: tuple[int, int, int] = (1, 1, 1)
) -> dict[str, list[list[int]]] | None:
    """The suite that ``unseen:SEED`` or ``unseen:SEED:COUNT`` names; None for other names.

    Raises
    ------
    WarploomError
        If the seed or the count is no number.
    """
    if name.split(":")[0] != "unseen":
        return None
    return draw(*seed_and_count(name), steps)


def seed_and_count(name: str) -> tuple[int, int]:
    """The seed and the count of a suite."""
    word, *numbers = name.split(":")
    if word != "unseen" or not 1 <= len(numbers) <= 2 or not all(n.isdecimal() for n in numbers):
        raise WarploomError(f"{name!r} names no suite of random shapes; write {FORM}.")
    seed, count = (*map(int, numbers), _COUNT)[:2]
    return seed, count
