"""A child that is forked while another thread launches can use the emulator."""

from __future__ import annotations

from tests.shared.paths import python_path

SCRIPT = """
import os, signal, sys, threading, time
import numpy as np
from tests.emulator.run_ptx import kernel, launch

LOOP = "mov.u32 %r0, 0;\\nAGAIN:\\nadd.u32 %r0, %r0, 1;\\nsetp.lt.u32 %q0, %r0, 20000;\\n"
LOOP += "@%q0 bra AGAIN;"
BODY = LOOP + "mul.wide.u32 %d0, %t, 4;\\nadd.u64 %d0, %d0, %p0;\\nst.global.u32 [%d0], %r0;"
TEXT = kernel(1, BODY)
stop = threading.Event()
launches = [0, 0]

def work(number):
    while not stop.is_set():
        launch(TEXT, [np.zeros(32, np.uint32)])
        launches[number] += 1

threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
for thread in threads:
    thread.start()
hanging = 0
for trial in range(10):
    before = sum(launches)
    while sum(launches) == before:
        time.sleep(0.001)
    child = os.fork()
    if child == 0:
        (got,) = launch(TEXT, [np.zeros(32, np.uint32)])
        os._exit(0 if (got == 20000).all() else 3)
    end = time.monotonic() + 60
    while (done := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
        time.sleep(0.002)
    if done == (0, 0):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        hanging += 1
        break
    assert done[1] == 0, done
stop.set()
for thread in threads:
    thread.join()
print("hanging", hanging)
"""


def test_children_of_a_fork_during_launches_do_not_hang(run_python):
    result = run_python(SCRIPT, PYTHONPATH=python_path())
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.strip().splitlines()[-1] == "hanging 0"
