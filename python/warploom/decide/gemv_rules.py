"""GEMVs: which problems they are for, and which choices of a config they can have.

Warps multiply weights of 4 or 8 bits with up to eight rows: they load weights from global memory
straight into registers, and use ``mma.sync``. The choices of a config then mean:

- ``tile_n``: columns of a CTA, all of which each of its warps has, a multiple of the 16 of an MMA;
- ``tile_k``: K of a step of a warp, as many weights as four loads of 16 bytes have;
- ``stages``: steps that a warp has loaded into registers;
- ``slice_k``: warpgroups, of which each warp has its own part of K;
- ``ctas_per_sm``: CTAs of an SM for whose registers the kernel is compiled.
"""

from __future__ import annotations

from collections.abc import Iterator

from warploom.decide.problem import GemmProblem
from warploom.decide.resources import KernelChoices
from warploom.intrin.mma_sync import MMA_M, MMA_N
from warploom.target import SM90A

#: Bits of weights, and dtypes that they are converted to.
BITS, DTYPES = (4, 8), ("float16", "bfloat16")
#: Bits that a lane loads at a time, and lanes that have neighbouring parts of K.
_LOAD_BITS, _LANES = 128, 4
_WARP, _WARPS_OF_GROUP = 32, 4
#: Bits of a weight with its share of scales and zeros: below, weights are packed.
_MOST_BITS = 12
#: Registers of a thread beside weights and sums: X, addresses, dequantised weights; and for the X
#: of the next step.
_OVERHEAD, _NEXT_X = 32, 16
_SUMS_OF_BLOCK = 8


def why_no_gemv(problem: GemmProblem) -> str | None:
    """Why no GEMV computes a problem; None if one may."""
    if problem.computed != (False, True) or not BITS[0] <= problem.b_bits < _MOST_BITS:
        return "A GEMV has weights of 4 or 8 bits, and rows that are loaded as they lie in memory."
    if problem.a_dtype not in DTYPES or problem.accumulator != "float32":
        return f"A GEMV multiplies {' or '.join(DTYPES)}."
    if problem.layout != "NT" or problem.taps > 1 or problem.pixels or problem.reduced:
        return "A GEMV has rows along K, no taps, no pixels, and no rows that are reduced."
    if problem.n is None or problem.k is None or problem.n % MMA_M:
        return f"The columns of a GEMV are a known multiple of {MMA_M}, and its K is known."
    if problem.k % step_of(problem):
        return f"K of this GEMV must be a multiple of the {step_of(problem)} of a step."
    return None


def weight_bits(problem: GemmProblem) -> int:
    """Bits of a packed weight, without its share of scales and zeros."""
    return max(bits for bits in BITS if bits <= problem.b_bits)


def step_of(problem: GemmProblem) -> int:
    """K of a step of a warp."""
    return _LANES * _LOAD_BITS // weight_bits(problem)


def warps_of(config: KernelChoices) -> int:
    """Warps of a CTA, each with its own part of K."""
    return _WARPS_OF_GROUP * config.slice_k


def registers_of(config: KernelChoices, problem: GemmProblem) -> int:
    """Registers that a thread needs: weights and scales of the steps that are loaded, and sums."""
    blocks = config.tile_n // MMA_M * problem.products
    rows = 2 * blocks
    return config.stages * rows * (_LOAD_BITS // 32 + 1) + blocks * _SUMS_OF_BLOCK + _OVERHEAD


def registers_given(config: KernelChoices) -> int:
    """Registers that a thread can have, with the CTAs of an SM that it is compiled for."""
    threads = _WARP * warps_of(config)
    given = SM90A.registers_per_sm // (threads * config.ctas_per_sm)
    step = SM90A.setmaxnreg.step
    return min(given // step * step, SM90A.registers_per_thread)


def loads_x_ahead(config: KernelChoices, problem: GemmProblem) -> bool:
    """Whether a thread has registers for the X of the next step, too."""
    return registers_of(config, problem) + _NEXT_X <= registers_given(config)


def gemv_violations(config: KernelChoices, problem: GemmProblem) -> Iterator[str]:
    """The sentence of every rule that a config breaks."""
    if reason := why_no_gemv(problem):
        yield reason
        return
    if config.tile_m != MMA_N or not config.swap_ab or config.persistent or config.specialise:
        yield (
            f"gemv: tile_m is {MMA_N}, swap_ab is set, and the grid has a CTA for each tile, whose "
            "warps load for themselves."
        )
    if config.tile_k != step_of(problem):
        yield f"tile_k = {config.tile_k}: a step of this GEMV has {step_of(problem)} of K."
    if config.tile_n % MMA_M or problem.n is None or problem.n % config.tile_n:
        yield f"tile_n = {config.tile_n}: it must divide {problem.n} and be a multiple of {MMA_M}."
    needed, given = registers_of(config, problem), registers_given(config)
    if needed > given:
        yield (
            f"A thread needs {needed} registers and has {given}: use fewer stages, columns, "
            "warpgroups or CTAs of an SM."
        )


