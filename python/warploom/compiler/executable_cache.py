"""Whole Relax models, so that a model compiled before needs no pass at all.

An entry is that of the module with the model's functions (:mod:`warploom.compiler.module_cache`)
behind the executable of the virtual machine. The key is of the model as it comes from its author:
its functions, sizes known and symbolic, constants and parameters. TVM's passes number symbolic
sizes by addresses; no such pass has run there.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import math
import os
import struct
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from warploom.compiler.module_cache import (
    DeviceCode,
    load_module,
    pack_module,
    remembered,
)
from warploom.compiler.registered import changed_legalization
from warploom.target.dtypes import bits_of
from warploom.warn import deferred

#: Bytes of constants and parameters from which a model is compiled anew: to hash and to keep them
#: costs more than the cache is for. Weights are arguments of a model's functions, as a rule.
MOST_BYTES = 256 << 20
#: With this variable, what a build measures decides.
_MEASURES = "WARPLOOM_AUTOTUNE"
#: Bytes of the executable of the virtual machine, in front of it.
_PREFIX = struct.Struct("<Q")


def remembering_relax_build(stock: Callable[..., Any]) -> Callable[..., Any]:
    """``tvm.relax.build`` that keeps its executables.

    ``tvm.compile`` calls it. Kept are models that TVM's or warploom's pipelines compile, which are
    named by strings, for targets that warploom knows.
    """
    signature = inspect.signature(stock)

    @functools.wraps(stock)
    def build(*args: Any, **kwargs: Any) -> Any:
        def build_executable() -> Any:
            return stock(*args, **kwargs)

        call = signature.bind(*args, **kwargs)  # raises as the call would
        call.apply_defaults()
        with deferred():
            return remembered(
                lambda: _recipe(**call.arguments), build_executable, pack=_pack, load=_load
            )

    return build


def _recipe(
    mod: Any, target: Any, params: Any, relax_pipeline: Any, tir_pipeline: Any, exec_mode: str,
    **others: Any,
) -> dict[str, Any] | None:  # fmt: skip
    """Return the inputs that decide a call of ``relax.build``; None if it is not cached."""
    import tvm
    from tvm.target import Target

    from warploom.target.arch import ARCHS

    target = Target.current() if target is None else Target(target)
    if target is None or str(target.attrs.get("arch", "")) not in ARCHS:
        return None
    if not (_is_named(relax_pipeline) and (tir_pipeline is None or isinstance(tir_pipeline, str))):
        return None
    if not isinstance(mod, tvm.IRModule) or _size(mod, params or {}) > MOST_BYTES:
        return None
    if os.environ.get(_MEASURES, "0") != "0":
        return None
    if changed_legalization() is not None or _has_database():
        return None
    try:
        text = tvm.ir.save_json(mod)
    except Exception:  # of TVM, for instance for attributes that no file can hold
        return None
    return {
        "relax": hashlib.sha256(text.encode()).hexdigest(),
        "target": str(target),
        "host": str(target.host),
        "current": str(Target.current()),
        "parameters": _digests(params or {}),
        "pipelines": [str(relax_pipeline), str(tir_pipeline)],
        "others": [exec_mode, sorted((name, repr(value)) for name, value in others.items())],
    }


def _is_named(pipeline: Any) -> bool:
    """Whether a pipeline of Relax is one of TVM or warploom, by its name, or none."""
    from tvm.relax.pipeline import PIPELINE_MAP

    if pipeline is None:
        return True
    factory = PIPELINE_MAP.get(pipeline) if isinstance(pipeline, str) else None
    return getattr(factory, "__module__", "").partition(".")[0] in ("tvm", "warploom")


def _has_database() -> bool:
    """Whether there is a database of MetaSchedule, which some pipelines ask."""
    from tvm.s_tir import meta_schedule

    return meta_schedule.Database.current() is not None


def _size(mod: Any, params: Mapping[str, Any]) -> int:
    """Bytes of a model's constants and parameters."""
    import tvm_ffi
    from tvm.ir import GenericConst

    total = sum(_bytes(tensor) for value in params.values() for tensor in _tensors(value))

    def visit(constant: GenericConst) -> None:
        nonlocal total
        total += _bytes(constant.value)

    for function in mod.functions.values():
        tvm_ffi.structural_walk(function, (GenericConst, visit))
    return total


def _bytes(tensor: Any) -> int:
    dtype = str(tensor.dtype)
    return math.prod(map(int, tensor.shape)) * (8 if dtype == "bool" else bits_of(dtype)) // 8


def _tensors(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _digests(params: Mapping[str, Any]) -> dict[str, list[list[Any]]]:
    return {
        str(name): [
            [str(each.dtype), [int(extent) for extent in each.shape],
             hashlib.sha256(each.numpy().tobytes()).hexdigest()]
            for each in _tensors(value)
        ]
        for name, value in params.items()
    }  # fmt: skip


def _pack(executable: Any, devices: list[DeviceCode]) -> bytes | None:
    """An entry; None if an executable has other parts than one module that can be kept."""
    module = executable.mod
    if str(module.kind) != "relax.VMExecutable" or len(module.imports) != 1:
        return None
    functions = pack_module(module.imports[0], devices)
    if functions is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "vm.bin")
        module.write_to_file(str(path), "bin")
        own = path.read_bytes()
    return _PREFIX.pack(len(own)) + own + functions


def _load(entry: bytes) -> Any:
    """The executable of an entry that :func:`_pack` made."""
    import tvm_ffi
    from tvm.relax.vm_build import VMExecutable

    (size,) = _PREFIX.unpack_from(entry)
    end = _PREFIX.size + size
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "vm.bin")
        path.write_bytes(entry[_PREFIX.size : end])
        name = "ffi.Module.load_from_file.relax.VMExecutable"
        module = tvm_ffi.get_global_func(name)(str(path))
    module.import_module(load_module(entry[end:]))
    return VMExecutable(module)
