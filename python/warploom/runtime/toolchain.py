"""The CUDA toolchain: finds it, and tells TVM where it is.

TVM compiles with NVRTC by default. It takes headers from ``CUDA_PATH`` or from beside ``nvcc`` and
fails on a machine without toolkit, or where ``nvcc`` is a wrapper script. The headers are also in
wheels that warploom depends on; :func:`prepare_environment` points TVM to them.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

_OPTIONS = "TVM_CUDA_NVRTC_EXTRA_OPTS"
_RUNTIME_HEADER = "cuda_runtime.h"
#: The first header that TVM's NVRTC preamble includes; it belongs to CCCL.
_CCCL_HEADER = "cuda/std/cstdint"
#: A header that ``mma.h`` includes, with which TVM's own tensor-core kernels begin with; a wheel of
#: its own.
_WMMA_HEADER = "crt/mma.h"

#: Where TVM looks if neither ``CUDA_PATH`` nor ``PATH`` leads to a toolkit.
_DEFAULT_ROOT = Path("/usr/local/cuda")


@dataclass(frozen=True)
class Tool:
    """A compiler, assembler or disassembler, with where it is and its version (``"13.0.48"``)."""

    name: str
    path: Path
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version} ({self.path})"


@dataclass(frozen=True)
class Headers:
    """The CUDA headers that TVM hands to NVRTC.

    Attributes
    ----------
    runtime, cccl : Path
        Include directories of ``cuda_runtime.h`` and of ``cuda/std``.
    version, cccl_version : str
        Version of the CUDA runtime, such as ``"13.0"``, and of CCCL, such as ``"3.0.1"``.
    wmma : bool
        Whether kernels that include ``mma.h`` compile.
    """

    runtime: Path
    cccl: Path
    version: str
    cccl_version: str
    wmma: bool = True


@dataclass(frozen=True)
class Toolchain:
    """The tools that compile and inspect CUDA code in this process.

    Attributes
    ----------
    mode : str
        ``"nvrtc"`` or ``"nvcc"``, as ``TVM_CUDA_COMPILE_MODE`` selects.
    nvrtc, nvcc, ptxas, nvdisasm : Tool or None
        The tools that were found; only the compiler of ``mode`` is needed.
    headers : Headers or None
        None if TVM would not find them.
    """

    mode: str
    nvrtc: Tool | None
    nvcc: Tool | None
    ptxas: Tool | None
    nvdisasm: Tool | None
    headers: Headers | None

    @property
    def compiler(self) -> Tool | None:
        """The compiler that TVM calls."""
        return self.nvcc if self.mode == "nvcc" else self.nvrtc


@functools.cache
def wheel_root() -> Path | None:
    """Directory of the CUDA 13 wheels (``nvidia/cu13``), laid out like a toolkit, or None."""
    spec = importlib.util.find_spec("nvidia")
    for directory in (spec and spec.submodule_search_locations) or ():
        if (Path(directory) / "cu13" / "include" / _RUNTIME_HEADER).is_file():
            return Path(directory) / "cu13"
    return None


def _tvm_root(environ: Mapping[str, str]) -> Path | None:
    """Where TVM looks for a toolkit (``tvm.support.nvcc.find_cuda_path``, without a process)."""
    if "CUDA_PATH" in environ:
        return Path(environ["CUDA_PATH"])
    nvcc = shutil.which("nvcc", path=environ.get("PATH"))
    if nvcc:
        return Path(os.path.realpath(os.path.join(nvcc, "..", "..")))
    return _DEFAULT_ROOT if (_DEFAULT_ROOT / "bin" / "nvcc").exists() else None


def _tvm_includes(root: Path | None, environ: Mapping[str, str]) -> list[Path]:
    """Include directories that TVM's NVRTC path passes, the user's own among them."""
    folders = []
    if root is not None:
        machine = platform.machine()
        triples = ["sbsa-linux"] if machine in ("aarch64", "arm64") else []
        targets = [root / "targets" / triple for triple in (*triples, f"{machine}-linux")]
        folders = [root / "include"]
        for target in targets:
            folders += [target / "include", target / "include" / "cccl"]
    options = shlex.split(environ.get(_OPTIONS, ""))
    return folders + [Path(option[2:]) for option in options if option.startswith("-I")]


def _directory_of(header: str, directories: Iterable[Path]) -> Path | None:
    return next((d for d in directories if (d / header).is_file()), None)


def environment_additions(environ: Mapping[str, str], wheels: Path | None = None) -> dict[str, str]:
    """Environment variables that TVM's NVRTC path needs and ``environ`` lacks.

    A toolkit that TVM finds by itself and that is complete wins; so does a ``CUDA_PATH`` that the
    user set. Options that the user gave to NVRTC are kept in front of the one that is added.

    Parameters
    ----------
    environ : mapping
        The environment of the process.
    wheels : Path, optional
        Directory of the CUDA wheels, see :func:`wheel_root`.
    """
    additions = {}
    root = _tvm_root(environ)
    includes = _tvm_includes(root, environ)
    complete = all(_directory_of(header, includes) for header in (_RUNTIME_HEADER, _CCCL_HEADER))
    if "CUDA_PATH" not in environ and not complete:
        if wheels is None:
            return {}
        root = wheels
        additions["CUDA_PATH"] = str(root)
        includes = _tvm_includes(root, environ)
    if not _directory_of(_CCCL_HEADER, includes):
        homes = [home / "include" / "cccl" for home in (root, wheels) if home is not None]
        cccl = _directory_of(_CCCL_HEADER, homes)
        if cccl is not None:
            options = [environ.get(_OPTIONS, ""), shlex.quote(f"-I{cccl}")]
            additions[_OPTIONS] = " ".join(option for option in options if option)
    return additions


def prepare_environment(environ: MutableMapping[str, str] = os.environ) -> None:
    """Set the variables by which TVM finds headers, for this process and its children."""
    environ.update(environment_additions(environ, wheel_root()))


def _define(path: Path, macro: str) -> int | None:
    """Value of an integer macro in a header, or None."""
    if not path.is_file():
        return None
    match = re.search(rf"^#\s*define\s+{macro}\s+(\d+)", path.read_text("latin-1"), re.MULTILINE)
    return int(match.group(1)) if match else None


def find_headers(environ: Mapping[str, str] = os.environ) -> Headers | None:
    """The headers that TVM hands to NVRTC, or None if it would not find them."""
    includes = _tvm_includes(_tvm_root(environ), environ)
    runtime, cccl = (_directory_of(header, includes) for header in (_RUNTIME_HEADER, _CCCL_HEADER))
    if runtime is None or cccl is None:
        return None
    cudart = _define(runtime / "cuda_runtime_api.h", "CUDART_VERSION") or 0
    release = _define(cccl / "cuda/std/__cccl/version.h", "CCCL_VERSION") or 0
    return Headers(
        runtime=runtime,
        cccl=cccl,
        version=f"{cudart // 1000}.{cudart % 1000 // 10}",
        cccl_version=f"{release // 1000000}.{release // 1000 % 1000}.{release % 1000}",
        wmma=_directory_of(_WMMA_HEADER, includes) is not None,
    )


def find_nvrtc() -> Tool | None:
    """The NVRTC library that cuda-bindings loads, or None."""
    try:
        from cuda.bindings import nvrtc
        from cuda.pathfinder import load_nvidia_dynamic_lib

        path = Path(load_nvidia_dynamic_lib("nvrtc").abs_path)
        status, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError, OSError):
        return None
    if int(status) != 0:
        return None
    return Tool("nvrtc", path, _wheel_version(path) or f"{major}.{minor}")


def _wheel_version(path: Path) -> str | None:
    """Full version of NVRTC if ``path`` belongs to the wheel; the library tells only two parts."""
    root = wheel_root()
    if root is None or root not in path.parents:
        return None
    try:
        return importlib.metadata.version("nvidia-cuda-nvrtc")
    except importlib.metadata.PackageNotFoundError:
        return None


def find_executable(name: str, environ: Mapping[str, str] = os.environ) -> Tool | None:
    """A program of the CUDA toolkit, or None.

    ``PATH`` comes first, as TVM starts ``nvcc`` from there; then ``CUDA_PATH``, the wheels and
    ``/usr/local/cuda``.
    """
    homes = [environ.get("CUDA_PATH"), wheel_root(), _DEFAULT_ROOT]
    folders = [environ.get("PATH", ""), *(str(Path(home) / "bin") for home in homes if home)]
    path = shutil.which(name, path=os.pathsep.join(folders))
    if path is None:
        return None
    try:
        text = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=30, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"\bV(\d+(?:\.\d+)+)", text)
    return Tool(name, Path(path), version.group(1) if version else "unknown")


def compile_mode(environ: Mapping[str, str] = os.environ) -> str:
    """``"nvrtc"`` or ``"nvcc"``: the compiler that TVM uses."""
    return environ.get("TVM_CUDA_COMPILE_MODE", "nvrtc").lower()


def compiler_fingerprint(environ: Mapping[str, str] = os.environ) -> str:
    """Names the compiler and the headers by version, without a path of this machine.

    Two machines with equal fingerprints compile equal source to equal cubins, so that it is a
    part of a cache's key. NVRTC mode starts no process.
    """
    mode = compile_mode(environ)
    compiler = find_executable("nvcc", environ) if mode == "nvcc" else find_nvrtc()
    parts = [f"{compiler.name} {compiler.version}" if compiler else f"no {mode}"]
    headers = find_headers(environ) if mode != "nvcc" else None
    if headers:
        parts += [f"cudart {headers.version}", f"cccl {headers.cccl_version}"]
    return ", ".join(parts)


def find_toolchain(environ: Mapping[str, str] = os.environ) -> Toolchain:
    """Describe the toolchain of this process; starts ``nvcc`` and others to ask their versions."""
    return Toolchain(
        mode=compile_mode(environ),
        nvrtc=find_nvrtc(),
        nvcc=find_executable("nvcc", environ),
        ptxas=find_executable("ptxas", environ),
        nvdisasm=find_executable("nvdisasm", environ),
        headers=find_headers(environ),
    )
