"""Whole compiled modules, so that a program compiled before needs neither lowering nor a compiler.

An entry holds the host code as LLVM bitcode, and of each CUDA module the binary, the source and the
launch parameters. It lies beside the cubins, in the same directory with the same bound. A module
loaded from it behaves as a module that TVM built: it can be run, inspected and exported.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warploom import hooks
from warploom.compiler.cache import CubinCache
from warploom.compiler.cache_key import CacheKey, cache_key
from warploom.compiler.callback import is_observed, observe_compilations
from warploom.compiler.invoke import Output
from warploom.compiler.module_key import module_key
from warploom.errors import CacheWarning
from warploom.runtime.modules import imported
from warploom.warn import Notice, deferred, warn

#: Environment variable that turns this cache off, and leaves that of cubins.
OPT_OUT = "WARPLOOM_MODULE_CACHE"


@dataclass(frozen=True)
class DeviceCode:
    """A CUDA module: binary, its format (``"cubin"`` or ``"ptx"``), and TVM's metadata of it."""

    binary: bytes
    format: str
    functions: str
    source: str


_recorded: contextvars.ContextVar[list[DeviceCode] | None] = contextvars.ContextVar(
    "warploom_device_code", default=None
)


def recording_create(stock: Any) -> Callable[..., Any]:
    """``ffi.Module.create.cuda`` for :func:`remembered` and for modules in parts.

    It notes the parts of a module, and leaves sources that
    :func:`warploom.compiler.parts.build_in_parts` collects uncompiled.
    """

    def create(code: bytes, format: str, functions: Any, sources: Any) -> Any:
        import tvm
        import tvm_ffi

        recorded = _recorded.get()
        if str(format) == "cuda":
            from warploom.compiler import parts  # late: what is loaded needs none of it

            source = bytes(code).decode()
            if parts.collect(source, functions, sources):
                return stock(b"", "cubin", functions, sources)
            if recorded is None:
                return stock(code, format, functions, sources)
            # As TVM does it, which keeps the binary to itself.
            code = bytes(tvm_ffi.get_global_func("tvm_callback_cuda_compile")(source))
            format, sources = parts.format_of(code), {**sources, "cuda": source}
        if recorded is not None:
            source, metadata = str(sources["cuda"]), tvm.ir.save_json(functions)
            recorded.append(DeviceCode(bytes(code), str(format), metadata, source))
        return stock(code, format, functions, sources)

    return create


def remembering_build(
    stock: Callable[..., Any], is_ours: Callable[[Any], bool]
) -> Callable[..., Any]:
    """``tvm.tirx.build`` that keeps modules with functions that ``is_ours`` takes.

    ``tvm.compile`` and ``relax.build`` call it. Modules of other functions, and for targets that
    warploom does not know, are left to TVM alone. So are those of Relax models with symbolic sizes:
    TVM numbers these by addresses, in another way in each process, and nothing would be found. The
    models themselves are kept by :mod:`warploom.compiler.executable_cache`.
    """

    @functools.wraps(stock)
    def build(mod: Any, target: Any = None, pipeline: Any = "default") -> Any:
        with deferred():
            return remembered(
                lambda: _recipe(mod, target, pipeline, is_ours),
                lambda: stock(mod, target, pipeline),
            )

    return build


def _recipe(
    mod: Any, target: Any, pipeline: Any, is_ours: Callable[[Any], bool]
) -> dict[str, Any] | None:
    """Return the inputs that decide a call of ``tvm.tirx.build``; None if it is not cached."""
    import tvm
    from tvm.target import Target

    from warploom.target.arch import ARCHS

    target = Target.current() if target is None else Target(target)
    if target is None or str(target.attrs.get("arch", "")) not in ARCHS:
        return None
    functions = [mod] if isinstance(mod, tvm.tirx.PrimFunc) else list(mod.functions.values())
    computes_shapes = any("tirx.is_host_func" in (each.attrs or {}) for each in functions)
    if computes_shapes or not any(map(is_ours, functions)):
        return None
    try:
        text = tvm.ir.save_json(mod)
    except Exception:  # of TVM, for instance for attributes that no file can hold
        return None
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {"build": digest, "target": str(target), "pipeline": str(pipeline)}


def remembered(
    recipe: Callable[[], Mapping[str, Any] | None],
    build: Callable[[], Any],
    environ: Mapping[str, str] = os.environ,
    pack: Callable[[Any, list[DeviceCode]], bytes | None] | None = None,
    load: Callable[[bytes], Any] | None = None,
) -> Any:
    """The module that ``build`` makes, from the cache if it was made before.

    Parameters
    ----------
    recipe : callable
        Returns all that decides what ``build`` does, apart from what
        :func:`warploom.compiler.module_key.module_key` knows; None if that cannot be said.
    build : callable
        Returns a ``tvm.runtime.Module``.
    environ : mapping
        The environment of the process.
    pack, load : callable, optional
        Make an entry of what ``build`` returns and the CUDA modules in it, and the inverse, where
        that is not a ``tvm.runtime.Module``. No entry is kept where ``pack`` returns None.

    Notes
    -----
    ``build`` is called, and nothing kept, while compilations are observed or the passes of TVM are;
    and within another call of this function, which keeps the whole.
    """
    cache = None if environ.get(OPT_OUT) == "0" else CubinCache.from_environment(environ)
    if cache is None or _recorded.get() is not None or is_observed():
        return build()
    ingredients = recipe()
    key = module_key(ingredients, environ) if ingredients is not None else None
    if key is None:
        return build()
    kept = cache.get(key)
    if kept is not None:
        try:
            module, notices = (load or load_module)(kept.binary), _notices(kept.log)
        except Exception as error:  # of LLVM or of TVM, of any kind: the module can be built
            warn(
                f"A module in {cache.directory} does not load ({_first_line(error)}); it is "
                "compiled again.",
                CacheWarning,
            )
        else:
            with deferred() as recorded:  # a later compilation warns again
                recorded.update(notices)
            return module
    return _build(cache, key, build, environ, pack or pack_module)


def _notices(log: str) -> dict[Notice, None]:
    """The warnings in the log of an entry."""
    return dict.fromkeys(Notice(**fields) for fields in json.loads(log))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _build(
    cache: CubinCache,
    key: CacheKey,
    build: Callable[[], Any],
    environ: Mapping[str, str],
    pack: Callable[[Any, list[DeviceCode]], bytes | None],
) -> Any:
    start = time.perf_counter()
    with _record() as devices, observe_compilations() as compilations, deferred() as notices:
        module = build()
    # Sources that include headers of the user's change without any change of the key.
    portable = all(cache_key(each.request, environ) is not None for each in compilations)
    if portable:
        entry = pack(module, devices)
        if entry is not None:
            of_program = (notice for notice in notices if notice.category != CacheWarning.__name__)
            log = json.dumps([dataclasses.asdict(notice) for notice in of_program])
            cache.put(key, Output(entry, log, time.perf_counter() - start))
    return module


@contextlib.contextmanager
def _record() -> Iterator[list[DeviceCode]]:
    devices: list[DeviceCode] = []
    token = _recorded.set(devices)
    try:
        yield devices
    finally:
        _recorded.reset(token)


def pack_module(module: Any, devices: list[DeviceCode]) -> bytes | None:
    """An entry of the cache; None if a module has other parts than host code and ``devices``."""
    kinds = [str(each.kind) for each in imported(module)]
    if str(module.kind) != "llvm" or kinds != ["cuda"] * len(devices) or not devices:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "host.bc")
        module.write_to_file(str(path), "bc")
        parts = [path.read_bytes()]
    for each in devices:
        parts += [each.binary, each.functions.encode(), each.source.encode()]
    header = {
        "sizes": [len(part) for part in parts],
        "formats": [each.format for each in devices],
    }
    return b"".join([json.dumps(header).encode(), b"\n", *parts])


def load_module(entry: bytes) -> Any:
    """The module of an entry that :func:`pack_module` made."""
    import tvm
    import tvm_ffi

    hooks.cuda_runtime().ensure_loaded()  # without a device it waits for the first module
    text, _, rest = entry.partition(b"\n")
    header, at = json.loads(text), 0
    parts = []
    for size in header["sizes"]:
        parts.append(rest[at : at + size])
        at += size
    host, *devices = parts
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "host.bc")
        path.write_bytes(host)
        module = tvm_ffi.get_global_func("ffi.Module.load_from_file.ll")(str(path), "ll")
    create = tvm_ffi.get_global_func("ffi.Module.create.cuda")
    made = []
    for i, format in enumerate(header["formats"]):
        binary, functions, source = devices[3 * i : 3 * i + 3]
        sources = {"cuda": source.decode()}
        made.append(create(binary, format, tvm.ir.load_json(functions.decode()), sources))
    first, *others = made
    module.import_module(first)
    for other in others:  # as :mod:`warploom.compiler.parts` has them
        first.import_module(other)
    return module
