"""Programs that know nothing of warploom get the emulator in the place of the CUDA driver.

Whoever calls ``libcuda.so.1`` or ``libcudart.so.13`` finds the emulator's libraries, and compilers
that would make machine code for a GPU are asked for PTX.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warploom.emulator.settings import Settings
from warploom.errors import WarploomError
from warploom.runtime.emulator_libraries import FIRST_ARCH, OPT_IN, find_libraries

#: Environment variable by which the emulator prints the reason of each failure.
LOG = "WARPLOOM_EMULATOR_LOG"
#: Environment variable by which programs that contain the CUDA runtime get the emulator's.
STATIC = "WARPLOOM_EMULATOR_STATIC"

#: What stands in for ``ptxas``: it passes PTX on, for a driver that executes PTX.
_PTXAS = """#!/bin/sh
last= input= output=
for word in "$@"; do
  case "$word" in
    --version)
      echo "warploom emulator, in the place of ptxas"
      echo "Cuda compilation tools, release 13.0, V13.0.88"
      exit 0 ;;
    *.ptx) input="$word" ;;
  esac
  [ "$last" = -o ] && output="$word"
  last="$word"
done
exec cp "$input" "$output"
"""


def environment(folder: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of a process in which every client finds the emulator.

    Parameters
    ----------
    folder : Path
        An empty folder that exists as long as the process: for links to the libraries and for
        what stands in for ``ptxas``.
    environ : mapping

    Raises
    ------
    ToolchainError
        If the libraries have not been built.
    """
    cuda, cudart = find_libraries()
    for name, library in (
        ("libcuda.so.1", cuda),
        ("libcuda.so", cuda),
        ("libcudart.so.13", cudart),
    ):
        (folder / name).symlink_to(library.resolve())
    ptxas = folder / "ptxas"
    ptxas.write_text(_PTXAS)
    ptxas.chmod(0o755)
    return {
        **environ,
        OPT_IN: "1",
        LOG: environ.get(LOG, "1"),
        STATIC: "1",
        "LD_LIBRARY_PATH": _joined(str(folder), environ.get("LD_LIBRARY_PATH")),
        # Triton, whose compiled kernels have to be others than those for a GPU: its cache has the
        # version of ptxas in its keys.
        "TRITON_LIBCUDA_PATH": str(folder),
        "TRITON_PTXAS_PATH": str(ptxas),
        "TRITON_PTXAS_BLACKWELL_PATH": str(ptxas),
        # CuPy: PTX, and no kernels of libraries that are machine code only.
        "CUPY_COMPILE_WITH_PTX": "1",
        "CUPY_ACCELERATORS": "",
    }


def program_environment(
    folder: Path, settings: Settings, arch: str | None, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The environment of an executable: the libraries are loaded before its own.

    Raises
    ------
    WarploomError
        If the settings count operations or execute several schedules, which a program cannot show.
    """
    if settings.report or settings.explore:
        raise WarploomError("--report and --explore are for Python scripts; leave them out.")
    result = environment(folder, environ)
    result["LD_PRELOAD"] = _joined(*map(str, find_libraries()), environ.get("LD_PRELOAD"))
    result["WARPLOOM_EMULATOR_CHECK"] = str(int(settings.checks))
    result["WARPLOOM_EMULATOR_SEED"] = str(settings.seed)
    result["WARPLOOM_EMULATOR_SCHEDULE"] = settings.schedule
    if arch is not None:
        result[FIRST_ARCH] = arch
    return result


def _joined(*paths: str | None) -> str:
    return ":".join(path for path in paths if path)


def is_program(file: Path) -> bool:
    """Whether a file is an executable of the system, by its first bytes."""
    with file.open("rb") as stream:
        return stream.read(4) == b"\x7fELF"


def _hide_linker() -> None:
    """NVIDIA's linker makes machine code; where it is not found, clients link with the driver."""
    try:
        from cuda import pathfinder
    except ImportError:  # no client uses it, either
        return
    load = pathfinder.load_nvidia_dynamic_lib

    def load_others(name: str) -> Any:
        if name == "nvJitLink":
            raise pathfinder.DynamicLibNotFoundError(
                "nvJitLink is not used: the emulator executes PTX"
            )
        return load(name)

    pathfinder.load_nvidia_dynamic_lib = load_others


def prepare_process() -> None:
    """Prepare a Python process, whose emulator is enabled, for other clients than TVM."""
    _hide_linker()
    runtime = ctypes.CDLL(str(find_libraries()[1]))
    create_module = importlib.machinery.ExtensionFileLoader.create_module

    def create_with_own_runtime(self: Any, spec: Any) -> Any:
        module = create_module(self, spec)
        runtime.cuda_warploom_replace_static_runtimes()
        return module

    importlib.machinery.ExtensionFileLoader.create_module = create_with_own_runtime
