"""The key of a cached binary: everything that decides it, nothing of this machine.

A key has two parts. The *content* is a hash of the source, the architecture, the options and the
version of TVM; the *compiler* names the compiler and its headers by version. A machine with a
compiler asks for both, one without takes the binary of any compiler.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from warploom.compiler.invoke import LEAN_INCLUDE, Request, lean_enabled
from warploom.runtime.toolchain import compiler_fingerprint

#: Part of every key; raise it when the same request may give another binary.
_FORMAT = 2

#: Variables that TVM or nvcc turn into options. The value says whether to drop include paths:
#: they differ between machines and lead to headers whose version the compiler part holds.
OPTION_VARIABLES: Mapping[str, bool] = {
    "TVM_CUDA_PTXAS_REG_LEVEL": False,
    "TVM_CUDA_PTXAS_EXTRA_OPTS": False,
    "TVM_CUDA_NVRTC_EXTRA_OPTS": True,
    "TVM_CUDA_NVCC_NO_FAST_MATH": False,
    "TVM_KERNEL_DEBUG": False,
    "NVCC_PREPEND_FLAGS": True,
    "NVCC_APPEND_FLAGS": True,
}
#: Variables that decide which compiler and headers are found.
_TOOLCHAIN_VARIABLES = ("TVM_CUDA_COMPILE_MODE", "CUDA_PATH", "TVM_CUDA_NVRTC_EXTRA_OPTS", "PATH")

#: Headers that belong to CUDA or to the C++ library; any other may change behind the key.
_KNOWN_HEADER = re.compile(
    r"(cuda|cub|thrust|nv)/|cu\w+\.h$|cooperative_groups|(math_constants|mma)\.h$|[a-z_]+$"
)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)


@dataclass(frozen=True)
class CacheKey:
    """File name of a cached binary in two parts, both hexadecimal.

    Attributes
    ----------
    content : str
        SHA-256 of the request, the options and the version of TVM.
    compiler : str or None
        Start of the SHA-256 of the compiler's fingerprint; None on a machine without compiler.
    """

    content: str
    compiler: str | None


def cache_key(request: Request, environ: Mapping[str, str] = os.environ) -> CacheKey | None:
    """The key of a request, or None if its result must not be kept.

    It is not kept if the source includes headers that are neither CUDA's nor the C++ library's,
    because the key would not notice when they change; nor if TVM is asked to dump files.
    """
    if "TVM_KERNEL_DUMP" in environ or not is_self_contained(request.source):
        return None
    ingredients = {
        "format": _FORMAT,
        "source": request.source,
        "arch": request.arch,
        "mode": request.mode,
        "binary": request.format,
        "options": portable_options(environ),
        "lean": _lean_headers() if request.mode == "nvrtc" and lean_enabled(environ) else None,
        "tvm": distribution_version("apache-tvm"),
    }
    text = json.dumps(ingredients, sort_keys=True)
    return CacheKey(hashlib.sha256(text.encode()).hexdigest(), compiler_part(environ))


def compiler_part(environ: Mapping[str, str] = os.environ) -> str | None:
    """The compiler as :class:`CacheKey` names it."""
    return _compiler(tuple((name, environ.get(name)) for name in _TOOLCHAIN_VARIABLES))


def is_self_contained(source: str) -> bool:
    """Whether the source includes only headers of CUDA and of the C++ library."""
    return all(_KNOWN_HEADER.match(header) for header in _INCLUDE.findall(source))


def portable_options(environ: Mapping[str, str]) -> dict[str, list[str]]:
    """The compiler options that environment variables ask for, without include paths."""
    options = {}
    for name, drop_includes in OPTION_VARIABLES.items():
        try:
            tokens = shlex.split(environ.get(name, ""))
        except ValueError:  # an open quotation, which its reader may understand or reject
            tokens = [environ[name]]
        options[name] = _without_includes(tokens) if drop_includes else tokens
    return options


def _without_includes(tokens: list[str]) -> list[str]:
    kept = []
    rest = iter(tokens)
    for token in rest:
        if token in ("-I", "-isystem", "--include-path", "--system-include"):
            next(rest, None)
        elif not token.startswith(("-I", "--include-path=", "-isystem=", "--system-include=")):
            kept.append(token)
    return kept


@functools.cache
def distribution_version(distribution: str) -> str:
    """Version of an installed distribution; reading it takes milliseconds, so it is kept."""
    return importlib.metadata.version(distribution)


@functools.cache
def _lean_headers() -> str:
    """Hash of the lean headers, which take part in every NVRTC compilation."""
    digest = hashlib.sha256()
    headers = (path for path in LEAN_INCLUDE.rglob("*") if path.is_file() and path.suffix != ".md")
    for path in sorted(headers):
        digest.update(path.relative_to(LEAN_INCLUDE).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


@functools.lru_cache(maxsize=16)
def _compiler(toolchain: tuple[tuple[str, str | None], ...]) -> str | None:
    environ = {name: value for name, value in toolchain if value is not None}
    fingerprint = compiler_fingerprint(environ)
    if fingerprint.startswith("no "):
        return None
    return hashlib.sha256(fingerprint.encode()).hexdigest()[:16]
