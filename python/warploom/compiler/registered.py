"""Whether somebody takes part in compilations whose code no cache key would notice to change.

TVM lets anyone register op schedules, generators of intrinsics, pipelines and hooks. Those that are
there when warploom is loaded, and those of TVM and warploom, change with versions and files that
are in a key (:mod:`warploom.compiler.module_key`); later functions may be anything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

#: By identity, with the object, whose address is therefore never another's.
_trusted: dict[int, Any] = {}


@contextlib.contextmanager
def trusted(all_before: bool = False) -> Iterator[None]:
    """Trust functions that the ``with`` block registers; with ``all_before``, also earlier ones."""
    before = set() if all_before else {id(function) for _, function in _registered()}
    yield
    _trusted.update(
        {id(function): function for _, function in _registered() if id(function) not in before}
    )


def foreign() -> str | None:
    """The name of something that was registered and is not :func:`trusted`, or None."""
    import tvm_ffi

    rewrite = "tvm_callback_cuda_postproc"  # of the CUDA source
    if tvm_ffi.get_global_func(rewrite, allow_missing=True) is not None:
        return rewrite
    return next((name for name, function in _registered() if id(function) not in _trusted), None)


def _registered() -> Iterator[tuple[str, Any]]:
    from tvm.backend.cuda.codegen.registry import CODEGEN_REGISTRY
    from tvm.tirx import compilation_pipeline
    from tvm.tirx.operator.tile_primitive import dispatcher

    for name, factory in compilation_pipeline.PIPELINE_MAP.items():
        if factory.__module__.partition(".")[0] not in ("tvm", "warploom"):  # some come late
            yield name, factory
    yield from CODEGEN_REGISTRY.items()
    for (op, _), cases in dispatcher._DISPATCH_TABLE.items():
        for case in cases:
            yield f"{op.name} {case.variant}", case.impl
