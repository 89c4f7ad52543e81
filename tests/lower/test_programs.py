"""Hand-written tile programs at tiles of Hopper, under the hints that change their structure."""

from __future__ import annotations

import itertools
import random
from functools import partial

import numpy as np
import pytest

from tests.shared import tile_programs
from tests.shared.lowered_programs import check

#: Name -> the program for a number of stages.
PROGRAMS = {
    **{
        f"gemm {layout}": partial(
            tile_programs.gemm, 256, 200, 192, (128, 64, 64), layout=layout, out_dtype="float16"
        )
        for layout in ("NT", "NN", "TN", "TT")
    },
    "gemm float32": partial(tile_programs.gemm, 128, 128, 128, (128, 128, 32)),
    "gemm float8": partial(
        tile_programs.gemm, 256, 256, 256, (128, 128, 128), "float8_e4m3fn", "bfloat16"
    ),
    "gemm int8": partial(tile_programs.gemm, 256, 128, 256, (128, 64, 128), "int8"),
    "gemm ragged": partial(
        tile_programs.gemm, 200, 136, 72, (128, 128, 64), symbolic=True, out_dtype="float16"
    ),
    **{
        f"gemm {layout}, {n} columns": partial(
            tile_programs.gemm, 128, 120, 96, (64, n, 32), dtype, layout=layout
        )
        for layout, n, dtype in (("NN", 24, "float16"), ("TN", 40, "bfloat16"))
    },
    "gemm one row": partial(
        tile_programs.gemm, 1, 136, 72, (64, 64, 64), symbolic=True, out_dtype="bfloat16"
    ),
    **{
        f"epilogue {kind}": partial(tile_programs.epilogue, kind, tile=(128, 64, 64))
        for kind in tile_programs.EPILOGUES
    },
    "two outputs": lambda stages: tile_programs.two_outputs(),
    "row sums": lambda stages: tile_programs.row_sums(),
    "dequantised int8": partial(tile_programs.dequantised, 8, tile=(128, 64, 64)),
    "dequantised int4": partial(tile_programs.dequantised, 4, tile=(64, 64, 64)),
    "dequantised fragment": partial(
        tile_programs.dequantised, 4, tile=(16, 64, 64), through="fragment"
    ),
    "packed int4": partial(tile_programs.packed, group=64),
    "packed int8": partial(
        tile_programs.packed, 70, 200, 256, 8, dtype="bfloat16", tile=(32, 128, 64), symbolic=True
    ),
    "block scaled": tile_programs.block_scaled,
    "grouped": tile_programs.grouped,
    "swiglu": tile_programs.swiglu,
    "attention": partial(tile_programs.attention, 100),
    "attention causal": partial(tile_programs.attention, 130, 128, tile=(128, 64), causal=True),
    "swiglu side by side": tile_programs.side_by_side,
}

_STRUCTURES = (
    {},
    {"persistent": False},
    {"cluster": (2, 1)},
    {"cluster": (2, 1), "consumers": 1},
    {"cluster": (1, 2)},
    {"cluster": (2, 2)},
    {"consumers": 1},
    {"consumers": 1, "persistent": False},
    {"raster": "rows"},
    {"raster": "columns"},
    {"raster": "grouped", "group": 2},
    {"registers": (24, 160)},
)
#: Everything: structure, stages, whether warps are specialised.
CONFIGURATIONS = list(itertools.product(_STRUCTURES, (1, 2, 4), (True, False)))


def name_of(configuration: tuple) -> str:
    """A name for a test."""
    structure, stages, specialise = configuration
    words = [f"{key}={value}" for key, value in structure.items()]
    return " ".join([*words, f"{stages} stages", "specialised" if specialise else "multistage"])


def sampled() -> list:
    """Two configurations of each program, another for each, all of them used; one is slow."""
    chosen = random.Random(1)
    order = chosen.sample(CONFIGURATIONS, len(CONFIGURATIONS))
    turn = itertools.cycle(order)
    return [
        pytest.param(name, one, id=f"{name}: {name_of(one)}", marks=marks)
        for name in PROGRAMS
        for one, marks in ((next(turn), []), (next(turn), [pytest.mark.slow]))
    ]


@pytest.mark.parametrize(("name", "configuration"), sampled())
@pytest.mark.some(8)
def test_programs_are_right_and_free_of_races(name, configuration, rng):
    structure, stages, specialise = configuration
    check(PROGRAMS[name](stages=stages), rng, specialise=specialise, **structure)


@pytest.mark.long
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_under_all_hints(name):
    for number, (structure, stages, specialise) in enumerate(CONFIGURATIONS):
        rng = np.random.default_rng(number)
        check(PROGRAMS[name](stages=stages), rng, specialise=specialise, **structure)
