"""Exercises of 06_emulator.py."""

from pathlib import Path

import numpy as np
from tvm.script import tirx as T

from warploom import emulator
from warploom.tutorials import Exercise

TILES, THREADS = 3, 128


@T.prim_func
def shift(A: T.Buffer((TILES, THREADS), "float32"), B: T.Buffer((TILES, THREADS), "float32")):
    """B = A, each row turned by one element; it has a race, which you repair."""
    T.device_entry()
    T.cta_id([1])
    thread = T.thread_id([THREADS])
    buffer = T.alloc_buffer((THREADS,), "float32", scope="shared")
    for tile in T.serial(TILES):
        buffer[thread] = A[tile, thread]
        T.cuda.cta_sync()
        B[tile, thread] = buffer[T.truncmod(thread + 1, THREADS)]
        # solution: who may still read when the next tile is stored?
        T.cuda.cta_sync()
        # end


@T.prim_func
def too_early(A: T.Buffer((THREADS,), "float32"), B: T.Buffer((THREADS,), "float32")):
    T.device_entry()
    T.cta_id([1])
    thread = T.thread_id([THREADS])
    buffer = T.alloc_buffer((THREADS,), "float32", scope="shared")
    buffer[thread] = A[thread]
    B[thread] = buffer[127 - thread]


def lines_of_races(program, arrays):
    """The lines of the script that races of a program name, as a set of numbers."""
    found = set()
    # solution: EmulatorError has `findings`, each with a `kind` and `sides`, and a side has a line
    try:
        emulator.run(program, arrays)
    except emulator.EmulatorError as error:
        for finding in error.findings:
            if finding.kind == "data race":
                found |= {side.line for side in finding.sides}
    # end
    return found


def check_shift():
    a = np.random.default_rng(0).standard_normal((TILES, THREADS)).astype(np.float32)
    for seed in range(3):
        result = emulator.run(shift, [a, np.full_like(a, np.nan)], seed=seed)
        np.testing.assert_array_equal(result.outputs[1], np.roll(a, -1, axis=1))


def check_lines():
    ones = np.ones(THREADS, np.float32)
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    found = lines_of_races(too_early, [ones, ones])
    texts = {lines[number - 1].strip() for number in found}
    assert texts == {"buffer[thread] = A[thread]", "B[thread] = buffer[127 - thread]"}, texts


EXERCISES = [
    Exercise("A kernel without its race", check_shift),
    Exercise("A program that reads the emulator's findings", check_lines),
]
