"""The checks of ``warploom doctor``: a function for each row, which neither prints nor raises."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import os
import platform
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from warploom._version import PIP_FIX, REQUIREMENTS, check_requirements
from warploom.errors import ToolchainError, WarploomError
from warploom.runtime.toolchain import Toolchain

if TYPE_CHECKING:
    from warploom.runtime.driver import Driver

#: States of a row, the better first.
STATES = ("ok", "warn", "fail")

#: Major version of CUDA that TVM's runtime is linked with.
CUDA_MAJOR = 13


@dataclass(frozen=True)
class Row:
    """The result of one check.

    Attributes
    ----------
    name : str
        The part that was checked.
    state : str
        ``"ok"``; ``"warn"``: work is possible without it; ``"fail"``: no kernel can be compiled.
    finding : str
        The finding.
    fix : str
        One sentence, unless all is well: the fix, or the features that do not work without it.
    """

    name: str
    state: str
    finding: str
    fix: str = ""

    def __post_init__(self) -> None:
        assert self.state in STATES
        assert (self.state == "ok") == (not self.fix), "a row has a fix if and only if it is not ok"


@dataclass(frozen=True)
class Device:
    """A GPU, with its compute capability as in ``"9.0"``."""

    name: str
    compute_version: str


def check_python() -> Row:
    """Versions before 3.11 cannot install warploom, so that there is nothing to judge."""
    return Row("python", "ok", f"{platform.python_version()} ({platform.machine()})")


def check_distribution(
    name: str,
    needed: bool = True,
    version_of: Callable[[str], str] = importlib.metadata.version,
    others: Sequence[str] = (),
    install: str = "",
) -> Row:
    """A distribution that is there; without it work is impossible if it is ``needed``.

    Parameters
    ----------
    others : sequence of str
        Distributions that bring the same.
    install : str
        The distribution that pip installs, by default the one of the module.
    """
    for distribution in (name, *others):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return Row(
                name,
                "ok",
                version_of(distribution) + (f" ({distribution})" if distribution != name else ""),
            )
    state = "fail" if needed else "warn"
    return Row(name, state, "not installed", f"Run: pip install {install or name}")


def check_tvm(version_of: Callable[[str], str] = importlib.metadata.version) -> Row:
    """TVM and tvm_ffi of versions that work together with warploom."""
    versions = []
    for name in REQUIREMENTS:
        try:
            versions.append(f"{name} {version_of(name)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"no {name}")
    try:
        check_requirements(version_of)
    except ToolchainError:
        return Row("tvm", "fail", ", ".join(versions), f"Run: {PIP_FIX}")
    return Row("tvm", "ok", ", ".join(versions))


def check_cache(environ: Mapping[str, str]) -> Row:
    """The folder of compiled kernels and modules: where it is, its size, who may write to it."""
    from warploom.compiler.cache import CubinCache
    from warploom.runtime.cache_folder import refusal

    try:
        cache = CubinCache.from_environment(environ)
    except WarploomError as error:
        return Row("cache", "warn", "off", str(error))
    if cache is None:
        return Row("cache", "ok", "off (WARPLOOM_CACHE=0): every kernel is compiled each time")
    folder = Path(cache.directory).absolute()
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    finding = f"{folder}, not there yet"
    if there == folder and there.is_dir():
        files = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
        rights = stat.filemode(folder.stat().st_mode)
        finding = f"{folder}, {len(files)} files, {sum(files) / 2**20:.1f} MiB, {rights}"
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return Row(
            "cache",
            "warn",
            f"{finding}; {there} cannot be written",
            "What it lacks is compiled each time; set WARPLOOM_CACHE_DIR to a folder of your own.",
        )
    reason = refusal(folder)
    if reason is not None:
        return Row("cache", "warn", f"{finding}: it is not used", reason)
    return Row("cache", "ok", finding)


def check_native(load: Callable[[], object]) -> Row:
    """The native library is built, loads and has the version of the package."""
    try:
        load()
    except ToolchainError as error:
        return Row("native library", "fail", "not usable", str(error))
    return Row("native library", "ok", "built")


def check_compiler(toolchain: Toolchain) -> Row:
    """The compiler that TVM calls exists and is of the major version that the headers have."""
    if toolchain.mode not in ("nvrtc", "nvcc"):
        return Row(
            "compiler",
            "fail",
            f"TVM_CUDA_COMPILE_MODE={toolchain.mode}",
            "Unset TVM_CUDA_COMPILE_MODE or set it to nvrtc or nvcc.",
        )
    if toolchain.compiler is None:
        fix = {
            "nvrtc": "Run: pip install 'cuda-python>=13.0,<14' 'nvidia-cuda-nvrtc>=13.0,<14'",
            "nvcc": "Unset TVM_CUDA_COMPILE_MODE to compile with NVRTC, or put nvcc on PATH.",
        }[toolchain.mode]
        return Row("compiler", "fail", f"no {toolchain.mode}", fix)
    return Row("compiler", "ok", str(toolchain.compiler))


def check_headers(toolchain: Toolchain) -> Row:
    """The CUDA headers that NVRTC needs, of its own major version."""
    if toolchain.mode == "nvcc":
        return Row("headers", "ok", "those of nvcc")
    if toolchain.headers is None:
        return Row(
            "headers",
            "fail",
            "TVM finds none",
            "Unset CUDA_PATH and run: pip install 'nvidia-cuda-runtime>=13.0,<14' "
            "'nvidia-cuda-cccl>=13.0,<14'",
        )
    headers = toolchain.headers
    finding = f"CUDA {headers.version}, CCCL {headers.cccl_version} ({headers.runtime})"
    compiler = toolchain.compiler
    if compiler and compiler.version.split(".")[0] != headers.version.split(".")[0]:
        return Row(
            "headers",
            "warn",
            finding,
            f"NVRTC is {compiler.version}; unset CUDA_PATH, or set it to a toolkit of CUDA "
            f"{compiler.version.split('.')[0]}.",
        )
    if not headers.wmma:
        return Row(
            "headers",
            "warn",
            f"{finding}, without crt/mma.h",
            "TVM's own tensor-core kernels do not compile; run: pip install 'nvidia-cuda-crt>=13.0"
            ",<14'",
        )
    return Row("headers", "ok", finding)


def check_optional_tool(toolchain: Toolchain, name: str, without: str) -> Row:
    """A tool that is only needed for some features, which ``without`` names."""
    tool = getattr(toolchain, name)
    if tool is None:
        return Row(name, "warn", "not found", without)
    return Row(name, "ok", f"{tool.version} ({tool.path})")


def check_driver(driver: Driver | None) -> Row:
    """The CUDA driver, or the library in its place."""
    if driver is None or driver.kind == "none":
        reason = driver.detail if driver else "TVM has no compiler in it"
        return Row(
            "driver",
            "fail",
            f"none: {reason}",
            "Without it TVM keeps CUDA source and compiles nothing; install an NVIDIA driver, or "
            "build warploom's native library and unset WARPLOOM_NO_DRIVER_STUB.",
        )
    if driver.kind == "no-device":
        return Row(
            "driver",
            "warn",
            "none; compilation uses warploom's driver without devices",
            "Kernels can be compiled; without an NVIDIA driver only the emulator runs them.",
        )
    if driver.kind == "emulator":
        return Row("driver", "ok", f"warploom's emulator ({driver.detail})")
    finding = f"{driver.detail}, CUDA {driver.cuda_version}"
    if int(driver.cuda_version.split(".")[0]) < CUDA_MAJOR:
        return Row(
            "driver",
            "warn",
            finding,
            f"TVM's CUDA runtime is of version {CUDA_MAJOR} and finds no GPU with this driver; "
            f"install a driver of CUDA {CUDA_MAJOR} or later.",
        )
    return Row("driver", "ok", finding)


def check_device(device: Device | None) -> Row:
    """A GPU that has the instructions that warploom uses."""
    if device is None:
        return Row(
            "GPU",
            "warn",
            "none",
            'Kernels can be compiled, with the target {"kind": "cuda", "arch": "sm_90a"}, but not '
            "run.",
        )
    finding = f"{device.name}, compute capability {device.compute_version}"
    if device.name.startswith("warploom emulator"):
        return Row("GPU", "warn", f"none; {finding}", "Kernels run on the CPU.")
    if device.compute_version != "9.0":
        return Row("GPU", "warn", finding, "warploom's kernels run on 9.0 (H100, H200, GH200).")
    return Row("GPU", "ok", f"{finding}, arch sm_90a")


def check_emulator(
    driver: Driver | None,
    requested: bool,
    find_libraries: Callable[[], object],
) -> Row:
    """The emulated devices: whether they are built, and whether TVM runs kernels on them."""
    from warploom.runtime.emulator_libraries import ARCHS, first_arch

    try:
        find_libraries()
    except ToolchainError as error:
        return Row("emulator", "warn", "not built", str(error))
    if driver is not None and driver.kind == "emulator":
        first = first_arch()
        order = [first, *(arch for arch in ARCHS if arch != first)]
        return Row(
            "emulator",
            "warn",
            f"in use: tvm.cuda(0) is {order[0]} and tvm.cuda(1) is {order[1]}, on this CPU",
            "Times mean nothing; unset WARPLOOM_EMULATOR to use a GPU.",
        )
    if requested:
        return Row(
            "emulator",
            "warn",
            "not in use, although WARPLOOM_EMULATOR=1",
            "The row of the driver says why.",
        )
    return Row("emulator", "ok", "built; `warploom emulate` or WARPLOOM_EMULATOR=1 uses it")
