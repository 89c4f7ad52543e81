"""What the emulator says about PTX it does not know and about programs that go wrong."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.run_ptx import EmulatorError, kernel, launch, load


def fault(body: str, declarations: str = "", **options) -> str:
    """Message of a launch that must fail."""
    with pytest.raises(EmulatorError) as error:
        launch(kernel(1, body, declarations), [np.zeros(8, np.uint32)], **options)
    return str(error.value)


@pytest.mark.parametrize(
    ("instruction", "reason"),
    [
        ("frobnicate.b32 %r1, %r2", "'frobnicate.b32' is not supported"),
        ("add.weird.s32 %r1, %r2, %r3", "modifier '.weird' of 'add.weird.s32'"),
        ("add.s32 %r1, %r2", "'add.s32'"),
        ("add.s32 %d1, %r2, %r3", "64 bits instead of 32"),
        ("mov.u32 %r1, %nonsense", "'%nonsense' is not known"),
        ("bra NOWHERE", "no label 'NOWHERE'"),
        (
            "wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16 {%r1}, %d1, %d2, %q0, 1, 1, 0, 0",
            "no shape m64n12k16",
        ),
        ("tcgen05.fence::around_thread_sync", "'tcgen05.fence::around_thread_sync'"),
    ],
)
def test_unknown_ptx_is_refused_when_it_is_loaded(instruction, reason):
    ptx = kernel(0, f"{instruction};")
    line = 1 + ("\n" * 3 + ptx)[: ("\n" * 3 + ptx).index(instruction)].count("\n")
    with pytest.raises(EmulatorError, match="cannot load") as error:
        load(ptx)
    assert reason in str(error.value)
    assert f"line {line}:" in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "kernel",
        ".visible .entry kernel(",
        ".entry kernel() { add.s32 %r1",
        "/* open",
        '"open',
        "\x01",
    ],
)
def test_malformed_ptx_is_refused(text):
    with pytest.raises(EmulatorError, match="cannot load"):
        load(text)


def test_damaged_ptx_is_refused_or_loads(rng):
    whole = kernel(
        2,
        """
{ .reg .pred done; setp.ne.b32 done, %r1, 0; @done bra END; }
ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%p0+16];
mbarrier.try_wait.parity.shared::cta.b64 %q0, [%r1], 0;
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
  [%r1], [%p1, {%r2, %r3}], [%r4];
shfl.sync.idx.b32 %r5|%q1, %r1, %r2, 31, -1;
mov.b64 {%r6, %r7}, %d1;
cvt.rn.f16x2.f32 %r8, %r9, %r10;
END:
""",
        ".shared .align 8 .b64 full;\n.local .align 4 .b8 stack[16];",
    )
    load(whole)
    pieces = ["{", "}", "[", "]", "%r1", "%d1", "%q1", "0x7fffffff", ";", ",", "|", ".b64", "@%q0 "]
    refused = 0
    for _ in range(1500):
        text = whole
        for _ in range(rng.integers(1, 5)):
            place = int(rng.integers(len(text)))
            piece = str(rng.choice(pieces)) if rng.integers(2) else ""
            text = text[:place] + piece + text[place + int(rng.integers(12)) :]
        try:
            load(text)
        except EmulatorError as error:
            assert "cannot load this PTX: line" in str(error)
            refused += 1
    assert 0 < refused < 1500


def test_global_access_out_of_bounds():
    message = fault("ld.global.u32 %r1, [%p0+32];")
    assert "lie in no allocation" in message and "ld.global.u32" in message
    assert "parameter 0, and the access starts at its offset" in message
    assert "offset 32" in message


def test_misaligned_access():
    message = fault("ld.global.u32 %r1, [%p0+2];")
    assert "is not a multiple of 4" in message and "PTX line" in message


def test_shared_access_out_of_bounds():
    declarations = ".shared .align 4 .b8 buffer[64];"
    message = fault("mov.u32 %r1, buffer;\nld.shared.u32 %r2, [%r1+64];", declarations)
    assert "out of bounds" in message and "ld.shared.u32" in message


def test_address_of_a_cta_that_the_cluster_does_not_have():
    message = fault("mov.u32 %r1, 0x3000400;\nld.shared::cluster.u32 %r2, [%r1];")
    assert "no CTA of rank 3 in a cluster of 1" in message


def test_deadlock_names_barrier_phase_and_line():
    declarations = ".shared .align 8 .b64 full;"
    body = """
mov.u32 %r1, full;
mbarrier.init.shared::cta.b64 [%r1], 33;
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %q0, [%r1], 0;
@!%q0 bra WAIT;
"""
    message = fault(body, declarations, block=(1, 1, 1))
    assert "deadlock in kernel kernel" in message
    assert "parity 0 of the mbarrier at shared 0x400" in message
    assert "33 of 33 arrivals" in message
    assert "try_wait" in message and "PTX line" in message


def test_deadlock_at_a_named_barrier():
    message = fault("bar.sync 2, 64;")
    assert "waits at barrier 2" in message and "expects 64 threads" in message


def test_endless_loop_ends():
    message = fault("LOOP:\nadd.u32 %r1, %r1, 1;\nbra LOOP;", limit=100_000)
    assert "limit of instructions" in message


def test_trap():
    assert "trap" in fault("setp.eq.u32 %q0, %t, 3;\n@%q0 trap;")


def test_launch_limits():
    assert "2048 x 1 x 1 threads" in fault("", block=(2048, 1, 1))
    assert "shared memory" in fault("", shared=300_000)
    assert "clusters of 17 x 1 x 1" in fault("", grid=(17, 1, 1), cluster=(17, 1, 1))
    assert "do not divide" in fault("", grid=(3, 1, 1), cluster=(2, 1, 1))


def test_the_device_works_after_a_fault():
    fault("ld.global.u32 %r1, [%p0+2];")
    body = "mov.u32 %r1, 5;\nst.global.u32 [%p0], %r1;"
    assert launch(kernel(1, body), [np.zeros(1, np.uint32)])[0][0] == 5
