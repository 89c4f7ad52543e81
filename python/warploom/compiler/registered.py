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
#: The function of TVM that compiles CUDA source, and warploom's.
_COMPILER = "tvm_callback_cuda_compile"
_compiler: dict[str, Any] = {}
#: Legalizations of operators of Relax, by name.
_legalizations: dict[str, Any] = {}


@contextlib.contextmanager
def trusted(all_before: bool = False) -> Iterator[None]:
    """Trust functions that the ``with`` block registers; with ``all_before``, also earlier ones."""
    before = set() if all_before else {id(function) for _, function in _registered()}
    yield
    _trusted.update(
        {id(function): function for _, function in _registered() if id(function) not in before}
    )


def note_compiler() -> None:
    """Trust the function that compiles CUDA source, as it is registered now."""
    _compiler["function"] = _compiler_now()


def has_own_compiler() -> bool:
    """Whether CUDA source is compiled by warploom, and by no function of a user."""
    current = _compiler_now()
    return current is not None and current == _compiler.get("function")


def _compiler_now() -> Any:
    import tvm_ffi

    return tvm_ffi.get_global_func(_COMPILER, allow_missing=True)


def note_legalizations() -> None:
    """Trust the functions by which operators of Relax are made PrimFuncs, as they are now."""
    _legalizations.update(_legalizations_now())


def changed_legalization() -> str | None:
    """The name of an operator of Relax that a user has given another legalization, or None."""
    current = _legalizations_now()
    names = (name for name in current if current[name] != _legalizations.get(name))
    return next(names, None)


def _legalizations_now() -> dict[str, Any]:
    from tvm.ir import Op

    names = [name for name in map(str, Op.list_op_names()) if name.startswith("relax.")]
    found = {name: Op.get(name).get_attr("FLegalize") for name in names}
    return {name: function for name, function in found.items() if function is not None}


def foreign() -> str | None:
    """The name of something that was registered and is not :func:`trusted`, or None."""
    import tvm_ffi

    rewrite = "tvm_callback_cuda_postproc"  # of the CUDA source
    if tvm_ffi.get_global_func(rewrite, allow_missing=True) is not None:
        return rewrite
    if not has_own_compiler():
        return _COMPILER
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
