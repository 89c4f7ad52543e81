"""What accesses rely on: constant memory, peers that have started, launches that are over."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tests.emulator.checks import changed, checks, reports, run_checked
from tests.emulator.ptx_driver import LaunchAttribute, LaunchConfig
from tests.emulator.run_ptx import HEADER, EmulatorError, kernel, library

#: Thread t of CTA c: %d0 is the address of word 32 c + t, %d1 that of word 31 - t of CTA 0.
PLACES = """mov.u32 %r0, %ctaid.x;
mad.lo.u32 %r1, %r0, 32, %t;
mul.wide.u32 %d0, %r1, 4;
add.u64 %d0, %d0, %p0;
sub.u32 %r2, 31, %t;
mul.wide.u32 %d1, %r2, 4;
add.u64 %d1, %d1, %p0;
"""
CONSTANT = "write of constant memory"


def found(body: str, count: int = 1, **geometry) -> tuple[list[str], str]:
    arrays = [np.arange(64, dtype=np.uint32) for _ in range(count)]
    _, reported, message = run_checked(PLACES + body, "", arrays, **geometry)
    return [report["kind"] for report in reported], message


@pytest.mark.parametrize("load", ["ld.global.nc.u32", "ld.global.nc.L1::no_allocate.u32"])
@pytest.mark.parametrize("order", ["bar.sync 0;", "bar.warp.sync -1;", ""])
def test_a_load_of_constant_memory_after_a_store(load, order):
    body = f"st.global.u32 [%d0], %t;\n{order}\n{load} %r3, [%d0];\nst.global.u32 [%d1+128], %r3;"
    kinds, message = found(body)
    assert kinds == [CONSTANT]
    assert "through the cache of constant memory" in message and "Fix: ld.global without" in message
    assert found(body.replace(".nc", ""))[0] == []


def test_a_store_after_a_load_of_constant_memory():
    body = "ld.global.nc.u32 %r3, [%d0];\nbar.sync 0;\nst.global.u32 [%d0], %t;"
    assert found(body)[0] == [CONSTANT]
    assert found(body.replace("st.global.u32 [%d0]", "st.global.u32 [%d0+128]"))[0] == []


#: Lane 0 of each of two CTAs writes a word of the other one.
PEER = """.reg .b32 %peer;
mov.u32 %r1, word;
mov.u32 %r2, %cluster_ctarank;
xor.b32 %r3, %r2, 1;
mapa.shared::cluster.u32 %peer, %r1, %r3;
st.shared.u32 [%r1], 0;
// start
setp.eq.u32 %q0, %t, 0;
@%q0 ACCESS;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
"""
START = "barrier.cluster.arrive{0}.aligned;\nbarrier.cluster.wait.aligned;"
ACCESSES = {
    "st": "st.shared::cluster.u32 [%peer], 7",
    "red": "red.shared::cluster.add.u32 [%peer], 7",
    "relaxed": "st.relaxed.cluster.shared::cluster.u32 [%peer], 7",
}


@pytest.mark.parametrize("access", ACCESSES)
@pytest.mark.parametrize("seed", range(3))
def test_memory_of_a_peer_that_may_not_have_started(access, seed):
    body = PEER.replace("ACCESS", ACCESSES[access])
    geometry = {"grid": (2, 1, 1), "cluster": (2, 1, 1), "seed": seed}
    memory = ".shared .align 4 .b32 word;"
    _, reported, message = run_checked(body, memory, [], **geometry)
    assert "CTA not started" in [report["kind"] for report in reported], message
    assert "nothing says that this CTA has started. Fix: barrier.cluster" in str(reported)
    _, reported, _ = run_checked(
        changed(body, "// start", START.format("")), memory, [], **geometry
    )
    assert reported == []
    # The barrier's arrival need not release for its peers to have started.
    relaxed = changed(body, "// start", START.format(".relaxed"))
    _, reported, _ = run_checked(relaxed, memory, [], **geometry)
    assert "CTA not started" not in [report["kind"] for report in reported]


FIRST = """griddepcontrol.launch_dependents;
mul.wide.u32 %d0, %t, 4;
add.u64 %d1, %d0, %p0;
add.u64 %d2, %d0, %p1;
ld.global.u32 %r1, [%d1];
st.global.u32 [%d2], %r1;
"""
#: Reads what the first kernel has written.
SECOND = """mov.u32 %r3, %nctaid.x;
// early
sub.u32 %r1, 31, %t;
mul.wide.u32 %d0, %r1, 4;
mul.wide.u32 %d3, %t, 4;
add.u64 %d1, %d0, %p1;
add.u64 %d2, %d3, %p2;
// wait
ld.global.u32 %r2, [%d1];
st.global.u32 [%d2], %r2;
"""
WAIT = "griddepcontrol.wait;"
_DEPENDENT = 6


class Pair:
    """Two kernels of three arrays each, the second one launched behind the first."""

    def __init__(self, first: str, second: str) -> None:
        parts = [
            kernel(3, body).replace("kernel", name)
            for body, name in ((first, "first"), (second, "second"))
        ]
        self.module = ctypes.c_void_p()
        text = HEADER.replace("{arch}", "sm_90a") + "\n".join(parts)
        library().warploom_emulator_set_device(0)
        self._check(library().cuModuleLoadData(ctypes.byref(self.module), text.encode()))
        self.pointers = []
        for i in range(3):
            self.pointers.append(ctypes.c_void_p(library().warploom_emulator_allocate(256)))
            values = np.arange(64, dtype=np.uint32) + 100 * i
            ctypes.memmove(self.pointers[-1], values.ctypes.data, 256)

    @staticmethod
    def _check(code: int) -> None:
        if code != 0:
            text = ctypes.c_char_p()
            library().cuGetErrorName(code, ctypes.byref(text))
            raise EmulatorError(text.value.decode())

    def launch(self, name: str, dependent: bool = False, stream: int | None = None) -> None:
        function = ctypes.c_void_p()
        self._check(
            library().cuModuleGetFunction(ctypes.byref(function), self.module, name.encode())
        )
        arguments = (ctypes.c_void_p * 3)(*[ctypes.addressof(p) for p in self.pointers])
        attribute = LaunchAttribute(id=_DEPENDENT, value=(ctypes.c_uint * 16)(int(dependent)))
        config = LaunchConfig((1, 1, 1), (32, 1, 1), 0, stream, ctypes.addressof(attribute), 1)
        self._check(library().cuLaunchKernelEx(ctypes.byref(config), function, arguments, None))

    def close(self) -> None:
        for pointer in self.pointers:
            library().warploom_emulator_release(pointer)
        library().cuModuleUnload(self.module)


def run_pair(first: str, second: str, dependent: bool = True, stream: int | None = None) -> str:
    """What is wrong with the second launch; empty if nothing is."""
    pair = Pair(first, second)
    try:
        with checks():
            pair.launch("first")
            try:
                pair.launch("second", dependent, stream)
            except EmulatorError as error:
                assert [report["kind"] for report in reports()] == ["missing griddepcontrol.wait"]
                return str(error)
        return ""
    finally:
        pair.close()


def test_a_dependent_launch_waits_before_it_touches_what_the_launch_before_has_written():
    message = run_pair(FIRST, SECOND)
    assert "ld.global.u32" in message and "which the launch before, of first, writes" in message
    assert "Fix: griddepcontrol.wait" in message
    assert run_pair(FIRST, changed(SECOND, "// wait", WAIT)) == ""
    assert run_pair(FIRST, changed(SECOND, "// early", WAIT)) == ""
    assert run_pair(FIRST, SECOND, dependent=False) == ""
    stream = ctypes.c_void_p()
    assert library().cuStreamCreate(ctypes.byref(stream), 0) == 0
    assert run_pair(FIRST, SECOND, stream=stream.value) == ""
    assert library().cuStreamDestroy_v2(stream) == 0
    # It starts when the first one has ended if that one does not let it start before.
    assert run_pair(changed(FIRST, "griddepcontrol.launch_dependents;", ""), SECOND) == ""


def test_what_a_dependent_launch_overwrites_may_still_be_read():
    store = changed(
        SECOND,
        "ld.global.u32 %r2, [%d1];\nst.global.u32 [%d2], %r2;",
        "add.u64 %d2, %d3, %p0;\nst.global.u32 [%d2], %t;",
    )
    assert "which the launch before, of first, reads" in run_pair(FIRST, store)
    assert run_pair(FIRST, changed(store, "// wait", WAIT)) == ""
    # Reads of the same, and accesses of other memory, need no order.
    assert run_pair(FIRST, SECOND.replace("%d0, %p1", "%d0, %p0")) == ""
    assert run_pair(FIRST, SECOND.replace("[%d1]", "[%d1+128]")) == ""


def test_one_warp_waits_for_all_that_it_is_ordered_with():
    """The wait of a thread makes the memory visible to the grid; a barrier tells the others."""
    second = changed(SECOND, "// early", "setp.ne.u32 %q0, %t, 0;\n@%q0 bra GO;\n" + WAIT + "\nGO:")
    assert run_pair(FIRST, changed(second, "// wait", "bar.sync 0;")) == ""
