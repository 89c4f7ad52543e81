"""Small sizes of a model on the emulator, or on a GPU: right or wrong, no times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import tvm

from warploom.target import cuda_target
from warploom_bench.check import deviation
from warploom_bench.kernels import Kernels
from warploom_bench.models.language import parameter_shapes
from warploom_bench.models.language_kernels import language_kernel
from warploom_bench.models.measure_language import ALLOWED
from warploom_bench.models.parameters import NumpyArrays, random_parameters
from warploom_bench.models.reference import Reference
from warploom_bench.models.results import Result
from warploom_bench.models.session import Session
from warploom_bench.models.sizes import LANGUAGE

#: All decode steps but the first are CUDA graphs.
_PROMPTS, _DECODES = (19, 8), 2


def language_results(
    name: str, weights: str, gpu: str, kernels: Kernels, seed: int = 0
) -> Iterator[Result]:
    """Prefills of two prompts and decode steps behind them, compared with float64."""
    sizes = replace(LANGUAGE[name].tiny(), weights=weights)
    rng = np.random.default_rng(seed)
    shapes = parameter_shapes(sizes, cuda_target(gpu))
    parameters = random_parameters(NumpyArrays(rng), shapes)
    reference, device = Reference(sizes, parameters), tvm.cuda(0)

    def placed(array: np.ndarray) -> Any:
        return tvm.runtime.tensor(array, device)

    module = kernels.module(language_kernel(sizes, gpu))
    session = Session(module, {key: placed(one) for key, one in parameters.items()}, device)
    session.cache.open(len(_PROMPTS), max(_PROMPTS) + _DECODES, max(_PROMPTS))
    known = []
    for number, length in enumerate(_PROMPTS):
        known.append(rng.integers(0, sizes.vocabulary, length, "int32"))
        found = session.prefill(number, placed(known[-1][None])).numpy()
        yield _compared(name, f"prefill-{length}", weights, found, known[-1:], reference)
    for step in range(_DECODES):
        ids = rng.integers(0, sizes.vocabulary, (len(known), 1), "int32")
        known = [np.concatenate(pair) for pair in zip(known, ids, strict=True)]
        found = session.decode(range(len(known)), placed(ids)).numpy()
        yield _compared(name, f"decode-{len(known)}, step {step}", weights, found, known, reference)


def _compared(
    name: str, row: str, weights: str, found: np.ndarray, known: list[np.ndarray],
    reference: Reference,
) -> Result:  # fmt: skip
    result = Result(name, row, allowed=ALLOWED[weights])
    wanted = np.stack([reference.logits(ids) for ids in known])
    result.ours.error = deviation(found[:, 0].astype(np.float64), wanted).relative
    return result


def exported_results(name: str, gpu: str, seed: int = 0) -> Iterator[Result]:
    """A small model that PyTorch exports, compared with PyTorch in float64."""
    import torch

    from warploom_bench.models.exported import EXPORTED, built, captured, made_with, relax_module
    from warploom_bench.models.measure_exported import ALLOWED as ALLOWED_OF_EXPORTED

    known = EXPORTED[name]
    module, inputs = made_with(known.small, seed), known.random(2, small=True)
    run = built(relax_module(module, inputs), gpu, False)
    halves = [x.half() if x.is_floating_point() else x for x in inputs]
    arrays = [tvm.runtime.tensor(x.numpy(), tvm.cuda(0)) for x in halves]
    found = captured(run, arrays).numpy().astype(np.float64)
    with torch.no_grad():
        wide = (x.double() if x.is_floating_point() else x for x in halves)
        wanted = module.double()(*wide).numpy()
    result = Result(name, "forward-2", allowed=ALLOWED_OF_EXPORTED)
    result.ours.error = deviation(found, wanted).relative
    yield result
