"""``WARPLOOM_EMULATOR_ISA`` limits the host's vectors; results do not depend on it."""

import hashlib
import os
import subprocess
import sys

import pytest

from tests.emulator.golden import corpus, recording
from tests.emulator.native import emulator_function
from tests.shared.paths import python_path

WIDEST = ("any", "avx2", "avx512")
#: Families with MMAs, and which of their cases run.
FAMILIES = {"mma": 9, "wgmma_sums": 9, "wgmma_sparse": 31}

#: Prints the kernels in use and, for each case, a digest of its results.
SCRIPT = """
import hashlib, sys
from tests.emulator.native import emulator_function
from tests.emulator.golden import corpus, recording
from tests.emulator.ptx_driver import Driver
from warploom.runtime.emulator_libraries import find_libraries

print(*emulator_function("product_kernels")(), *emulator_function("row_kernels")())
driver = Driver(str(find_libraries()[0]))
for family, step in {families!r}.items():
    for case, result in recording.run(driver, corpus.family(family)[::step]):
        print(case.name, hashlib.sha256(result).hexdigest())
"""


def run(widest, script):
    environment = os.environ | {"WARPLOOM_EMULATOR_ISA": widest}
    environment["PYTHONPATH"] = python_path()
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True,
        timeout=1200,
    )  # fmt: skip


@pytest.mark.parametrize("widest", WIDEST)
def test_kernels_give_the_bits_of_the_h200_on_every_instruction_set(widest):
    done = run(widest, SCRIPT.format(families=FAMILIES))
    assert done.returncode == 0, done.stderr
    kernels, *lines = done.stdout.splitlines()
    here = [str(name) for name in emulator_function("product_kernels")()]
    allowed = [name for name in here if WIDEST.index(name) <= WIDEST.index(widest)]
    assert kernels.split() == allowed * 2, "of wgmma and of tcgen05"
    expected = {}
    for family, step in FAMILIES.items():
        results = recording.read(recording.DATA / f"{family}.npz").results
        for case in corpus.family(family)[::step]:
            expected[case.name] = hashlib.sha256(results[case.name]).hexdigest()
    assert dict(line.rsplit(" ", 1) for line in lines) == expected


def test_a_name_that_is_none_is_refused():
    script = (
        "from tests.emulator.native import emulator_function\nemulator_function('row_kernels')()"
    )
    done = run("sse9", script)
    assert done.returncode != 0
    assert "WARPLOOM_EMULATOR_ISA is 'sse9'; allowed are any, avx2 and avx512" in done.stderr
