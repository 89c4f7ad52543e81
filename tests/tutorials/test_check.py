"""What tutorials check their kernels with."""

from __future__ import annotations

import runpy
from types import SimpleNamespace

import pytest

from tests.shared.paths import ROOT
from warploom.errors import WarploomError
from warploom.tutorials import check, check_assembled, check_matmul

LADDER = ROOT / "tutorials" / "ladder_hopper"


@pytest.fixture(scope="module")
def one_tile():
    return runpy.run_path(str(LADDER / "v01_one_tile.py"))["gemm"]


@pytest.mark.gpu
def test_a_gpu_of_the_architecture_is_used(monkeypatch, one_tile, capsys):
    """The device stands for a GPU: ``emulator.run`` is out of reach."""
    switch = SimpleNamespace(enable_without_gpu=lambda: False, is_enabled=lambda: False)
    monkeypatch.setattr(check, "emulator", switch)
    check_matmul(one_tile, [(128, 128, 64)])
    assert "relative error" in capsys.readouterr().out


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("Tx.wg.copy(C[:, :], out[:, :])", "pass", "nan"),
        ("B_s[:, :], accum", "A_s[:, :], accum", r"1\.\de\+00"),
    ],
    ids=["nothing is stored", "another product"],
)
def test_a_wrong_result_is_an_error(old, new, error, tmp_path):
    source = (LADDER / "v01_one_tile.py").read_text()
    assert source.count(old) == 1
    (tmp_path / "wrong.py").write_text(source.replace(old, new))
    wrong = runpy.run_path(str(tmp_path / "wrong.py"))["gemm"]
    with pytest.raises(WarploomError, match=rf"C\[128, 128\] = .* relative error of {error}"):
        check_matmul(wrong, [(128, 128, 64)])


@pytest.mark.usefixtures("machine_code")
def test_kernels_are_assembled(one_tile, capsys):
    check_assembled(one_tile(128, 128, 64), "sm_90a")
    assert ", 0 bytes spilled" in capsys.readouterr().out
