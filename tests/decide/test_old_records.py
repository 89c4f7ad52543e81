"""Configs of earlier versions: other names, several choices in the digits of one integer."""

from __future__ import annotations

import pytest

from warploom.decide.config import Config
from warploom.decide.old_records import read_config, with_new_key
from warploom.errors import IllegalCombination
from warploom.gemm.recognition import recognise
from warploom.meta_schedule.workloads import matmul

#: Sizes and dtype, integers of a record of version 0.1.0, and what of their config was no default.
PACKED = [
    (
        (4096, 4096, 4096),
        "float16",
        {"tile": 112240804, "cluster": 11, "fewer_stages": 2, "sharing": 1, "grid": 2, "group": 1},
        {"tile_m": 192, "tile_n": 64, "consumers": 1, "group": 1, "ping_pong": 1},
    ),
    (
        (4096, 4096, 4096),
        "float16",
        {"tile": 110161008, "cluster": 21, "fewer_stages": 0, "sharing": 2, "grid": 2, "group": 16},
        {"tile_n": 80, "tile_k": 128, "consumers": 1, "group": 16, "split_k": 2, "specialise": 0},
    ),
    (
        (4096, 4096, 4096),
        "float16",
        {
            "tile": 110161008,
            "cluster": 12,
            "fewer_stages": 0,
            "sharing": 12,
            "grid": 10,
            "group": 1,
        },
        {
            "tile_n": 80,
            "tile_k": 128,
            "stages": 3,
            "consumers": 1,
            "group": 1,
            "split_k": 2,
            "reduce_through": 1,
            "store_columns": 32,
        },
    ),
    (
        (16, 4096, 4096),
        "float16",
        {
            "tile": 110080308,
            "cluster": 12,
            "fewer_stages": 1,
            "sharing": 6,
            "grid": 100010,
            "group": 8,
        },
        {
            "tile_m": 64,
            "tile_n": 24,
            "tile_k": 128,
            "stages": 9,
            "consumers": 1,
            "cluster_n": 2,
            "split_k": 6,
            "store_columns": 32,
            "prefetch_l2": 1,
        },
    ),
    (
        (16, 4096, 4096),
        "float16",
        {"tile": 111032404, "cluster": 11, "fewer_stages": 2, "sharing": 4, "grid": 3, "group": 4},
        {
            "tile_m": 24,
            "tile_n": 192,
            "stages": 6,
            "consumers": 1,
            "swap_ab": 1,
            "group": 4,
            "specialise": 0,
            "persistent": 0,
        },
    ),
    (
        (512, 2048, 1024),
        "float8_e4m3fn",
        {
            "tile": 210320608,
            "cluster": 21,
            "fewer_stages": 0,
            "sharing": 12,
            "grid": 1200,
            "group": 8,
        },
        {
            "tile_m": 256,
            "tile_n": 48,
            "tile_k": 128,
            "split_k": 2,
            "reduce_through": 1,
            "store_buffers": 4,
            "sms": 128,
        },
    ),
    (
        (512, 2048, 1024),
        "float8_e4m3fn",
        {"tile": 110081616, "cluster": 11, "fewer_stages": 0, "sharing": 20, "grid": 0, "group": 4},
        {"tile_m": 64, "tile_n": 128, "tile_k": 256, "consumers": 1, "group": 4, "stream_k": 1},
    ),
    (
        (512, 2048, 1024),
        "float8_e4m3fn",
        {
            "tile": 112160408,
            "cluster": 12,
            "fewer_stages": 2,
            "sharing": 2,
            "grid": 20000,
            "group": 16,
        },
        {
            "tile_n": 32,
            "tile_k": 128,
            "stages": 8,
            "consumers": 1,
            "cluster_n": 2,
            "group": 16,
            "ping_pong": 1,
            "l2_policy": 2,
        },
    ),
]


@pytest.mark.parametrize(("size", "dtype", "packed", "changed"), PACKED, ids=str)
def test_integers_with_several_choices(size, dtype, packed, changed):
    problem = recognise(matmul(*size, dtype)).problem
    assert read_config(packed, lambda: problem) == Config.of(changed)


def test_names():
    old = {"tile_m": 128, "tile_n": 128, "keep_a": 2, "warm_l2": 1, "turns": 3, "in_cluster": 1,
           "sms": 132}  # fmt: skip
    config = read_config(old)
    assert config == Config(128, 128, slice_k=3, l2_policy=2, prefetch_l2=True,
                            reduce_through="cluster")  # fmt: skip
    with pytest.raises(IllegalCombination, match="'keep_a' is no choice"):
        Config.of(old)
    assert read_config(config.values()) == config, "those of this version are read as well"


@pytest.mark.parametrize("values", [{"colour": 1}, {"grid": 31}, {"grid": 9}, {"tile": 0}])
def test_what_no_version_wrote_is_an_error(values):
    with pytest.raises(IllegalCombination):
        read_config(values)


def test_the_key_of_a_line():
    assert with_new_key({"knobs": {"stages": 3}, "us": 1}) == {"config": {"stages": 3}, "us": 1}
    assert with_new_key({"config": {}, "us": 1}) == {"config": {}, "us": 1}
    assert with_new_key([1]) == [1]
