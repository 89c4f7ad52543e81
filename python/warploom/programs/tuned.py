"""Tuned programs of the package: for each family what ``wl.autotune`` chooses among."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm.tirx import PrimFunc

from warploom.errors import ArgumentError
from warploom.language.calls.arguments import TensorSpec
from warploom.language.tuning.decorator import autotune
from warploom.language.tuning.factory import TunedFactory
from warploom.language.tuning.space import Space, space
from warploom.programs.attention import attention
from warploom.programs.conv2d import conv2d
from warploom.programs.gemm_block_scaled import gemm_block_scaled
from warploom.programs.gemm_grouped import gemm_grouped
from warploom.programs.gemm_grouped_block_scaled import gemm_grouped_block_scaled
from warploom.programs.gemm_quantised import gemm_quantised


@dataclass(frozen=True)
class Family:
    """A factory of programs, and its configs.

    Attributes
    ----------
    factory : callable
    configs : Space
        Those for which a size, a dtype or the GPU has no kernel are left out of a search.
    inputs : callable, optional
        Makes the tensors whose contents matter, as of :func:`warploom.autotune`.
    """

    factory: Callable[..., PrimFunc]
    configs: Space
    inputs: Callable[[Mapping[str, TensorSpec], np.random.Generator], Mapping[str, Any]] | None = (
        None
    )


def _offsets(specs: Mapping[str, TensorSpec], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """First rows of groups of random sizes, which together are all rows."""
    spec, rows = specs["Indptr"], specs["X"].shape[0]
    inner = rng.integers(0, rows + 1, spec.shape[0] - 2)
    return {"Indptr": np.array([0, *sorted(inner), rows], spec.dtype)}


#: The families by the names of their factories.
FAMILIES: Mapping[str, Family] = {
    "attention": Family(attention, space(
        tile=((128, 160), (128, 128), (192, 80), (128, 96), (128, 64), (64, 128)), stages=(2, 3),
    )),
    "conv2d": Family(conv2d, space(
        tile=((8, 16, 128, 64), (8, 16, 256, 64), (16, 16, 128, 64), (8, 8, 128, 64),
              (8, 8, 64, 64), (8, 8, 64, 32)),
        stages=(4, 3, 6),
    )),
    "gemm_grouped": Family(gemm_grouped, space(
        tile=((128, 256, 64), (64, 256, 64), (128, 128, 64), (64, 128, 64), (64, 64, 64),
              (128, 256, 128), (64, 128, 128), (8, 64, 256), (16, 64, 128), (32, 64, 128)),
        stages=(4, 3, 6, 11), cluster=((1, 1), (1, 2)), split_k=(1, 2, 4),
    ), _offsets),
    "gemm_quantised": Family(gemm_quantised, space(
        tile=((8, 64, 256), (16, 64, 256), (32, 64, 256), (16, 64, 128), (64, 64, 128),
              (64, 128, 128)),
        slice_k=(3, 2, 1), stages=(12, 6), split_k=(1, 2, 4),
    )),
    "gemm_block_scaled": Family(gemm_block_scaled, space(
        tile=((128, 192, 128), (256, 128, 128), (128, 128, 256), (64, 128, 256), (64, 64, 256)),
        stages=(4, 3, 6), scales_ahead=(True, False), order_mmas=(False, True),
        cluster=((2, 1), (1, 2), (1, 1)),
    )),
    "gemm_grouped_block_scaled": Family(gemm_grouped_block_scaled, space(
        tile=((128, 128), (64, 128), (64, 64)), stages=(6, 8, 4), cluster=((1, 2), (1, 1)),
    ), _offsets),
}  # fmt: skip


def tuned(name: str, **options: Any) -> TunedFactory:
    """A factory of the package whose tile, stages and hints are chosen by measurements.

    Parameters
    ----------
    name : str
        A key of :data:`FAMILIES`.
    **options
        As of :func:`warploom.autotune`, such as ``trials`` and ``work_dir``; ``configs`` is the
        family's if left out.

    Returns
    -------
    TunedFactory
        Called with sizes it searches once, and returns a kernel to call with tensors.

    Raises
    ------
    ArgumentError
        If there is no such family, or an option does not fit.

    Examples
    --------
    >>> forward = tuned("attention", trials=8)(4096, heads=32)  # doctest: +SKIP
    >>> forward(q, k, v, out)  # doctest: +SKIP
    """
    if name not in FAMILIES:
        raise ArgumentError(f"there is no family {name!r}; families are {', '.join(FAMILIES)}.")
    family = FAMILIES[name]
    return autotune(
        family.factory, **{"configs": family.configs, "inputs": family.inputs, **options}
    )
