"""Tensor maps that a kernel changes need fences; and what ends a launch is a report of its kind."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.checks import changed, checks, reports, run_checked
from tests.emulator.golden import tensor_replace
from tests.emulator.golden.case import Case
from tests.emulator.ptx_driver import Driver, DriverError, emulator
from warploom.runtime.emulator_libraries import find_libraries

ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [%d7], 128;"
RELEASE = "fence.proxy.tensormap::generic.release.gpu;"


@pytest.fixture
def driver() -> Driver:
    return emulator(str(find_libraries()[0]))


def case_of(name: str) -> Case:
    return next(case for case in tensor_replace.replacements() if case.name == name)


def kinds(driver: Driver, case: Case, body: str) -> set[str]:
    """The kinds of report of a kernel with this body in place of the case's own."""
    entry = case.entry("kernel0").replace(case.body, body)
    with checks():
        try:
            driver.launch(
                driver.load(entry), "kernel0", case.arrays, maps=case.maps, grid=case.grid
            )
        except DriverError:
            assert reports()
        return {report["kind"] for report in reports()}


@pytest.mark.parametrize("space", ["shared::cta", "global"])
def test_fences_of_tensor_maps(driver, space):
    case = case_of(f"global_address=%d9:{space}")
    assert kinds(driver, case, case.body) == set()
    assert kinds(driver, case, changed(case.body, ACQUIRE, "")) == {"missing tensor map fence"}


def test_a_changed_map_has_to_be_released(driver):
    case = case_of("global_address=%d9:global")
    assert kinds(driver, case, changed(case.body, RELEASE, "")) == {"missing tensor map fence"}


def test_changes_that_no_map_can_have(driver):
    case = case_of("rank=1:global")
    text = changed(case.body, "rank.global.b1024.b32 [%d7], 1;", "rank.global.b1024.b32 [%d7], 5;")
    assert "error" in kinds(driver, case, text)
    case = case_of("box_dim1=3:global")
    text = changed(case.body, "[%d7], 1, 3;", "[%d7], 0, 3;")
    assert "illegal descriptor" in kinds(driver, case, text)


ENDS = {
    "mbarrier misuse": "mov.u32 %r0, barrier; mbarrier.init.shared.b64 [%r0], 1;\n"
    "mbarrier.arrive.shared.b64 %d9, [%r0], 7;",
    "barrier misuse": "mov.u32 %r0, 17; bar.sync %r0;",
    "out of bounds": "mov.u32 %r0, 0x40000; ld.shared.b32 %r1, [%r0];",
    "misaligned access": "mov.u32 %r0, barrier; ld.shared.b32 %r1, [%r0+2];",
    "deadlock": "mov.u32 %r0, barrier; setp.ne.u32 %q0, %t, 0; @%q0 bra WAIT;\n"
    "mbarrier.init.shared.b64 [%r0], 1; WAIT: bar.warp.sync -1;\n"
    "L: mbarrier.try_wait.parity.shared.b64 %q1, [%r0], 0; @!%q1 bra L;",
}


@pytest.mark.parametrize("kind", ENDS)
def test_what_ends_a_launch_is_reported(kind):
    array = np.zeros(32, np.uint32)
    _, found, message = run_checked(
        ENDS[kind], ".shared .align 8 .b64 barrier;", [array], block=(32, 1, 1)
    )
    assert found[-1]["kind"] == kind, found
    assert "CTA (0, 0, 0)" in found[-1]["text"] or kind == "deadlock"
    assert found[-1]["text"] in message
