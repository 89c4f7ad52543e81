"""``warploom.emulator.run``: PTX and programs of TVM, with numpy arrays, without a device."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.emulator import run_ptx
from tests.emulator.run_ptx import DEVICES
from warploom import IllegalCombination, emulator
from warploom import language as wl
from warploom.emulator import command
from warploom.emulator.result import LaunchReport
from warploom.errors import ToolchainError
from warploom.target import cuda_target

try:
    run_ptx.library()
except ToolchainError as error:
    pytest.skip(str(error), allow_module_level=True)

#: out[i] = scale * in[i] for i < count, one thread an element.
SCALE = (
    run_ptx.HEADER
    + """
.visible .entry scale(.param .u64 out, .param .u64 in, .param .f32 scale, .param .u32 count)
{
.reg .pred %q; .reg .b32 %r<8>; .reg .f32 %f<4>; .reg .b64 %d<8>;
ld.param.u64 %d0, [out];
ld.param.u64 %d1, [in];
ld.param.f32 %f0, [scale];
ld.param.u32 %r0, [count];
mov.u32 %r1, %ctaid.x;
mov.u32 %r2, %ntid.x;
mov.u32 %r3, %tid.x;
mad.lo.u32 %r4, %r1, %r2, %r3;
setp.ge.u32 %q, %r4, %r0;
@%q ret;
mul.wide.u32 %d2, %r4, 4;
add.u64 %d3, %d1, %d2;
ld.global.f32 %f1, [%d3];
mul.f32 %f2, %f1, %f0;
add.u64 %d4, %d0, %d2;
st.global.f32 [%d4], %f2;
ret;
}
"""
)


@T.prim_func
def double(a: T.Buffer((256,), "float16"), b: T.Buffer((256,), "float16")):
    T.func_attr({"global_symbol": "double"})
    T.device_entry()
    block = T.cta_id([2])
    thread = T.thread_id([128])
    b[block * 128 + thread] = a[block * 128 + thread] * T.float16(2)


M, N, K = 128, 128, 128


@T.prim_func
def matmul(
    A: T.Buffer((M, K), "float16"), B: T.Buffer((N, K), "float16"), C: T.Buffer((M, N), "float16")
):
    T.device_entry()
    T.cta_id([1])
    A_s = T.alloc_buffer((M, 64), "float16", scope="shared")
    B_s = T.alloc_buffer((N, 64), "float16", scope="shared")
    acc = T.alloc_buffer((M, N), "float32", scope="accumulator")
    out = T.alloc_buffer((M, N), "float16", scope="fragment")
    for k in wl.pipelined(K // 64, stages=2):
        Tx.cta.copy_async(A_s, A[0:M, k * 64 : k * 64 + 64])
        Tx.cta.copy_async(B_s, B[0:N, k * 64 : k * 64 + 64])
        Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
    for y, x in T.grid(M, N):
        out[y, x] = T.cast(acc[y, x], "float16")
    Tx.cta.copy(C, out)


@T.prim_func
def unsynchronised(a: T.Buffer((128,), "float32"), b: T.Buffer((128,), "float32")):
    T.func_attr({"global_symbol": "unsynchronised"})
    T.device_entry()
    T.cta_id([1])
    thread = T.thread_id([128])
    shared = T.alloc_buffer((128,), "float32", scope="shared")
    shared[thread] = a[thread]
    b[thread] = shared[127 - thread]


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("number", [float, np.float32])
def test_ptx_with_arrays_and_numbers(rng, arch, number):
    count = int(rng.integers(100, 200))
    source, poison = rng.random(count, np.float32), np.full(count, np.nan, np.float32)
    factor = number(rng.normal())
    result = emulator.run(
        SCALE.replace("{arch}", arch), [poison, source, factor, count],
        grid=-(-count // 64), block=64,
    )  # fmt: skip
    np.testing.assert_array_equal(result.outputs[0], source * np.float32(factor))
    np.testing.assert_array_equal(result.outputs[1], source)
    assert np.isnan(poison).all() and result.report is None


def test_ptx_from_a_file(rng, tmp_path):
    path = tmp_path / "scale.ptx"
    path.write_text(SCALE.replace("{arch}", "sm_90a"))
    source = rng.random(32, np.float32)
    (out, _) = emulator.run(path, [np.zeros_like(source), source, 3.0, 32]).outputs
    np.testing.assert_array_equal(out, 3 * source)


@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        ((), {}, "scale has 4 parameters, and 0 arguments were given"),
        ((0, 0, b"123", 0), {}, "Parameter 2 of scale (.f32, 4 bytes) is given b'123' of 3"),
        ((0, 0, 1.0, 0), {"kernel": "other"}, "no kernel 'other'; name one of scale"),
        ((0, 0, 1.0, 0), {"grid": 0}, "0 is no launch dimension"),
        ((0, 0, 1.0, 0), {"grid": (1, 1, 1, 1)}, "is no launch dimension"),
        ((0, 0, 1.0, 0), {"arch": "sm_80"}, "no device 'sm_80'; allowed are sm_90a and sm_100a"),
        ((0, 0, 1.0, 0), {"arch": "sm_100a"}, "it is for sm_90a, and the device is sm_100a"),
        ((0, 0, 1.0, 32), {}, "lie in no allocation"),
    ],
)
def test_what_is_wrong_with_a_call_is_said(args, options, message):
    with pytest.raises(emulator.EmulatorError, match=re.escape(message)):
        emulator.run(SCALE.replace("{arch}", "sm_90a"), args, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": "fast"}, "'fast'; allowed are random"),
        ({"seed": -1}, "allowed are 0 to"),
        ({"explore": -2}, "not < 0"),
        ({"explore": 5, "exhaustive": 5}, "exclude each other"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(IllegalCombination, match=message):
        emulator.run("", [], **options)


@pytest.mark.parametrize("program", [double, tvm.IRModule({"double": double})])
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_programs_of_tvm(rng, program, arch):
    source = rng.random(256).astype(np.float16)
    result = emulator.run(program, [source, np.zeros_like(source)], arch=arch)
    np.testing.assert_array_equal(result.outputs[1], 2 * source)


def _calls() -> dict[str, Callable[[str], object]]:
    """Each way to a device of an architecture, by name: some succeed, some end with an error."""
    halves, singles = np.ones(256, np.float16), np.ones(128, np.float32)

    def ptx(arch: str, *changed: object) -> object:
        args = [np.zeros_like(singles), singles, 2.0, 128, *changed]
        return emulator.run(SCALE.replace("{arch}", arch), args, block=128)

    def listed(arch: str) -> int:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "scale.ptx")
            file.write_text(SCALE.replace("{arch}", arch))
            return command.main([str(file)])

    def executable(arch: str) -> object:
        built = tvm.compile(
            tvm.IRModule({"double": double}), cuda_target(arch), tir_pipeline="tirx"
        )
        return emulator.run(built, [halves, halves], kernel="double", arch=arch)

    return {
        "PTX": ptx,
        "PTX with too many arguments": lambda arch: ptx(arch, 1),
        "PTX that is wrong": lambda arch: emulator.run(f".target {arch}\n.entry", []),
        "PTX of another device": lambda arch: emulator.run(
            SCALE.replace("{arch}", next(one for one in DEVICES if one != arch)),
            (0, 0, 1.0, 0),
            arch=arch,
        ),
        "a program": lambda arch: emulator.run(double, [halves, halves], arch=arch),
        "a program with a race": lambda arch: emulator.run(
            unsynchronised, [singles, singles], arch=arch
        ),
        "schedules of a program": lambda arch: emulator.explore(
            double, [halves, halves], 3, arch=arch
        ),
        "an executable": executable,
        "warploom emulate": listed,
    }


@pytest.mark.gpu
@pytest.mark.parametrize("name", _calls())
def test_the_current_device_stays_what_it_is(name):
    driver = run_ptx.library()
    try:
        for before in DEVICES.values():
            for arch in DEVICES:
                assert driver.warploom_emulator_set_device(before) == 0
                with contextlib.suppress(emulator.EmulatorError):
                    _calls()[name](arch)
                assert driver.warploom_emulator_current_device() == before, (before, arch)
    finally:
        driver.warploom_emulator_set_device(0)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_tile_programs_are_lowered(rng, arch):
    a, b = (rng.normal(size=(M, K)).astype(np.float16) for _ in "ab")
    c = np.full((M, N), np.nan, np.float16)
    result = emulator.run(matmul, [a, b, c], arch=arch, report=True)
    expected = a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_allclose(result.outputs[2], expected, atol=0.02, rtol=2e-3)
    assert "tensor" in str(result.report)


@pytest.mark.in_turn(3)
def test_a_process_without_the_emulator_runs_programs(run_python):
    """As one with a GPU would: the process itself stays without the emulated device."""
    result = run_python(
        """
import numpy as np
import tvm
from tvm.script import tirx as T
from warploom import emulator

@T.prim_func
def double(a: T.Buffer((128,), "float32"), b: T.Buffer((128,), "float32")):
    T.device_entry()
    T.cta_id([1])
    thread = T.thread_id([128])
    b[thread] = a[thread] * T.float32(2)

a = np.arange(128, dtype=np.float32)
result = emulator.run(double, [a, np.zeros_like(a)])
np.testing.assert_array_equal(result.outputs[1], 2 * a)
assert not emulator.is_enabled() and not tvm.cuda(0).exist
try:
    emulator.run(double, [a, np.zeros(64, np.float32)])
except emulator.EmulatorError as error:
    print(error)
"""
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert "shape" in result.stdout and not result.stderr


def test_checks_are_on_unless_refused(rng):
    source = rng.random(128, np.float32)
    args = [source, np.zeros_like(source)]
    with pytest.raises(emulator.EmulatorError) as error:
        emulator.run(unsynchronised, args)
    text = str(error.value)
    assert "script test_run.py:" in text and "shared[127 - thread]" in text
    assert "CUDA Source" not in text and "grid=" not in text
    assert len(emulator.run(unsynchronised, args, checks=False).outputs) == 2


def test_a_report_prints_as_a_table():
    counts = {
        "kernel": "k",
        "grid": [2, 1],
        "problem": "",
        "bytes": {"global_read": 123456, "by_warp": [1, 2]},
        "hot": [{"n": 1}, {"n": 2}],
    }
    text = str(LaunchReport(counts))
    assert text.splitlines() == [
        "kernel              k",
        "grid                2 x 1",
        "bytes: global read  123,456",
        "bytes: by warp      1, 2",
        "hot                 n 1",
        "hot                 n 2",
    ]
    assert LaunchReport(counts).to_dict() == counts


@pytest.mark.parametrize("explore", [0, 5])
def test_a_report_on_request(rng, explore):
    """Both ways in: PTX, and a program of TVM."""
    source = rng.random(256).astype(np.float16)
    single = source.astype(np.float32)
    ptx = SCALE.replace("{arch}", "sm_90a")
    runs = {
        4: emulator.run(
            ptx, [np.zeros_like(single), single, 2.0, 256],
            grid=2, block=128, report=True, explore=explore,
        ),
        2: emulator.run(double, [source, np.zeros_like(source)], report=True, explore=explore),
    }  # fmt: skip
    for element_bytes, result in runs.items():
        assert len(result.launches) == max(explore, 1)
        counts = result.report.to_dict()
        assert counts["grid"] == [2, 1, 1]
        moved = {"read": 256 * element_bytes, "written": 256 * element_bytes}
        assert counts["bytes"]["global"] == moved
        assert (result.exploration or {}).get("schedules", 0) == explore
        assert "bytes: global: read" in str(result.report)


def test_explore_names_the_schedule_that_gives_another_result():
    args = [np.arange(128, dtype=np.float32), np.zeros(128, np.float32)]
    with pytest.raises(emulator.EmulatorError, match=r"depend on the schedule.*seed \d+"):
        emulator.explore(unsynchronised, args, 50, checks=False)


def test_exhaustive_says_whether_it_has_seen_every_schedule(rng):
    source = rng.random(64, np.float32)
    args = [np.zeros_like(source), source, 3.0, 64]
    ptx = SCALE.replace("{arch}", "sm_90a")
    for limit, complete in ((1000, True), (1, False)):
        result = emulator.run(ptx, args, block=64, exhaustive=limit)
        np.testing.assert_array_equal(result.outputs[0], 3 * source)
        assert result.exploration["complete"] is complete
        assert 1 <= result.exploration["schedules"] <= limit
