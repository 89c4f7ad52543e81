"""``warploom bench gallery``: what it computes and shows of measured times."""

from __future__ import annotations

import pytest

from tests.shared.paths import ROOT
from warploom.errors import WarploomError
from warploom.target import GPUS
from warploom_bench.gallery import Row, least_seconds, main, table


@pytest.mark.parametrize("gpu", ["h200", "h100", "b200"])
def test_the_roofline_is_that_of_the_slower_of_memory_and_tensor_cores(gpu):
    machine = GPUS[gpu]
    memory = least_seconds(machine, 1.0, 1e9, 2)
    assert memory == 1e9 / machine.dram_bandwidth
    tensor = least_seconds(machine, 1e15, 1.0, 2)
    assert tensor > memory
    assert least_seconds(machine, 1e15, 1.0, 1) == tensor / 2


def test_dense_peaks_are_those_of_the_data_sheets():
    # TFLOP/s of float16 without sparsity, at the boost clock of the table.
    for gpu, peak in (("h200", 989e12), ("b200", 2250e12)):
        assert 1 / least_seconds(GPUS[gpu], 1.0, 0.0, 2) == pytest.approx(peak, rel=0.1)


def test_table():
    rows = [
        Row("gemm", 1e-5, 2e-5, 0.5, 1e-3, True),
        Row("rope", 1e-5, 5e-6, 0.25, 1.0, False),
        Row("other", 1e-5, None, 0.5, float("nan"), True, "PyTorch: no kernel"),
    ]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table(rows).splitlines()]
    assert lines[2] == ["gemm", "10.0", "50%", "20.0", "2.00", "1.0e-03"]
    assert lines[3][4:] == ["0.50", "1.0e+00 wrong"]
    assert lines[4][3:5] == ["PyTorch: no kernel", ""]


def test_unknown_pages_are_refused():
    with pytest.raises(WarploomError, match=r"nonsense is no page of .*: attention, "):
        main(["nonsense", "--folder", str(ROOT / "tutorials" / "gallery")])
