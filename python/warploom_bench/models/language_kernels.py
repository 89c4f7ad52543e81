"""A language model as it is compiled: by this package, and by TVM alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warploom_bench.decoder_blocks import switched
from warploom_bench.kernels import Kernel
from warploom_bench.models.sizes import LanguageSizes

if TYPE_CHECKING:
    from tvm.runtime import Executable


def language_executable(
    sizes: LanguageSizes, gpu: str, stock: bool, cache_only: bool
) -> Executable:
    """The model, or its cache alone, as ``relax.build`` compiles it for a GPU of the table."""
    from tvm import relax
    from tvm.target import Target

    from warploom.target import cuda_target
    from warploom_bench.models.language import language_module

    target = cuda_target(gpu)
    if stock:
        # TVM's schedules for tensor cores know this name of the architecture only.
        target = Target({**dict(target.export()), "arch": "sm_90"})
    with switched("0" if stock else None):
        return relax.build(language_module(sizes, target, cache_only), target)


def language_kernel(
    sizes: LanguageSizes, gpu: str, stock: bool = False, cache_only: bool = False
) -> Kernel:
    """The same, to compile in a process of its own."""
    return Kernel(language_executable, (sizes, gpu, stock, cache_only))
