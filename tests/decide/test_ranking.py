"""The order of the configs that the model rates."""

from __future__ import annotations

import pytest

from warploom.decide import plain_gemm
from warploom.decide.ranking import ranked


@pytest.mark.parametrize("size", [(512, 1024, 768), (8, 4096, 4096), (880, 72, 6464), (4096,) * 3])
def test_no_config_stands_twice_in_a_ranking(size):
    configs = [config for _, config in ranked(plain_gemm(*size))]
    assert len(set(configs)) == len(configs)
