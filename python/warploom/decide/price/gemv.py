"""The time of a GEMV: weights that arrive from memory, and instructions that dequantise them.

Each warp loads some steps ahead and then computes as they arrive. Memory delivers to all SMs beside
what the schedulers of the busiest SM issue; a warp that goes round its registers waits each time
for what it has asked for last.
"""

from __future__ import annotations

import math

from warploom.decide.config import Config
from warploom.decide.gemv_rules import loads_x_ahead, warps_of, weight_bits
from warploom.decide.machine import Machine
from warploom.decide.price.model import Prediction
from warploom.decide.problem import GemmProblem
from warploom.decide.work import operand_bytes
from warploom.intrin.mma_sync import MMA_M, MMA_N

#: Rows that are made for if a call decides.
_UNKNOWN_ROWS = MMA_N
_SCHEDULERS, _WARP, _HALF = 4, 32, 2
#: Instructions of a warp in machine code of ptxas 13.0: for a word of weights (of 4 bits: four
#: ``lop3``, a shift, eight ``hfma2``, an MMA); for a vector of words, its load, address and scale;
#: for a step, X and the branch; and for a CTA, ids, sums and results.
_OF_WORD, _OF_VECTOR, _OF_STEP, _OF_CTA = {4: 15.0, 8: 8.0}, 6.0, 40.0, 120.0
#: The vector's words.
_WORDS = 4
#: Of a warp that is alone: cycles between two instructions; and in which it waits in a step, for X
#: that it has loaded a step ahead, or in the step.
_ALONE, _WAIT_AHEAD, _WAIT = 3.0, 150.0, 600.0
#: Microseconds until the first CTAs compute, whose weights arrive while the kernel before ends.
_FIRST = 0.9
#: Bytes of weights on their way to an SM with which memory takes twice as long as with very many.
_IN_FLIGHT = 20e3
#: Bytes of a row that a warp asks for at a time, with which memory takes twice as long.
_RUN = 8.0
#: How much longer memory takes where warps load again as they compute: with one round, all that a
#: CTA needs is on its way at once.
_ROUNDS = 1.1
#: Warps of a scheduler with which it issues in half of its cycles.
_HALF_BUSY = 2.0


def price_gemv(problem: GemmProblem, config: Config, machine: Machine) -> Prediction:
    """The time of one launch, back to back with others.

    Parameters
    ----------
    problem : GemmProblem
    config : Config
        A legal one whose ``gemv`` is set.
    machine : Machine

    Notes
    -----
    The constants are those of 84 kernels of weights of 4 bits (H100, 2026-11-26).
    """
    m, k, n = problem.m or _UNKNOWN_ROWS, problem.k or 0, problem.n or 0
    down = -(-m // MMA_N)
    ctas = down * (n // config.tile_n) * (problem.batch or 1)
    steps, warps = k // config.tile_k, warps_of(config)
    each = -(-steps // warps)
    vectors = config.tile_n // MMA_M * problem.products * 2
    step = vectors * (_WORDS * _OF_WORD[weight_bits(problem)] + _OF_VECTOR) + _OF_STEP
    held = min(config.ctas_per_sm, math.ceil(ctas / machine.sms))
    share = ctas / machine.sms  # CTAs of an SM, and of the busiest SM
    busiest = max(math.ceil(share - 0.1), share)
    issue = busiest * (steps * step + warps * _OF_CTA) / _SCHEDULERS
    issue *= 1 + _HALF_BUSY * _SCHEDULERS / (held * warps)
    # A warp computes its steps one after the other, however few others there are.
    wait = _WAIT_AHEAD if loads_x_ahead(config, problem) else _WAIT
    alone = max(1.0, share / held) * (each * (step * _ALONE + wait) + _OF_CTA * _ALONE)
    ahead = held * warps * min(each, config.stages) * vectors * _WARP * _WORDS * 4
    rows, weights = operand_bytes(problem)
    stored = m * n * problem.products * _HALF
    dram = (rows + weights * busiest / share + stored) / machine.dram_bytes
    run = min(each, config.stages) * config.tile_k * weight_bits(problem) / 8
    dram *= (1 + (_IN_FLIGHT / ahead) ** 2 + _RUN / run) * each * warps / steps
    if each > config.stages:
        dram *= _ROUNDS
    l2 = (ctas * min(m, MMA_N) * k * _HALF + weights * down) / machine.distinct_bytes
    return Prediction(
        tensor=0.0, l2=l2 / machine.clock, stores=0.0,
        loop=max(issue, alone, l2) / machine.clock, dram=dram, fill=_FIRST, drain=0.0,
        launch=machine.launch, reduce=0.0, waves=math.ceil(share / held),
        overlap=machine.overlap_dram, throttle=1.0,
    )  # fmt: skip
