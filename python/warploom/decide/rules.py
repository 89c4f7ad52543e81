"""What choices of a kernel for a GEMM go together, and why not.

What single choices may be, and what excludes each other in any program, is data
(:mod:`warploom.tile.choices`); what depends on the problem and on the GPU are rules, each with the
sentence that explains its violation.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from warploom.decide.gemv_rules import gemv_violations
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
        "order_mmas", (True,), {"consumers": (2, 3), "ping_pong": (False,)},
        "one warpgroup has no other to order MMAs with",
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
#: The choices that they are about.
_EXCLUDING = tuple(dict.fromkeys(
    name for each in (*EXCLUSIONS, *_EXCLUSIONS) for name in (each.name, *each.allowed)
))  # fmt: skip


def violations(config: KernelChoices, problem: GemmProblem, arch: Arch) -> Iterator[str]:
    """The sentence of every rule that is violated, in order.

    A search asks thousands of times, and most configs violate none: no sentence is written then.
    """
    if config.gemv:
        yield from gemv_violations(config, problem)
        return
    yield from _of_tiles(config, problem)
    yield from of_sharing(config, arch)
    yield from _of_resources(config, problem, arch)


def of_sharing(config: KernelChoices, arch: Arch) -> Iterator[str]:
    """The rules of CTAs and warpgroups that share work, which need no problem."""
    yield from _of_clusters(config, arch)
    yield from _of_choices(config)


def _of_tiles(config: KernelChoices, problem: GemmProblem) -> Iterator[str]:
    """Rules on the shape of a tile, and on who computes its rows."""
    kind = kind_of(problem)
    rows, columns = config.accumulator
    computed = problem.computed
    if all(computed):
        yield "Both operands are computed; one of them must be loaded."
    if any(computed) and config.swap_ab != computed[1]:
        yield (
            f"swap_ab = {config.swap_ab}: the operand that is computed goes through registers, "
            "which only the side of 64-row instructions does."
        )
    share = WGMMA_M * config.consumers
    if rows % share:
        side = "tile_n" if config.swap_ab else "tile_m"
        yield f"{side} = {rows}: {config.consumers} consumers need a multiple of {share}."
    if config.slice_k > 1 and config.consumers > 1:
        yield (
            f"slice_k = {config.slice_k} with {config.consumers} consumers: warpgroups that share "
            "the steps share no rows; use 1 consumer."
        )
    if config.stages % config.slice_k:
        yield (
            f"stages = {config.stages}: slice_k = {config.slice_k} needs a multiple, the same for "
            "each warpgroup."
        )
    kind.split_n(columns)  # raises with its own sentence
    if config.tile_k % kind.k:
        yield (
            f"tile_k = {config.tile_k}: one wgmma of {problem.a_dtype} consumes {kind.k}, allowed "
            "are its multiples."
        )
    if config.tile_m > TMA.box_extent or config.tile_n > TMA.box_extent:
        yield (
            f"A tile of {config.tile_m} x {config.tile_n}: a TMA box has at most {TMA.box_extent} "
            "elements along a dimension."
        )
    if problem.pixels and config.box(problem) is None:
        steps = ", ".join(str(axis.step) for axis in problem.pixels)
        yield (
            f"tile_m = {config.tile_m}: no box of so many pixels can be loaded in steps of {steps} "
            f"and shared by {config.consumers} consumers and cluster_n = {config.cluster_n} CTAs; "
            "use a power of two, and smaller clusters."
        )
    width = problem.reduced
    if width and (config.swap_ab or not _spans_reduced(config, problem)):
        yield (
            f"tile_n = {config.tile_n}, swap_ab = {config.swap_ab}: rows are reduced over {width} "
            "columns, which one tile has, not exchanged."
        )
    by_threads = config.swap_ab and not all(has_chunks(problem, d) for d in problem.outputs)
    if by_threads and config.tile_m % config.consumers:
        yield (
            f"tile_m = {config.tile_m} with swap_ab and rows of {problem.n} columns, which TMA "
            f"cannot store: {config.consumers} consumers need a multiple."
        )


def _of_clusters(config: KernelChoices, arch: Arch) -> Iterator[str]:
    """Rules on the CTAs of a cluster, which load parts of a tile for each other."""
    arch.check_cluster(config.cluster_m * config.cluster_n)
    if config.tile_n % config.cluster_m or config.tile_m % config.cluster_n:
        yield (
            f"cluster {config.cluster_m} x {config.cluster_n}: each CTA loads an equal part of a "
            f"tile of {config.tile_m} x {config.tile_n}."
        )


def _of_choices(config: KernelChoices) -> Iterator[str]:
    """What excludes each other in any program, and in those that a config is for."""
    chosen = vars(config)
    yield from _excluded(tuple(chosen.get(name) for name in _EXCLUDING))


@lru_cache(maxsize=4096, typed=True)
def _excluded(values: tuple[Any, ...]) -> tuple[str, ...]:
    """The sentences about values of :data:`_EXCLUDING`; a search has few different ones."""
    chosen = dict(zip(_EXCLUDING, values, strict=True))
    reasons = (exclusion.why_not(chosen) for exclusion in (*EXCLUSIONS, *_EXCLUSIONS))
    return tuple(reason for reason in reasons if reason is not None)


def _spans_reduced(config: KernelChoices, problem: GemmProblem) -> bool:
    """Whether a tile has all columns that are reduced together, and no others of the rows."""
    if problem.reduced == problem.n:
        return config.tile_n >= problem.reduced
    return config.tile_n == problem.reduced


def _of_resources(config: KernelChoices, problem: GemmProblem, arch: Arch) -> Iterator[str]:
    """Rules on steps of the sum, shared memory and registers."""
    steps = steps_of(problem, config.tile_k)
    if steps is not None and config.split_k > steps:
        yield (
            f"split_k = {config.split_k}: the sum over {problem.k} has {steps} steps of tile_k = "
            f"{config.tile_k}; a part needs one at least."
        )
    needed, limit = config.shared_bytes(problem), arch.shared_bytes_of_each(config.ctas_per_sm)
    if needed > limit:
        yield (
            f"{config.stages} stages of a {config.tile_m} x {config.tile_n} x {config.tile_k} tile "
            f"need {needed} bytes of shared memory, a CTA has {limit}; use fewer stages or smaller "
            "tiles."
        )
    more = bool(problem.inputs or problem.reduced or any(problem.computed))
    needed = config.tile_registers(problem)
    needed += _OVERHEAD_REGISTERS if more else _OVERHEAD_OF_SUMS
    given = config.registers(arch)
    if needed > given:
        yield (
            f"A computing thread needs {needed} registers and has {given}: use a smaller tile than "
            f"{config.tile_m} x {config.tile_n} or other than {config.consumers} consumers."
        )
    columns = config.mma_columns(problem)
    needed = config.mma_registers(problem)
    given = config.launch_registers(arch)
    if needed > given:
        yield (
            f"An MMA of {columns} columns needs {needed} registers at the launch, and a thread of "
            f"{config.ctas_per_sm * config.threads} has {given}: use fewer columns, consumers or "
            "CTAs of an SM."
        )
