"""What choices of a kernel for a GEMM go together, and why not.

What single choices may be, and what excludes each other in any program, is data
(:mod:`warploom.tile.choices`); what depends on the problem and on the GPU are rules, each with the
sentence that explains its violation.
"""

from __future__ import annotations

from collections.abc import Iterator

from warploom.decide.problem import GemmProblem, has_chunks, kind_of, steps_of
from warploom.decide.resources import KernelChoices
from warploom.target import TMA, WGMMA_M
from warploom.target.arch import Arch
from warploom.tile.choices import EXCLUSIONS, Exclusion

#: Registers that a computing thread needs beside accumulators: addresses, phases, the epilogue; and
#: where results depend on nothing but the sums.
_OVERHEAD_REGISTERS, _OVERHEAD_OF_SUMS = 56, 40


#: What excludes each other in the programs that configs are for.
_EXCLUSIONS = (
    Exclusion(
        "ping_pong", (True,), {"swap_ab": (False,), "specialise": (True,)},
        "each of two warpgroups stores whole tiles chunk by chunk, and neither loads",
    ),
    Exclusion(
        "reduce_through", ("cluster",), {"specialise": (True,)},
        "CTAs of a cluster add their sums where warps of their own load",
    ),
    Exclusion(
        "swap_ab", (True,), {"store_columns": (64,), "store_buffers": (2,)},
        "tiles of the transpose are stored in chunks of other shapes",
    ),
    Exclusion(
        "persistent", (False,),
        {"split_k": (1,), "stream_k": (False,), "cluster_m": (1,), "cluster_n": (1,), "sms": (0,)},
        "a CTA for each tile has no other to share with",
    ),
    Exclusion(
        "specialise", (False,), {"cluster_m": (1,), "cluster_n": (1,), "slice_k": (1,)},
        "warpgroups that load for themselves share neither loads nor steps",
    ),
)  # fmt: skip


def rules(
    config: KernelChoices, problem: GemmProblem, arch: Arch
) -> Iterator[tuple[bool, str]]:
    """Every rule, with the sentence that explains its violation."""
    yield from _tile_rules(config, problem)
    yield from _cluster_rules(config, arch)
    yield from _sharing_rules(config)
    yield from _resource_rules(config, problem, arch)


def _tile_rules(config: KernelChoices, problem: GemmProblem) -> Iterator[tuple[bool, str]]:
    """Rules on the shape of a tile, and on who computes its rows."""
    kind = kind_of(problem)
    rows, columns = config.accumulator
    computed = problem.computed
    yield not all(computed), "Both operands are computed; one of them must be loaded."
    yield (
        not any(computed) or config.swap_ab == computed[1],
        f"swap_ab = {config.swap_ab}: the operand that is computed goes through registers, which "
        "only the side of 64-row instructions does.",
    )
    side = "tile_n" if config.swap_ab else "tile_m"
    share = WGMMA_M * config.consumers
    yield (
        rows % share == 0,
        f"{side} = {rows}: {config.consumers} consumers need a multiple of {share}.",
    )
    yield (
        config.slice_k == 1 or config.consumers == 1,
        f"slice_k = {config.slice_k} with {config.consumers} consumers: warpgroups that share the "
        "steps share no rows; use 1 consumer.",
    )
    yield (
        config.stages % config.slice_k == 0,
        f"stages = {config.stages}: slice_k = {config.slice_k} needs a multiple, the same for each "
        "warpgroup.",
    )
    kind.split_n(columns)  # raises with its own sentence
    yield (
        config.tile_k % kind.k == 0,
        f"tile_k = {config.tile_k}: one wgmma of {problem.a_dtype} consumes {kind.k}, allowed "
        "are its multiples.",
    )
    yield (
        config.tile_m <= TMA.box_extent and config.tile_n <= TMA.box_extent,
        f"A tile of {config.tile_m} x {config.tile_n}: a TMA box has at most {TMA.box_extent} "
        "elements along a dimension.",
    )
    width = problem.reduced
    yield (
        not width or (not config.swap_ab and _spans_reduced(config, problem)),
        f"tile_n = {config.tile_n}, swap_ab = {config.swap_ab}: rows are reduced over {width} "
        "columns, which one tile has, not exchanged.",
    )
    by_threads = config.swap_ab and not all(has_chunks(problem, d) for d in problem.outputs)
    yield (
        not by_threads or config.tile_m % config.consumers == 0,
        f"tile_m = {config.tile_m} with swap_ab and rows of {problem.n} columns, which TMA cannot"
        f" store: {config.consumers} consumers need a multiple.",
    )


def _cluster_rules(config: KernelChoices, arch: Arch) -> Iterator[tuple[bool, str]]:
    """Rules on the CTAs of a cluster, which load parts of a tile for each other."""
    arch.check_cluster(config.cluster_m * config.cluster_n)
    yield (
        config.tile_n % config.cluster_m == 0 and config.tile_m % config.cluster_n == 0,
        f"cluster {config.cluster_m} x {config.cluster_n}: each CTA loads an equal part of a tile "
        f"of {config.tile_m} x {config.tile_n}.",
    )


def _sharing_rules(config: KernelChoices) -> Iterator[tuple[bool, str]]:
    """What excludes each other in any program, and in those that a config is for."""
    chosen = vars(config)
    for exclusion in (*EXCLUSIONS, *_EXCLUSIONS):
        reason = exclusion.why_not(chosen)
        yield reason is None, reason or ""


def _spans_reduced(config: KernelChoices, problem: GemmProblem) -> bool:
    """Whether a tile has all columns that are reduced together, and no others of the rows."""
    if problem.reduced == problem.n:
        return config.tile_n >= problem.reduced
    return config.tile_n == problem.reduced


def _resource_rules(
    config: KernelChoices, problem: GemmProblem, arch: Arch
) -> Iterator[tuple[bool, str]]:
    """Rules on steps of the sum, shared memory and registers."""
    steps = steps_of(problem, config.tile_k)
    yield (
        steps is None or config.split_k <= steps,
        f"split_k = {config.split_k}: the sum over {problem.k} has {steps} steps of tile_k = "
        f"{config.tile_k}; a part needs one at least.",
    )
    limit = arch.shared_bytes_of_each(config.ctas_per_sm)
    yield (
        config.shared_bytes(problem) <= limit,
        f"{config.stages} stages of a {config.tile_m} x {config.tile_n} x {config.tile_k} tile "
        f"need {config.shared_bytes(problem)} bytes of shared memory, a CTA has {limit}; use fewer "
        "stages or smaller tiles.",
    )
    more = bool(problem.inputs or problem.reduced or any(problem.computed))
    needed = config.tile_registers(problem)
    needed += _OVERHEAD_REGISTERS if more else _OVERHEAD_OF_SUMS
    given = config.registers(arch)
    yield (
        needed <= given,
        f"A computing thread needs {needed} registers and has {given}: use a smaller tile than "
        f"{config.tile_m} x {config.tile_n} or other than {config.consumers} consumers.",
    )
    columns = config.accumulator[1]
    needed = config.mma_registers(problem)
    given = config.launch_registers(arch)
    yield (
        needed <= given,
        f"An MMA of {columns} columns needs {needed} registers at the launch, and a thread of "
        f"{config.ctas_per_sm * config.threads} has {given}: use fewer columns, consumers or CTAs "
        "of an SM.",
    )
