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
    from packaging.specifiers import SpecifierSet

    for name, bounds in REQUIREMENTS.items():
        try:
            version = version_of(name)
        except importlib.metadata.PackageNotFoundError:
            version = None
        if version is None or version not in SpecifierSet(bounds, prereleases=True):
            installed = f"{name} {version} is installed" if version else f"{name} is not installed"
            raise ToolchainError(
                f"{installed}, but warploom {__version__} needs {name}{bounds}; run: {PIP_FIX}"
            )
