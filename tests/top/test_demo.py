"""``warploom demo`` with and without a GPU."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from warploom import IllegalCombination, demo, emulator

SMALL = ["-m", "200", "-n", "264", "-k", "136"]


def without_gpu(monkeypatch) -> None:
    class NoDevice:
        exist = False

    monkeypatch.setattr(tvm, "cuda", lambda index=0: NoDevice())
    monkeypatch.setattr(emulator, "enable_without_gpu", lambda: False)


def test_without_a_gpu_it_compiles_and_says_so(monkeypatch, capsys):
    without_gpu(monkeypatch)
    assert demo.main(SMALL) == 0
    text = capsys.readouterr().out
    assert "Nothing was executed: this machine has no CUDA GPU," in " ".join(text.split())
    assert "200 x 264 x 136" in text and "0 bytes spilled" in text and "sm_90a" in text
    assert "TFLOP/s" not in text and "to repair" not in text


def test_few_rows_swap_the_operands(monkeypatch, capsys):
    without_gpu(monkeypatch)
    assert demo.main(["-m", "16", "-n", "256", "-k", "512", "--dtype", "bfloat16"]) == 0
    assert "few rows" in capsys.readouterr().out


def test_illegal_sizes_are_refused(monkeypatch):
    without_gpu(monkeypatch)
    with pytest.raises(IllegalCombination, match="pad K to a multiple of 8"):
        demo.main(["-k", "7"])


@pytest.mark.parametrize("layout", ["NT", "NN"])
def test_sampled_error_measures_the_error(rng, layout):
    a, b = rng.standard_normal((100, 40)), rng.standard_normal((30, 40))
    b = b if layout == "NT" else np.ascontiguousarray(b.T)
    product = a @ (b.T if layout == "NT" else b)
    error, rows = demo.sampled_error(product, a, b, layout, rng)
    assert error < 1e-14 and rows == demo.CHECKED_ROWS
    error, _ = demo.sampled_error(1.01 * product, a, b, layout, rng)
    assert error == pytest.approx(0.01)
    error, _ = demo.sampled_error(np.where(product > 0, np.nan, product), a, b, layout, rng)
    assert not error <= 1


@pytest.mark.in_turn(3)
def test_a_wrong_result_fails_the_demo(monkeypatch, capsys):
    class Device:
        exist = True

    for place in ("warploom.target", "warploom.programs.compiled_gemm"):
        monkeypatch.setattr(f"{place}.default_target", lambda: (_h200(), 132))
    monkeypatch.setattr(tvm, "cuda", lambda index=0: Device())
    for error, status, word in ((1e-4, 0, "correct"), (0.5, 1, "WRONG"), (np.nan, 1, "WRONG")):
        run = demo.Run("a GPU", 1e-3, error, 64)
        monkeypatch.setattr(demo, "execute", lambda *_, run=run: run)
        assert demo.main(SMALL) == status
        assert word in capsys.readouterr().out


def _h200():
    from warploom.target import cuda_target

    return cuda_target("h200")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn"])
@pytest.mark.some(1)
def test_on_a_gpu_the_result_is_right(capsys, dtype):
    sizes = ["-m", "200", "-n", "264", "-k", "144"]
    assert demo.main([*sizes, "--dtype", dtype]) == 0
    text = capsys.readouterr().out
    assert ("ms of a CPU" if emulator.is_enabled() else "TFLOP/s") in text and "correct" in text
