"""The time to compile is split into stages, and never comes from a cache."""

import os
import time

import pytest

from tests.shared.gemm_async_kernel import TARGET, make_kernel
from tests.shared.generators import quick_cases
from warploom_bench.compile_time import Stages, compile_once, table


@pytest.mark.parametrize("setting", [None, "1"])
def test_stages_add_up_to_the_time_it_took(monkeypatch, setting):
    monkeypatch.delenv("WARPLOOM_CACHE", raising=False)
    if setting is not None:
        monkeypatch.setenv("WARPLOOM_CACHE", setting)
    case = min(quick_cases(), key=lambda case: case.m * case.n)

    def slow_parse():
        time.sleep(0.1)
        return make_kernel(case)

    for _ in range(2):  # a cached cubin would make the second time much shorter
        start = time.perf_counter()
        stages = compile_once(slow_parse, TARGET)
        total = time.perf_counter() - start
        assert stages.parse > 0.1 and stages.lower > 0 and stages.codegen > 0
        assert stages.cuda > 0.02, "the CUDA compiler ran"
        # On a busy machine a process may have to wait between two stages, too.
        assert 0.5 * total < stages.total <= total
    assert os.environ.get("WARPLOOM_CACHE") == setting


def test_table_separates_the_first_compilation():
    runs = [Stages(1.0, 2.0, 3.0, 4.0), *(Stages(0.1 * i, 0.2, 0.3, 0.4) for i in (3, 1, 2))]
    header, _, first, *_, last = (line.split("|") for line in table(runs).splitlines())
    assert [cell.strip() for cell in header[1:-1]] == [
        "stage",
        "first ms",
        "median ms",
        "min ms",
        "max ms",
    ]
    assert [cell.strip() for cell in first[1:-1]] == ["parse", "1000", "200", "100", "300"]
    assert [cell.strip() for cell in last[1:-1]] == ["total", "10000", "1100", "1000", "1200"]
