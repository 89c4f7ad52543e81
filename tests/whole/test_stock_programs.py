"""What TVM makes of programs that use nothing of warploom is the same with and without warploom."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
import tvm
from tvm.script.tirx import tile as Tx

from tests.conftest import BASE_SEED
from tests.shared.paths import ROOT
from tests.whole import stock_programs
from warploom.ops.dispatch import LOWERED, uses_warploom

#: A kernel in CUDA source, which errors do not have.
_KERNEL = 'extern "C" __global__'
#: The conversion of two elements that our schedule of ``cast`` makes, and stock's does not.
_PACKED = "ptx_cvt_f16x2_f32"


def _of_stock(seed: int, share: float) -> dict[str, str]:
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith("WARPLOOM_")
    }
    environ["TVM_DEVICE_BACKEND_AUTOLOAD"] = "0"
    done = subprocess.run(
        [sys.executable, "-m", stock_programs.__name__, str(seed), str(share)],
        cwd=ROOT, env=environ, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _compare(seed: int, share: float) -> None:
    stock, ours = _of_stock(seed, share), stock_programs.outcomes(seed, share)
    assert list(stock) == list(ours) and len(stock) > 20
    compiled = [name for name in stock if _KERNEL in stock[name]]
    print(f"seed {seed}: {len(compiled)} programs compile with stock TVM, of {len(stock)}")
    assert len(compiled) > 10
    for name in stock:
        # Ours may take what stock declines; then nothing else has changed.
        assert ours[name] == stock[name] or (name not in compiled and _KERNEL in ours[name]), name
    if share == 1:
        packed = [name for name in compiled if re.search(r"\.f32x2|float32x2", ours[name])]
        assert any(name.startswith("mul float32") for name in packed)
        assert any(name.startswith("cast float32 float16") for name in packed)
        refused = [name for name in stock if _KERNEL not in ours[name]]
        assert refused and all("no variant named" in ours[n] for n in refused if "no_such" in n)


@pytest.mark.in_turn(3)
def test_sources_and_errors_are_those_of_stock():
    _compare(BASE_SEED, 0.2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(BASE_SEED, BASE_SEED + 3))
def test_sources_and_errors_of_all_programs_are_those_of_stock(seed):
    _compare(seed, 1)


def test_our_schedules_come_first_in_programs_of_warploom_only():
    """By its pipeline, by the mark of a lowered function, or by a variant of ours."""

    def emit(out, x, _):
        Tx.wg.cast(out, x)

    def by_name(out, x, _):
        Tx.wg.cast(out, x, dispatch="fragment")

    plain = stock_programs.tile_of_fragments(emit, "float32", "float16", 16)
    named = stock_programs.tile_of_fragments(by_name, "float32", "float16", 16)
    marked = plain.with_attr(LOWERED, True)
    assert [uses_warploom(one) for one in (plain, named, marked)] == [False, True, True]
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})

    def source(function, pipeline):
        executable = tvm.compile(tvm.IRModule({"main": function}), target, tir_pipeline=pipeline)
        return executable.mod.imports[0].inspect_source()

    ours = source(named, "tirx")
    assert _PACKED in ours
    assert source(marked, "tirx") == source(plain, "warploom") == ours
    assert _PACKED not in source(plain, "tirx")
    named_functions = {"plain": plain, "marked": marked}
    both = tvm.IRModule(
        {name: one.with_attr("global_symbol", name) for name, one in named_functions.items()}
    )
    text = tvm.compile(both, target, tir_pipeline="tirx").mod.imports[0].inspect_source()
    bodies = re.findall(r"__global__[^;{]*?(\w+)_kernel\([^;{]*\{(.*?)\n\}", text, re.DOTALL)
    assert {name: _PACKED in body for name, body in bodies} == {"plain": False, "marked": True}
