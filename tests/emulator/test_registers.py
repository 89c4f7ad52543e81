"""Registers that a program reads and never writes: undefined in PTX, the same in every run here."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np

from tests.emulator.run_ptx import kernel, launch
from tests.shared.paths import python_path

#: Stores 32 bytes for each thread, of registers that only some lanes have written, or none.
BODY = """
.reg .f32 %f; .reg .f64 %w; .reg .b8 %n; .reg .f16 %e; .reg .pred %o;
mul.wide.u32 %d1, %t, 32;
add.u64 %d1, %d1, %p0;
st.global.b32 [%d1], %r7;
st.global.f32 [%d1+4], %f;
st.global.f64 [%d1+8], %w;
cvt.u32.u16 %r3, %h5;
st.global.b32 [%d1+16], %r3;
cvt.f32.f16 %f, %e;
st.global.f32 [%d1+20], %f;
selp.u32 %r4, 1, 2, %o;
st.global.b32 [%d1+24], %r4;
cvt.u32.u8 %r5, %n;
setp.lt.u32 %q0, %t, 7;
@%q0 mov.u32 %r6, 5;
add.u32 %r6, %r6, %r5;
st.global.b32 [%d1+28], %r6;
"""
PROCESS = """
import numpy as np
from tests.emulator.run_ptx import launch, kernel
from tests.emulator.test_registers import BODY
print(launch(kernel(1, BODY), [np.zeros((32, 8), "uint32")], seed=3)[0].tobytes().hex())
"""


def in_a_process(filler: int) -> bytes:
    """What it stores where the C library fills memory that it hands out with other bytes."""
    environment = {**os.environ, "MALLOC_PERTURB_": str(filler)}
    environment["PYTHONPATH"] = python_path()
    done = subprocess.run(
        [sys.executable, "-c", PROCESS], env=environment, capture_output=True, text=True, check=True
    )
    return bytes.fromhex(done.stdout.split()[-1])


def test_two_processes_read_the_same():
    assert in_a_process(1) == in_a_process(170)


def test_values_that_no_number_can_be_taken_for():
    (out,) = launch(kernel(1, BODY), [np.zeros((32, 8), "uint32")])
    assert np.isnan(out[:, 1].view("float32")).all() and np.isnan(out[:, 5].view("float32")).all()
    assert np.isnan(np.ascontiguousarray(out[:, 2:4]).view("float64")).all()
    # Narrow registers hold no more than their bits.
    assert (out[:, 4] < 1 << 16).all()
    np.testing.assert_array_equal(out[:7, 7] - out[6, 7], 0)
