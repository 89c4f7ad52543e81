"""The families of tile programs that ``bench judge`` searches."""

from __future__ import annotations

from warploom_bench.judging.attention import ATTENTION
from warploom_bench.judging.family import Family
from warploom_bench.judging.scaled import GEMMS

#: Name -> family.
FAMILIES: dict[str, Family] = {family.name: family for family in (*GEMMS, ATTENTION)}
