"""All families of the corpus, and the modules that their kernels are put into."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.emulator.golden import (
    asynchronous,
    comparison,
    conversion,
    floating,
    integer,
    matrix,
    memory,
    tensor,
    tensor_modes,
    tensor_replace,
    warp,
    warp_masks,
    wgmma,
    wmma,
)
from tests.emulator.golden.case import Case

FAMILIES: dict[str, Callable[[], Iterator[Case]]] = {
    "integer": integer.arithmetic,
    "bits": integer.bits,
    "float": floating.single_and_double,
    "approximate": floating.approximate,
    "half": floating.half,
    "convert": conversion.conversions,
    "compare": comparison.comparisons,
    "memory": memory.loads_and_stores,
    "atomic": memory.atomics,
    "warp": warp.warps,
    "warp_masks": warp_masks.masks,
    "warp_meetings": warp_masks.meetings,
    "matrix": matrix.matrices,
    "mma": matrix.mmas,
    "mma_sparse": matrix.sparse_mmas,
    "mma_quarter": matrix.quarters,
    "wmma": wmma.products,
    "wgmma": wgmma.layouts,
    "wgmma_sums": wgmma.sums,
    "wgmma_sparse": wgmma.sparse,
    "tensor_load": tensor.unique_loads,
    "tensor_store": tensor.stores,
    "tensor_probe": tensor.probes,
    "tensor_im2col": tensor_modes.im2col,
    "tensor_interleave": tensor_modes.interleaved,
    "tensor_replace": tensor_replace.replacements,
    "copy": asynchronous.copies,
    "cluster": asynchronous.clusters,
    "barrier": asynchronous.barriers,
}


def family(name: str) -> list[Case]:
    """The cases of a family in their order, which is part of the recording."""
    cases = list(FAMILIES[name]())
    names = [case.name for case in cases]
    if len(set(names)) != len(names):
        twice = sorted({n for n in names if names.count(n) > 1})
        raise ValueError(f"family {name} has cases of the same name: {twice}")
    return cases


def module(cases: list[Case]) -> str:
    """PTX with one kernel for each case: kernel0, kernel1, ..."""
    return "\n".join(case.entry(f"kernel{i}") for i, case in enumerate(cases))
