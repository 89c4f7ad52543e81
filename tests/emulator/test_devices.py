"""The emulated devices: their facts, their memory, the PTX that each executes, CUDA graphs."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest

from tests.emulator import run_ptx
from tests.emulator.ptx_driver import LaunchConfig
from warploom.emulator.settings import Settings
from warploom.errors import IllegalCombination, ToolchainError
from warploom.target import ARCHS, GPUS, cuda_target

try:
    library = run_ptx.library()
except ToolchainError as error:
    pytest.skip(str(error), allow_module_level=True)

DOUBLE = run_ptx.kernel(
    1, "ld.global.b32 %r1, [%p0];\nadd.u32 %r1, %r1, %r1;\nst.global.b32 [%p0], %r1;"
)
#: Arch and GPU that each emulated device has the facts of.
STANDS_FOR = {"sm_90a": "h200", "sm_100a": "b200"}


@pytest.fixture
def emulated(run_python):
    """``emulated(code, NAME=value)`` runs code in a process with the emulator on."""

    def run(code: str, **environ: str | None):
        result = run_python(
            f"import tvm, warploom\n{code}", **{"WARPLOOM_EMULATOR": "1", **environ}
        )
        assert result.returncode == 0, result.stderr[-3000:]
        return result

    return run


def test_facts_are_those_of_the_python_side(emulated):
    code = """
for index in (0, 1):
    device = tvm.cuda(index)
    print(device.device_name, device.compute_version, device.multi_processor_count,
          device.max_threads_per_block, device.warp_size, device.max_shared_memory_per_block,
          sep="|")
print(tvm.cuda(2).exist)
"""
    *lines, third = emulated(code).stdout.splitlines()
    assert third == "False"
    for line, (name, gpu) in zip(lines, STANDS_FOR.items(), strict=True):
        arch = ARCHS[name]
        assert GPUS[gpu].arch is arch
        assert line.split("|") == [
            f"warploom emulator ({name})",
            "{}.{}".format(*arch.compute_capability),
            str(GPUS[gpu].sms),
            str(arch.threads_per_block),
            str(arch.warp),
            str(arch.static_shared_bytes),
        ]


@pytest.mark.parametrize("first", list(STANDS_FOR))
def test_the_environment_names_the_first_device(emulated, first):
    code = """
from warploom.target import target_from_device
print(*(target_from_device(tvm.cuda(i)).attrs["arch"] for i in (0, 1)))
"""
    second = next(arch for arch in STANDS_FOR if arch != first)
    result = emulated(code, WARPLOOM_EMULATOR_ARCH=first)
    assert result.stdout.split() == [first, second]


def test_an_unknown_first_device_is_refused(run_python):
    code = "import tvm, warploom\nprint(tvm.cuda(0).exist)\nprint(warploom.plugin.register())"
    result = run_python(code, WARPLOOM_EMULATOR="1", WARPLOOM_EMULATOR_ARCH="sm_80")
    assert result.stdout.splitlines()[0] == "False"
    assert "'sm_80'; allowed are sm_90a and sm_100a" in result.stdout


@pytest.mark.parametrize("sms", [1, 78])
def test_the_environment_says_how_many_sms_there_are(emulated, sms):
    code = """
from warploom.target import gpu_of, target_from_device
print(*(tvm.cuda(i).multi_processor_count for i in (0, 1)))
print(*(gpu_of(target_from_device(tvm.cuda(i))).sms for i in (0, 1)))
"""
    result = emulated(code, WARPLOOM_EMULATOR_SMS=str(sms))
    assert result.stdout.split() == [str(sms)] * 4
    assert "UnknownGpuWarning" not in result.stderr


@pytest.mark.parametrize("sms", ["0", "1025", "many", "-1", ""])
def test_a_wrong_number_of_sms_is_refused(run_python, sms):
    code = "import tvm, warploom\nprint(tvm.cuda(0).exist)\nprint(warploom.plugin.register())"
    result = run_python(code, WARPLOOM_EMULATOR="1", WARPLOOM_EMULATOR_SMS=sms)
    assert result.stdout.splitlines()[0] == "False"
    assert f"SMS is {sms!r}; allowed are whole numbers from 1 to 1024" in result.stdout


@pytest.mark.parametrize("sms", [-1, 1025])
def test_settings_bound_the_number_of_sms(sms):
    with pytest.raises(IllegalCombination, match=f"sms is {sms}; allowed are 0 to 1024"):
        Settings(sms=sms)


@pytest.mark.parametrize(
    ("arch", "target", "runs"),
    [
        ("sm_90a", "sm_90a", True),
        ("sm_90a", "sm_90", True),
        ("sm_90a", "sm_80", True),
        ("sm_90a", "sm_100", False),
        ("sm_90a", "sm_100a", False),
        ("sm_90a", "sm_80a", False),
        ("sm_100a", "sm_100a", True),
        ("sm_100a", "sm_100f", True),
        ("sm_100a", "sm_103f", False),
        ("sm_100a", "sm_103a", False),
        ("sm_100a", "sm_90", True),
        ("sm_100a", "sm_90a", False),
    ],
)
def test_a_device_executes_the_ptx_of_its_architecture(monkeypatch, arch, target, runs):
    monkeypatch.setattr(run_ptx, "HEADER", run_ptx.HEADER.replace("{arch}", target))
    if runs:
        (result,) = run_ptx.launch(DOUBLE, [np.array([21], "uint32")], arch=arch)
        assert result[0] == 42
        return
    with pytest.raises(run_ptx.EmulatorError) as error:
        run_ptx.load(DOUBLE, arch)
    assert f"it is for {target}, and the device is {arch}" in str(error.value)
    if target in STANDS_FOR:
        assert f"device {run_ptx.DEVICES[target]} executes {target}" in str(error.value)


def test_memory_belongs_to_a_device(rng):
    data = rng.integers(0, 1 << 30, 4, "uint32")
    module = run_ptx.load(DOUBLE, "sm_90a")
    pointers = {}
    for arch in STANDS_FOR:
        library.warploom_emulator_set_device(run_ptx.DEVICES[arch])
        pointers[arch] = library.warploom_emulator_allocate(ctypes.c_size_t(data.nbytes))
        ctypes.memmove(pointers[arch], data.ctypes.data, data.nbytes)
    try:
        assert launch(module, pointers["sm_90a"]) == 0
        assert ctypes.c_uint32.from_address(pointers["sm_90a"]).value == 2 * data[0]
        assert launch(module, pointers["sm_100a"]) != 0
        assert ctypes.c_uint32.from_address(pointers["sm_100a"]).value == data[0]
    finally:
        for pointer in pointers.values():
            library.warploom_emulator_release(ctypes.c_void_p(pointer))
        library.cuModuleUnload(module)


def launch(module: ctypes.c_void_p, pointer: int, stream: int | None = None) -> int:
    function = ctypes.c_void_p()
    assert library.cuModuleGetFunction(ctypes.byref(function), module, b"kernel") == 0
    value = ctypes.c_void_p(pointer)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(value))
    config = LaunchConfig((1, 1, 1), (1, 1, 1), 0, getattr(stream, "value", stream), None, 0)
    return library.cuLaunchKernelEx(ctypes.byref(config), function, arguments, None)


def test_each_thread_has_its_own_current_device():
    seen = []

    def other() -> None:
        seen.append(library.warploom_emulator_current_device())
        library.warploom_emulator_set_device(0)

    library.warploom_emulator_set_device(1)
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    try:
        assert seen == [0] and library.warploom_emulator_current_device() == 1
        assert library.warploom_emulator_set_device(2) != 0
        assert library.warploom_emulator_current_device() == 1
    finally:
        library.warploom_emulator_set_device(0)


def test_a_graph_replays_what_was_captured(rng):
    """Launches and copies, with the arguments of the capture; nothing happens before."""
    start = int(rng.integers(1, 1000))
    module = run_ptx.load(DOUBLE)
    first, second = (library.warploom_emulator_allocate(ctypes.c_size_t(4)) for _ in range(2))
    ctypes.c_uint32.from_address(first).value = start
    ctypes.c_uint32.from_address(second).value = 0
    stream, graph, executable = (ctypes.c_void_p() for _ in range(3))
    assert library.cuStreamCreate(ctypes.byref(stream), 0) == 0
    assert library.cuStreamBeginCapture_v2(None, 0) != 0
    assert library.cuStreamBeginCapture_v2(stream, 0) == 0
    assert library.cuStreamBeginCapture_v2(stream, 0) != 0
    assert launch(module, first, stream) == 0
    copy = ctypes.c_uint64(second), ctypes.c_uint64(first), ctypes.c_size_t(4), stream
    assert library.cuMemcpyDtoDAsync_v2(*copy) == 0
    assert library.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0
    assert library.cuStreamEndCapture(stream, ctypes.byref(ctypes.c_void_p())) != 0
    assert ctypes.c_uint32.from_address(first).value == start
    flags = ctypes.c_uint64(0)
    assert library.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, flags) == 0
    assert library.cuGraphDestroy(graph) == 0
    for _ in range(3):
        assert library.cuGraphLaunch(executable, stream) == 0
    assert ctypes.c_uint32.from_address(second).value == 8 * start
    assert library.cuGraphExecDestroy(executable) == 0
    assert library.cuGraphLaunch(executable, stream) != 0, "it was destroyed"
    assert library.cuStreamBeginCapture_v2(stream, 0) == 0
    assert launch(module, 16, stream) == 0, "a wild pointer shows when the graph runs"
    assert library.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0
    assert library.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, flags) == 0
    assert library.cuGraphLaunch(executable, stream) != 0
    assert library.cuGraphExecDestroy(executable) == 0 and library.cuGraphDestroy(graph) == 0
    assert library.cuStreamDestroy_v2(stream) == 0
    for pointer in (first, second):
        library.warploom_emulator_release(ctypes.c_void_p(pointer))
    library.cuModuleUnload(module)


@pytest.mark.parametrize("arch", list(STANDS_FOR))
@pytest.mark.some(1)
def test_tvm_compiles_for_each_device(emulated, arch):
    assert cuda_target(arch).attrs["arch"] == arch
    emulated(
        f"""
import numpy as np
from tvm.script import tirx as T
from warploom.target import cuda_target

@T.prim_func
def double(a: T.Buffer((256,), "float32")):
    T.func_attr({{"global_symbol": "double"}})
    T.device_entry()
    block = T.cta_id([2])
    thread = T.thread_id([128])
    a[block * 128 + thread] = a[block * 128 + thread] * T.float32(2)

device = tvm.cuda({list(STANDS_FOR).index(arch)})
host = np.random.default_rng(3).random(256, dtype=np.float32)
a = tvm.runtime.tensor(host, device)
tvm.compile(tvm.IRModule({{"double": double}}), cuda_target("{arch}"), tir_pipeline="tirx")(a)
np.testing.assert_array_equal(a.numpy(), 2 * host)
"""
    )
