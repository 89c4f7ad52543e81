"""Every family of programs is tuned by ``wl.autotune``, in a space that has kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import warploom
from warploom.errors import ArgumentError
from warploom.language.tuning.task import Task
from warploom.meta_schedule.programs.candidates import Candidates
from warploom.meta_schedule.programs.rank import with_rank
from warploom.programs import tuned
from warploom.programs.tuned import FAMILIES

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore::warploom.errors.EmulatedTimeWarning"),
]
Draw = Callable[[np.random.Generator], dict[str, Any]]

#: Sizes of a small problem, drawn at random.
_SIZES: dict[str, Draw] = {
    "attention": lambda rng: {
        "tokens": int(rng.integers(2, 150)), "head_dim": 64, "heads": 2,
        "kv_heads": int(rng.integers(1, 3)), "causal": bool(rng.integers(2)),
    },
    "conv2d": lambda rng: {
        "n": 1, "h": int(rng.integers(3, 12)), "w": int(rng.integers(3, 12)), "c": 32, "k": 64,
    },
    "gemm_grouped": lambda rng: {
        "groups": int(rng.integers(1, 4)), "n": 8 * int(rng.integers(1, 12)), "k": 64,
        "m": int(rng.integers(2, 150)),
    },
    "gemm_quantised": lambda rng: {
        "n": 8 * int(rng.integers(1, 12)), "k": 256, "m": int(rng.integers(2, 30)),
        "bits": int(rng.choice([4, 8])),
    },
    "gemm_block_scaled": lambda rng: {
        "n": 16 * int(rng.integers(1, 9)), "k": 256, "m": int(rng.integers(2, 100)),
    },
    "gemm_grouped_block_scaled": lambda rng: {
        "groups": int(rng.integers(1, 4)), "n": 16 * int(rng.integers(1, 9)), "k": 256,
        "m": int(rng.integers(2, 100)),
    },
}  # fmt: skip
#: Two configs of small tiles.
_SMALL: dict[str, dict[str, tuple[Any, ...]]] = {
    "attention": {"tile": ((64, 64), (64, 96)), "stages": (2,)},
    "conv2d": {"tile": ((8, 8, 64, 32), (8, 8, 32, 32)), "stages": (2,)},
    "gemm_grouped": {"tile": ((64, 64, 64), (64, 32, 64)), "stages": (2,)},
    "gemm_quantised": {"tile": ((16, 64, 128), (8, 64, 128)), "stages": (2,)},
    "gemm_block_scaled": {"tile": ((64, 64, 128), (64, 128, 128)), "stages": (2,)},
    "gemm_grouped_block_scaled": {"tile": ((64, 64), (64, 128)), "stages": (2,)},
}
#: A problem of the usual size.
_USUAL: dict[str, dict[str, Any]] = {
    "attention": {"tokens": 4096, "heads": 32},
    "conv2d": {"n": 8, "h": 56, "w": 56, "c": 256, "k": 256},
    "gemm_grouped": {"groups": 8, "n": 4096, "k": 4096, "m": 8192},
    "gemm_quantised": {"n": 4096, "k": 4096, "m": 16},
    "gemm_block_scaled": {"n": 4096, "k": 7168, "m": 4096},
    "gemm_grouped_block_scaled": {"groups": 8, "n": 4096, "k": 7168, "m": 8192},
}


def test_all_families_are_here() -> None:
    assert {*_SIZES} == {*_SMALL} == {*_USUAL} == {*FAMILIES}
    with pytest.raises(ArgumentError, match="no family 'conv3d'; families are attention, conv2d"):
        tuned("conv3d")


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.some(1)
def test_a_search_checks_two_candidates_and_a_record_is_found(name, rng, tmp_path) -> None:
    sizes = _SIZES[name](rng)
    print(name, sizes)
    make = lambda: tuned(  # noqa: E731
        name, configs=_SMALL[name], trials=2, max_workers=1, work_dir=tmp_path
    )
    best = make().tune(**sizes)
    assert best.searched and best.measured == 2 and not best.wrong and not best.left_out
    again = make()
    program = again.program(**sizes)
    assert again.cache_info().searches == 0 and again.best_config == best.config
    assert program.script() == FAMILIES[name].factory(**sizes, **best.config).script()


@pytest.mark.parametrize("name", FAMILIES)
def test_the_space_of_a_family_has_programs_that_the_model_ranks(name) -> None:
    family, sizes = FAMILIES[name], _USUAL[name]
    task = Task(
        name, {key: repr(value) for key, value in sizes.items()},
        lambda config: family.factory(**sizes, **config), family.configs,
        warploom.cuda_target("h200"), arguments=sizes,
    )  # fmt: skip
    candidates = Candidates(with_rank(task))
    configs = [family.configs.at(n) for n in range(0, len(family.configs), 7)]
    made = [one for one in map(candidates.of, configs) if one is not None]
    print(candidates.left_out)
    assert len(made) >= len(configs) / 2
    assert all(one.seconds for one in made), "each has a price"


def test_hints_of_a_call_make_a_search_of_their_own(tmp_path) -> None:
    """What the factory takes as keywords is part of the key."""
    factory = tuned("gemm_grouped", configs=_SMALL["gemm_grouped"], work_dir=tmp_path)
    sizes = {"groups": 2, "n": 64, "k": 64, "m": 64}
    target = warploom.cuda_target("h200")
    keys = [
        factory._key_of(factory._bind((), {**sizes, **hints}), target)
        for hints in ({}, {"raster": "rows"}, {"raster": "columns"}, {})
    ]
    assert len({*keys}) == 3 and keys[0] == keys[3]
