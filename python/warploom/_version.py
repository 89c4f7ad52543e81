"""The version of warploom, and the versions of TVM that it works with."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable

from warploom.errors import ToolchainError

__version__ = "0.1.0"

#: Distribution -> version bounds, as in pyproject.toml. The upper bound of apache-tvm-ffi is hard:
#: with 0.1.15, TVM 0.27 crashes in ``tvm.ir.save_json`` and with it in every MetaSchedule run.
REQUIREMENTS = {
    "apache-tvm": "==0.27.*",
    "apache-tvm-ffi": ">=0.1.14.post0,<0.1.15",
}

#: Distribution -> how versions begin that are within the bounds if only numbers and post-releases
#: follow. Such a version needs no parser: importing one is a third of what warploom adds to
#: ``import tvm``.
_PLAINLY_RIGHT = {"apache-tvm": "0.27.", "apache-tvm-ffi": "0.1.14.post"}

#: The command that installs versions within :data:`REQUIREMENTS`.
PIP_FIX = "pip install " + " ".join(f"'{name}{bounds}'" for name, bounds in REQUIREMENTS.items())


def check_requirements(version_of: Callable[[str], str] = importlib.metadata.version) -> None:
    """Check that the installed TVM is one that warploom works with.

    Parameters
    ----------
    version_of : callable
        Gives the installed version of a distribution.

    Raises
    ------
    ToolchainError
        If a distribution is missing or its version is out of bounds.
    """
    for name, bounds in REQUIREMENTS.items():
        try:
            version = version_of(name)
        except importlib.metadata.PackageNotFoundError:
            version = None
        if version is None or not _is_within(name, version):
            installed = f"{name} {version} is installed" if version else f"{name} is not installed"
            raise ToolchainError(
                f"{installed}, but warploom {__version__} needs {name}{bounds}; run: {PIP_FIX}"
            )


def _is_within(name: str, version: str) -> bool:
    """Whether a version of a distribution is within its bounds."""
    begin = _PLAINLY_RIGHT[name]
    parts = version.removeprefix(begin).split(".")
    if version.startswith(begin) and all(_is_number(part.removeprefix("post")) for part in parts):
        return True
    from packaging.specifiers import SpecifierSet

    return version in SpecifierSet(REQUIREMENTS[name], prereleases=True)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
