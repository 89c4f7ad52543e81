"""Reports name the line of the CUDA source where the PTX tells it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.run_ptx import EmulatorError, kernel, launch, load

FILES = '.file 1 "/source/kernel.cu", 1700000000, 4096\n.file 2 "helpers.h"\n'


def trap_after(location: str) -> str:
    """Message of a kernel whose only instruction after a ``.loc`` is a trap."""
    ptx = kernel(1, f".loc 1 3 0\n{location}\ntrap;") + FILES
    with pytest.raises(EmulatorError) as error:
        launch(ptx, [np.zeros(1, np.uint32)])
    return str(error.value)


def test_line_of_the_source():
    assert "(/source/kernel.cu:12): trap" in trap_after(".loc 1 12 5")


def test_inlined_code_names_the_outermost_call():
    nested = (
        ".loc 1 30 2, function_name $L__info_string0, inlined_at 1 44 6\n"
        ".loc 2 7 16, function_name $L__info_string1, inlined_at 1 30 2"
    )
    assert "(helpers.h:7, inlined at /source/kernel.cu:44): trap" in trap_after(nested)


def test_a_chain_of_calls_that_loops_ends():
    loop = ".loc 1 1 1, inlined_at 1 2 2\n.loc 1 2 2, inlined_at 1 1 1"
    assert "kernel.cu:2" in trap_after(loop)


def test_deadlocks_name_lines_too():
    body = """
mov.u32 %r1, 1024;
mbarrier.init.shared.b64 [%r1], 1;
bar.sync 0;
.loc 1 21 7
WAIT:
mbarrier.try_wait.parity.shared.b64 %q0, [%r1], 0;
@!%q0 bra WAIT;
"""
    ptx = kernel(1, body, ".shared .align 8 .b64 barrier;") + FILES
    with pytest.raises(EmulatorError, match=r"PTX line \d+ \(/source/kernel.cu:21\): mbarrier"):
        launch(ptx, [np.zeros(1, np.uint32)])


@pytest.mark.parametrize(("target", "arch"), [("sm_90a", "sm_90a"), ("sm_100f", "sm_100a")])
def test_targets(target, arch):
    load(f".target {target}, debug\n" + kernel(0, ""), arch)


def test_what_is_no_target():
    with pytest.raises(EmulatorError, match="'generic' is not a target architecture"):
        load(".target generic\n")
