"""What choices of a kernel for a GEMM go together, and why not.

What single choices may be is data (:mod:`~warploom.gemm.choices`); what depends on others, on the
problem and on the GPU are rules, each with the sentence that explains its violation.
"""

from __future__ import annotations

from collections.abc import Iterator

from warploom.gemm.choices import (
    CLUSTER_SPLITS,
    L2_POLICIES,
    SMS,
    STORE_BUFFERS,
    STORE_COLUMNS,
    KernelChoices,
)
from warploom.gemm.problem import GemmProblem, has_chunks, kind_of, steps_of
from warploom.target import TMA, WGMMA_M
from warploom.target.arch import Arch

#: Registers that a computing thread needs beside accumulators: addresses, phases, the epilogue; and
#: where results depend on nothing but the sums.
_OVERHEAD_REGISTERS, _OVERHEAD_OF_SUMS = 56, 40


def rules(
    knobs: KernelChoices, problem: GemmProblem, arch: Arch
) -> Iterator[tuple[bool, str]]:
    """Every rule, with the sentence that explains its violation."""
    yield from _tile_rules(knobs, problem)
    yield from _cluster_rules(knobs, arch)
    yield from _sharing_rules(knobs)
    yield from _resource_rules(knobs, problem, arch)


def _tile_rules(knobs: KernelChoices, problem: GemmProblem) -> Iterator[tuple[bool, str]]:
    """Rules on the shape of a tile, and on who computes its rows."""
    kind = kind_of(problem)
    rows, columns = knobs.accumulator
    computed = problem.computed
    yield not all(computed), "Both operands are computed; one of them must be loaded."
    yield (
        not any(computed) or knobs.swap_ab == computed[1],
        f"swap_ab = {knobs.swap_ab}: the operand that is computed goes through registers, which "
        "only the side of 64-row instructions does.",
    )
    side = "tile_n" if knobs.swap_ab else "tile_m"
    share = WGMMA_M * knobs.consumers
    yield (
        rows % share == 0,
        f"{side} = {rows}: {knobs.consumers} consumers need a multiple of {share}.",
    )
    yield (
        knobs.turns == 1 or (knobs.consumers == 1 and knobs.turns <= 3),
        f"turns = {knobs.turns} with {knobs.consumers} consumers: up to 3 warpgroups take turns, "
        "and share no rows.",
    )
    yield (
        knobs.stages % knobs.turns == 0,
        f"stages = {knobs.stages}: {knobs.turns} turns need a multiple, the same for each.",
    )
    kind.split_n(columns)  # raises with its own sentence
    yield (
        knobs.tile_k % kind.k == 0,
        f"tile_k = {knobs.tile_k}: one wgmma of {problem.a_dtype} consumes {kind.k}, allowed "
        "are its multiples.",
    )
    yield (
        knobs.tile_m <= TMA.box_extent and knobs.tile_n <= TMA.box_extent,
        f"A tile of {knobs.tile_m} x {knobs.tile_n}: a TMA box has at most {TMA.box_extent} "
        "elements along a dimension.",
    )
    width = problem.reduced
    yield (
        not width or (not knobs.swap_ab and _spans_reduced(knobs, problem)),
        f"tile_n = {knobs.tile_n}, swap_ab = {knobs.swap_ab}: rows are reduced over {width} "
        "columns, which one tile has, not exchanged.",
    )
    by_threads = knobs.swap_ab and not all(has_chunks(problem, d) for d in problem.outputs)
    yield (
        not by_threads or knobs.tile_m % knobs.consumers == 0,
        f"tile_m = {knobs.tile_m} with swap_ab and rows of {problem.n} columns, which TMA cannot"
        f" store: {knobs.consumers} consumers need a multiple.",
    )


def _cluster_rules(knobs: KernelChoices, arch: Arch) -> Iterator[tuple[bool, str]]:
    """Rules on the CTAs of a cluster, which load parts of a tile for each other."""
    arch.check_cluster(knobs.cluster_m * knobs.cluster_n)
    yield (
        knobs.tile_n % knobs.cluster_m == 0 and knobs.tile_m % knobs.cluster_n == 0,
        f"cluster {knobs.cluster_m} x {knobs.cluster_n}: each CTA loads an equal part of a tile "
        f"of {knobs.tile_m} x {knobs.tile_n}.",
    )


def _sharing_rules(knobs: KernelChoices) -> Iterator[tuple[bool, str]]:
    """Rules on who computes what."""
    alone = knobs.cluster_m == knobs.cluster_n == 1
    cluster = f"cluster {knobs.cluster_m} x {knobs.cluster_n}"
    yield (
        not knobs.in_cluster or (knobs.split_k in CLUSTER_SPLITS and alone and knobs.specialise),
        f"in_cluster with split_k = {knobs.split_k}, {cluster}, specialise = "
        f"{knobs.specialise}: {' or '.join(map(str, CLUSTER_SPLITS))} CTAs of a tile are the "
        "cluster, in which warps of their own load.",
    )
    yield (
        knobs.store_columns in (STORE_COLUMNS[:1] if knobs.swap_ab else STORE_COLUMNS),
        f"store_columns = {knobs.store_columns}: allowed are "
        f"{', '.join(map(str, STORE_COLUMNS))}, and {STORE_COLUMNS[0]} with swap_ab, which "
        "stores chunks of other shapes.",
    )
    yield (
        knobs.sms in (SMS if knobs.persistent else SMS[:1]),
        f"sms = {knobs.sms}, persistent = {knobs.persistent}: allowed are "
        f"{' and '.join(map(str, SMS))}, the second of a persistent grid.",
    )
    allowed = STORE_BUFFERS[:1] if knobs.swap_ab else STORE_BUFFERS
    yield (
        knobs.store_buffers in allowed,
        f"store_buffers = {knobs.store_buffers}: allowed are "
        f"{', '.join(map(str, STORE_BUFFERS))}, and {STORE_BUFFERS[0]} with swap_ab, which "
        "stores chunks of other shapes.",
    )
    yield (
        knobs.l2_policy in L2_POLICIES,
        f"l2_policy = {knobs.l2_policy}: allowed are {', '.join(map(str, L2_POLICIES))}.",
    )
    yield (
        not knobs.stream_k or knobs.split_k == 1,
        f"stream_k with split_k = {knobs.split_k}: both say how CTAs share tiles; use one.",
    )
    yield (
        not knobs.ping_pong
        or ((knobs.consumers, knobs.turns, knobs.split_k) == (1, 1, 1)
            and not (knobs.swap_ab or knobs.stream_k)
            and knobs.specialise and knobs.persistent),
        f"ping_pong with consumers = {knobs.consumers}, turns = {knobs.turns}, split_k = "
        f"{knobs.split_k}, swap_ab = {knobs.swap_ab}, stream_k = {knobs.stream_k}, specialise = "
        f"{knobs.specialise}, persistent = {knobs.persistent}: each of two warpgroups computes "
        "whole tiles of a persistent CTA, and stores them chunk by chunk.",
    )  # fmt: skip
    yield (
        knobs.persistent or (knobs.split_k == 1 and not knobs.stream_k and alone),
        f"persistent = False with split_k = {knobs.split_k}, stream_k = {knobs.stream_k}, "
        f"{cluster}: a CTA for each tile has no other to share with.",
    )
    yield (
        knobs.specialise or (alone and knobs.turns == 1),
        f"specialise = False with {cluster}, turns = {knobs.turns}: warpgroups that load for "
        "themselves neither share loads nor take turns.",
    )


def _spans_reduced(knobs: KernelChoices, problem: GemmProblem) -> bool:
    """Whether a tile has all columns that are reduced together, and no others of the rows."""
    if problem.reduced == problem.n:
        return knobs.tile_n >= problem.reduced
    return knobs.tile_n == problem.reduced


def _resource_rules(
    knobs: KernelChoices, problem: GemmProblem, arch: Arch
) -> Iterator[tuple[bool, str]]:
    """Rules on steps of the sum, shared memory and registers."""
    steps = steps_of(problem, knobs.tile_k)
    yield (
        steps is None or knobs.split_k <= steps,
        f"split_k = {knobs.split_k}: the sum over {problem.k} has {steps} steps of tile_k = "
        f"{knobs.tile_k}; a part needs one at least.",
    )
    limit = arch.shared_bytes_of_each(knobs.ctas_per_sm)
    yield (
        knobs.shared_bytes(problem) <= limit,
        f"{knobs.stages} stages of a {knobs.tile_m} x {knobs.tile_n} x {knobs.tile_k} tile need "
        f"{knobs.shared_bytes(problem)} bytes of shared memory, a CTA has {limit}; use fewer "
        "stages or smaller tiles.",
    )
    more = bool(problem.inputs or problem.reduced or any(problem.computed))
    needed = knobs.tile_registers(problem)
    needed += _OVERHEAD_REGISTERS if more else _OVERHEAD_OF_SUMS
    given = knobs.registers(arch)
    yield (
        needed <= given,
        f"A computing thread needs {needed} registers and has {given}: use a smaller tile than "
        f"{knobs.tile_m} x {knobs.tile_n} or other than {knobs.consumers} consumers.",
    )
