"""One kernel on devices of 16 to 132 SMs: right and clean, with the grid that each one holds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared import tile_programs
from tests.shared.lowered_programs import exact, hinted, worst_error
from tests.shared.paths import ROOT
from tests.shared.tile_programs.case import Case, poisoned, precision, random_values, wide
from warploom import emulator
from warploom.lower.lowerings import lower
from warploom.target import GPUS, SM90A
from warploom.target.clusters_that_fit import clusters_that_fit

#: A slice (1g), an H20, an H100 PCIe, and an H100 SXM or H200.
SIZES = (16, 78, 114, 132)


def gemm() -> Case:
    """54 tiles: more than the smallest device has SMs, and fewer than the others have."""
    return tile_programs.gemm(520, 328, 328, (64, 64, 64), out_dtype="float16", stages=3)


def any_rows() -> Case:
    return tile_programs.gemm(
        1100, 328, 136, (64, 64, 64), out_dtype="float16", stages=2, symbolic=True
    )


def attention() -> Case:
    return tile_programs.attention(tokens=260, heads=4, kv_heads=2)


def groups() -> Case:
    """Up to 18 tiles, of which the device knows that 12 have rows."""
    return tile_programs.grouped(
        (3, 0, 9, 0, 1), 184, 328, (8, 64, 64), stages=2, symbolic=True, behind=2
    )


#: Program and hints.
KERNELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "GEMM": (gemm, {}),
    "GEMM of any size": (any_rows, {}),
    "two CTAs an SM": (gemm, {"ctas_per_sm": 2}),
    "split-K": (gemm, {"split_k": 3}),
    "split-K in clusters": (gemm, {"split_k": 4, "reduce_through": "cluster"}),
    "stream-K": (any_rows, {"stream_k": True}),
    "clusters": (any_rows, {"cluster": (2, 1)}),
    "clusters of 4": (gemm, {"cluster": (2, 2)}),
    "stream-K in clusters": (any_rows, {"cluster": (1, 2), "stream_k": True}),
    "split-K of groups": (groups, {"split_k": 5}),
    "split-K of groups in clusters": (groups, {"split_k": 2, "reduce_through": "cluster"}),
    "attention": (attention, {}),
    "attention in clusters": (attention, {"cluster": (2, 1)}),
}


def expected_ctas(hints: dict[str, Any], sms: int) -> int:
    size = math.prod(hints.get("cluster", (1, 1)))
    size *= hints["split_k"] if hints.get("reduce_through") == "cluster" else 1
    per_sm = hints.get("ctas_per_sm", 1)
    return clusters_that_fit(SM90A, sms, size) * size * per_sm


def run(kernel: Any, case: Case, arguments: list[Any], sms: int) -> list[int]:
    """CTAs of every launch of a kernel, whose results are right, and clean."""
    copies = [np.copy(one) if isinstance(one, np.ndarray) else one for one in arguments]
    result = emulator.run(kernel, copies, arch="sm_90a", checks=True, report=True, sms=sms)
    outputs = iter(result.outputs)
    after = [next(outputs) if isinstance(one, np.ndarray) else one for one in arguments]
    assert worst_error(case, arguments, after) <= 1
    return [math.prod(launch.counts["grid"]) for launch in result.launches]


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.some(4)
def test_a_kernel_fills_each_device(name, rng):
    program, hints = KERNELS[name]
    case = program()
    arguments = exact(case.arguments(rng))
    kernel = lower(hinted(case.func, **hints)).with_attr("global_symbol", "main")
    for sms in SIZES:
        launched = run(kernel, case, arguments, sms)
        assert launched[-1] == expected_ctas(hints, sms), f"{sms} SMs"


@pytest.mark.parametrize("hints", [{}, {"split_k": 2}, {"cluster": (2, 1)}], ids=str)
@pytest.mark.parametrize("sms", [1, 2, 17])
@pytest.mark.some(3)
def test_odd_devices(hints, sms, rng):
    """Sizes that no product has; a cluster needs two SMs of a GPU, and the emulator gives them."""
    case = tile_programs.gemm(200, 136, 136, (64, 64, 64), out_dtype="float16", stages=2)
    kernel = lower(hinted(case.func, **hints)).with_attr("global_symbol", "main")
    (*_, ctas) = run(kernel, case, exact(case.arguments(rng)), sms)
    assert ctas == max(expected_ctas(hints, sms), math.prod(hints.get("cluster", (1, 1))))


@pytest.mark.parametrize("sms", [1, 2, 7])
def test_fewer_ctas_than_parts_of_a_tile_of_groups(sms, rng):
    case = groups()
    kernel = lower(hinted(case.func, split_k=5)).with_attr("global_symbol", "main")
    assert run(kernel, case, exact(case.arguments(rng)), sms) == [sms]


def test_a_cluster_of_a_grid_of_one_dimension(rng):
    """Of a cluster, a grid takes the dimensions that it has."""

    @T.prim_func
    def product(A: T.Buffer((192, 64), "float16"), B: T.Buffer((64, 64), "float16"),
                C: T.Buffer((192, 64), "float32")):  # fmt: skip
        T.device_entry()
        i = T.cta_id([3])
        A_s = T.alloc_buffer((64, 64), "float16", scope="shared")
        B_s = T.alloc_buffer((64, 64), "float16", scope="shared")
        acc = T.alloc_buffer((64, 64), "float32", scope="accumulator")
        Tx.cta.copy_async(A_s, A[i * 64 : i * 64 + 64, 0:64])
        Tx.cta.copy_async(B_s, B[0:64, 0:64])
        Tx.cta.gemm_async(acc, A_s, B_s)
        Tx.cta.copy(C[i * 64 : i * 64 + 64, 0:64], acc)

    arguments = [random_values(rng, (rows, 64), "float16") for rows in (192, 64)]
    arguments.append(poisoned((192, 64), "float32"))
    expected = {2: wide(arguments[0]) @ wide(arguments[1]).T}
    case = Case(product, lambda _: arguments, lambda _: expected, precision("float32"))
    kernel = lower(hinted(product, cluster=(2, 2))).with_attr("global_symbol", "main")
    (*_, ctas) = run(kernel, case, arguments, SIZES[1])
    assert ctas == expected_ctas({"cluster": (2,)}, SIZES[1])


def test_a_hint_stays_what_it_is(rng):
    case = gemm()
    kernel = lower(hinted(case.func, ctas=24)).with_attr("global_symbol", "main")
    assert "GetDeviceAttr" not in kernel.script()
    for sms in SIZES[:2]:
        assert run(kernel, case, exact(case.arguments(rng)), sms) == [24]


def test_devices_are_those_of_products():
    assert {gpu.sms for gpu in GPUS.values() if gpu.arch is SM90A} >= set(SIZES)


# --- exported libraries -----------------------------------------------------------------------

#: The kernels of one library, and what runs them.
EXPORTED = ("GEMM", "split-K", "stream-K", "split-K of groups", "clusters", "attention in clusters")
PREAMBLE = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import numpy as np
import tvm
import warploom
from tests.lower.grid.test_every_gpu import EXPORTED, KERNELS
from tests.shared.lowered_programs import exact, hinted, worst_error
"""
BUILD = """
from warploom.lower.lowerings import lower
from warploom.target import cuda_target
functions = {{
    f"kernel_{{i}}": hinted(KERNELS[name][0]().func, **KERNELS[name][1])
    .with_attr("global_symbol", f"kernel_{{i}}")
    for i, name in enumerate(EXPORTED)
}}
built = tvm.compile(tvm.IRModule(functions), cuda_target("h200"), tir_pipeline="warploom")
built.export_library({path!r})
"""
RUN = """
from warploom.emulator import settings
device, library = tvm.cuda(0), tvm.runtime.load_module({path!r})
for sms in (0, *{sizes}):
    with settings.applied(settings.Settings(sms=sms)):
        print(device.multi_processor_count)
        for i, name in enumerate(EXPORTED):
            case = KERNELS[name][0]()
            arguments = exact(case.arguments(np.random.default_rng({seed} + sms)))
            tensors = [
                tvm.runtime.tensor(one, device) if isinstance(one, np.ndarray) else one
                for one in arguments
            ]
            library[f"kernel_{{i}}"](*tensors)
            after = [one.numpy() if hasattr(one, "numpy") else one for one in tensors]
            error = worst_error(case, arguments, after)
            assert error <= 1, (sms, name, error)
"""


@pytest.mark.in_turn(3)
def test_an_exported_library_runs_on_other_devices(run_python, tmp_path, rng):
    path, seed = str(tmp_path / "kernels.so"), int(rng.integers(1 << 30))
    on = {"WARPLOOM_EMULATOR": "1", "WARPLOOM_EMULATOR_CHECK": "1"}
    built = run_python(PREAMBLE + BUILD.format(path=path), **on, WARPLOOM_EMULATOR_SMS="132")
    assert built.returncode == 0, built.stderr[-3000:]
    code = PREAMBLE + RUN.format(path=path, seed=seed, sizes=SIZES)
    done = run_python(code, **on, WARPLOOM_EMULATOR_SMS="96")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["96", *map(str, SIZES)]


def test_each_device_of_a_process_is_asked(run_python):
    """Host code asks the device that its tensors are on, and not the first one."""
    code = """
from tests.shared import tile_programs
from warploom.pipeline import warploom_pipeline
from warploom.target import cuda_target

passes, _, _ = warploom_pipeline()
target = tvm.target.Target(cuda_target("h200"), host="llvm")
function = tile_programs.gemm(stages=2).func.with_attr("global_symbol", "main")
mod = tvm.tirx.transform.BindTarget(target)(tvm.IRModule({"main": function}))
with target:
    script = passes(mod).script()
(line,) = [line for line in script.splitlines() if "runtime.GetDeviceAttr" in line]
assert "2, dev_id, 7)" in line, line
"""
    done = run_python(PREAMBLE + code)
    assert done.returncode == 0, done.stderr[-3000:]
