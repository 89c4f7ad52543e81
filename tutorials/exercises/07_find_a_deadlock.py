"""Exercises of 07_find_a_deadlock.py."""

import numpy as np
from tvm.backend.cuda.lang.pipeline import MBarrier
from tvm.script import tirx as T

from warploom import emulator
from warploom.tutorials import Exercise

ROUNDS = 3


def hand_over(arrivals):
    """Warp 0 writes a row, warp 1 stores it; ``arrivals`` are those that a barrier waits for."""

    @T.prim_func
    def program(A: T.Buffer((ROUNDS, 32), "float32"), B: T.Buffer((ROUNDS, 32), "float32")):
        T.device_entry()
        T.cta_id([1])
        warp = T.warp_id([2])
        lane = T.lane_id([32])
        pool = T.SMEMPool()
        row = pool.alloc((32,), "float32", align=16)
        full, empty = MBarrier(pool, 1), MBarrier(pool, 1)
        pool.commit()
        full.init(arrivals)
        empty.init(arrivals)
        T.cuda.cta_sync()
        if warp == 0:
            for i in T.serial(ROUNDS):
                # solution: wait until the row is empty: in round 0 it is, so the parity to wait for
                #   is 1 then, 0 in round 1, and so on
                empty.wait(0, T.truncmod(i + 1, 2))
                # end
                row[lane] = A[i, lane]
                full.arrive(0)
        else:
            for i in T.serial(ROUNDS):
                # solution: wait until the row of round i is full; its parity begins with 0
                full.wait(0, T.truncmod(i, 2))
                # end
                B[i, lane] = row[lane]
                empty.arrive(0)

    return program


def arrivals():
    """How many arrivals complete a phase of the barriers above."""
    # solution: each of the 32 threads of a warp arrives, not one for all of them
    return 32
    # end


def check_parities():
    a = np.random.default_rng(0).standard_normal((ROUNDS, 32)).astype(np.float32)
    for seed in range(3):
        result = emulator.run(hand_over(32), [a, np.full_like(a, np.nan)], seed=seed)
        np.testing.assert_array_equal(result.outputs[1], a)


def check_arrivals():
    ones = np.ones((ROUNDS, 32), np.float32)
    result = emulator.run(hand_over(arrivals()), [ones, np.full_like(ones, np.nan)])
    np.testing.assert_array_equal(result.outputs[1], ones)


EXERCISES = [
    Exercise("A row that goes from warp to warp, and neither hangs nor is lost", check_parities),
    Exercise("The arrivals that the barriers expect", check_arrivals),
]
