"""The environment of a measurement: the machine, its clocks, and the versions of the software."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence

from warploom.runtime.toolchain import find_nvrtc

#: Properties that nvidia-smi reports.
_GPU_PROPERTIES = (
    "name",
    "driver_version",
    "clocks.sm",
    "clocks.max.sm",
    "clocks.mem",
    "power.draw",
    "power.limit",
    "temperature.gpu",
)
_DISTRIBUTIONS = ("warploom", "apache-tvm", "apache-tvm-ffi", "torch", "cuda-bindings")


def _query(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout


def gpu_properties(query: Callable[[Sequence[str]], str] = _query) -> dict[str, str]:
    """Name, driver, clocks, power and temperature of this process's first GPU.

    Empty without nvidia-smi.
    """
    command = ["nvidia-smi", f"--query-gpu={','.join(_GPU_PROPERTIES)}", "--format=csv,noheader"]
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
    command += [f"--id={first}"] if first else []
    try:
        values = query(command).splitlines()[0].split(", ")
    except (OSError, subprocess.SubprocessError, IndexError):
        return {}
    return dict(zip(_GPU_PROPERTIES, values, strict=True))


def versions() -> dict[str, str]:
    """Versions of Python, of the installed distributions that matter, and of NVRTC.

    Two releases of NVRTC made kernels of one source whose times differ by 12 %
    (``results/2026-11-22-h200-block-scaled.md``).
    """
    versions_of = {"python": platform.python_version()}
    for name in _DISTRIBUTIONS:
        try:
            versions_of[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    compiler = find_nvrtc()
    return versions_of if compiler is None else {**versions_of, "nvrtc": compiler.version}


def environment(arguments: Sequence[str]) -> dict:
    """Everything to print beside a number, ready for JSON.

    Parameters
    ----------
    arguments : sequence of str
        Arguments of ``python -m warploom_bench``.
    """
    return {
        "date": time.strftime("%Y-%m-%d %H:%M:%S"),
        "command": shlex.join(["python", "-m", "warploom_bench", *arguments]),
        "gpu": gpu_properties(),
        "versions": versions(),
    }
