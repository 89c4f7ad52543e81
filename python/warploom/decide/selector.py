"""The one selector: the config of any kernel of the package, by its problem."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warploom.decide.config import Config
from warploom.decide.families.attention import AttentionProblem, choose_attention
from warploom.decide.families.block_scaled import BlockScaledProblem, choose_block_scaled
from warploom.decide.families.grouped import choose_grouped
from warploom.decide.families.grouped_problem import GroupedBlockScaledProblem, GroupedProblem
from warploom.decide.families.latent import LatentProblem, choose_latent
from warploom.decide.families.paged_decode import PagedDecodeProblem, choose_paged_decode
from warploom.decide.families.prefill import PrefillProblem, choose_prefill
from warploom.decide.families.quantised import QuantisedProblem, choose_quantised
from warploom.decide.machine import Machine
from warploom.decide.machines import machine_for
from warploom.decide.problem import GemmProblem
from warploom.decide.ranking import choose_gemm

Problem = (
    GemmProblem | AttentionProblem | BlockScaledProblem | GroupedBlockScaledProblem
    | GroupedProblem | LatentProblem | PagedDecodeProblem | PrefillProblem | QuantisedProblem
)
#: The family of each problem.
FAMILIES: dict[type, Callable[[Any, Machine], Config]] = {
    GemmProblem: choose_gemm,
    AttentionProblem: choose_attention,
    BlockScaledProblem: choose_block_scaled,
    GroupedBlockScaledProblem: choose_grouped,
    GroupedProblem: choose_grouped,
    LatentProblem: choose_latent,
    PagedDecodeProblem: choose_paged_decode,
    PrefillProblem: choose_prefill,
    QuantisedProblem: choose_quantised,
}


def choose(problem: Problem, machine: Machine | None = None) -> Config:
    """The config that is expected to be the fastest.

    Parameters
    ----------
    problem : GemmProblem, AttentionProblem, ...
        Of a class in :data:`FAMILIES`. A GEMM may have an epilogue, operands that are dequantised
        on the way, and taps: it is a convolution then.
    machine : Machine, optional
        The GPU; by default that of the current target, and without a target an H200.

    Raises
    ------
    IllegalCombination
        If no config is legal.

    Examples
    --------
    >>> from warploom.decide import plain_gemm
    >>> choose(plain_gemm(8, 4096, 4096)).swap_ab
    True
    """
    return FAMILIES[type(problem)](problem, machine or machine_for())
