"""wmma that does not exist or must not be executed so, what a report counts, and races."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.checks import changed, run_checked
from tests.emulator.options import launch_reports, options
from tests.emulator.run_ptx import EmulatorError, kernel, launch, load
from tests.emulator.test_wmma import DECLARATIONS, registers
from tests.shared.reference import random_array


@pytest.mark.parametrize(
    "instruction, message",
    [
        (f"wmma.load.a.sync.aligned.row.m16n8k16.f16 {registers(0, 8)}, [%p0]",
         "no matrix A of f16 with shape m16n8k16: allowed are m16n16k16, m8n32k16, m32n8k16"),
        (f"wmma.load.c.sync.aligned.row.m16n16k8.f16 {registers(0, 4)}, [%p0]",
         "no matrix C or D of f16 with shape m16n16k8"),
        (f"wmma.load.a.sync.aligned.col.m8n8k32.s4 {registers(0, 1)}, [%p0]",
         "shape m8n8k32 has A row-major only"),
        (f"wmma.load.a.sync.aligned.row.m16n16k16.bf16 {registers(0, 8)}, [%p0]",
         "operand 1 has 8 registers, it needs 4"),
        (f"wmma.load.a.sync.aligned.row.m16n16k16.shared::cluster.f16 {registers(0, 8)}, [%p0]",
         "modifier '.shared::cluster'"),
        (f"wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.u8.s32 {registers(0, 8)}, "
         f"{registers(8, 2)}, {registers(10, 2)}, {registers(12, 8)}",
         "it needs the same type for A and for B"),
        (f"wmma.mma.sync.aligned.row.row.m16n16k8.f32.bf16.bf16.f32 {registers(0, 8)}, "
         f"{registers(8, 4)}, {registers(12, 4)}, {registers(16, 8)}",
         "of bf16 has no shape m16n16k8: allowed are m16n16k16, m8n32k16, m32n8k16"),
        (f"wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32.satfinite {registers(0, 8)}, "
         f"{registers(8, 8)}, {registers(16, 8)}, {registers(24, 8)}",
         "has .satfinite for integers of 4 and 8 bits only"),
        (f"wmma.mma.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 {registers(0, 2)}, "
         f"{registers(8, 1)}, {registers(9, 1)}, {registers(12, 2)}",
         "of b1 needs .xor.popc or .and.popc"),
    ],
)  # fmt: skip
def test_instructions_that_do_not_exist(instruction, message):
    with pytest.raises(EmulatorError, match=message) as caught:
        load(kernel(1, instruction + ";", DECLARATIONS))
    assert "line " in str(caught.value) and "wmma." in str(caught.value)


@pytest.mark.parametrize(
    "address, stride, message",
    [
        ("%p0", "7", "must begin at a multiple of 16 bytes"),
        ("%p0+8", "16", "must begin at a multiple of 16 bytes"),
        ("%p0", "%t", "the stride 0x0 in lane 0 and 0x1 in lane 1: it must be the same"),
        ("%d1", "16", "the address 0x.* in lane 0 and 0x.* in lane 1: it must be the same"),
        ("%p0", "67108864", "lie in no allocation"),
    ],
)
def test_addresses_that_are_not_allowed(address, stride, message):
    body = f"""
mul.wide.u32 %d1, %t, 32;
add.u64 %d1, %d1, %p0;
wmma.load.a.sync.aligned.row.m16n16k16.f16 {registers(0, 8)}, [{address}], {stride};
"""
    with pytest.raises(EmulatorError, match=message):
        launch(kernel(1, body, DECLARATIONS), [np.zeros((64, 16), "float16")])


def test_what_the_report_counts():
    body = f"""
wmma.load.a.sync.aligned.row.m8n32k16.shared.s8 {registers(0, 1)}, [buf];
wmma.load.b.sync.aligned.row.m8n32k16.global.s8 {registers(1, 4)}, [%p0], 48;
wmma.load.c.sync.aligned.row.m8n32k16.global.s32 {registers(8, 8)}, [%p0];
wmma.mma.sync.aligned.row.row.m8n32k16.s32.s8.s8.s32 {registers(8, 8)}, {registers(0, 1)},
  {registers(1, 4)}, {registers(8, 8)};
wmma.store.d.sync.aligned.row.m8n32k16.shared.s32 [buf], {registers(8, 8)};
wmma.mma.sync.aligned.row.row.m8n32k16.f16.f32 {registers(0, 4)}, {registers(0, 8)},
  {registers(0, 8)}, {registers(8, 8)};
"""
    with options(report=True):
        launch(kernel(1, body, DECLARATIONS), [np.zeros(4096, "uint8")])
    (found,) = launch_reports()
    assert found["bytes"] == {
        "global": {"read": 16 * 32 + 4 * 8 * 32, "written": 0},
        "shared": {"read": 8 * 16, "written": 4 * 8 * 32},
    }
    flops = 2 * 8 * 32 * 16
    assert found["tensor"] == {
        "wmma s8": {"instructions": 1, "flops": flops},
        "wmma f16": {"instructions": 1, "flops": flops},
    }


RACE = f"""
setp.ge.u32 %q0, %t, 32;
@%q0 bra SECOND;
wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {registers(0, 8)}, [%p0];
wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [buf], {registers(0, 8)};
SECOND:
bar.sync 0;
@!%q0 bra END;
wmma.load.c.sync.aligned.row.m16n16k16.shared.f32 {registers(0, 8)}, [buf];
wmma.store.d.sync.aligned.col.m16n16k16.global.f32 [%p0], {registers(0, 8)};
END:
"""


def test_a_fragment_that_another_warp_reads_too_early(rng):
    values = random_array(rng, (16, 16), "float32")
    results, found, _ = run_checked(RACE, DECLARATIONS, [values], block=(64, 1, 1))
    assert found == []
    np.testing.assert_array_equal(results[0], values.T)
    without = changed(RACE, "bar.sync 0;", "")
    _, found, _ = run_checked(without, DECLARATIONS, [values], block=(64, 1, 1))
    kinds = {report["kind"] for report in found}
    assert kinds & {"data race", "uninitialised read"}
    race = next(report for report in found if report["kind"] == "data race")
    assert "wmma.store" in race["text"] and "wmma.load" in race["text"]
