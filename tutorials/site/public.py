"""The public modules: the reference has a page for each, with all names of its ``__all__``."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PublicModule:
    """A module whose ``__all__`` is public.

    Attributes
    ----------
    name : str
    short : str
        How examples call it: ``"wl"`` of ``warploom.language``.
    about : str
        One line for the table of modules.
    """

    name: str
    short: str
    about: str

    def names(self) -> list[str]:
        """The public names that the reference describes, in the order of the alphabet."""
        every = importlib.import_module(self.name).__all__
        return sorted((name for name in every if not name.startswith("__")), key=str.lower)


MODULES = (
    PublicModule("warploom", "warploom", "compile and call tile programs, targets, errors"),
    PublicModule("warploom.language", "wl", "the language of tile programs, and its builtins"),
    PublicModule("warploom.programs", "programs", "tile programs of the package"),
    PublicModule("warploom.relax", "warploom.relax", "Relax models: pipelines and CUDA graphs"),
    PublicModule("warploom.dlight", "warploom.dlight", "in place of TVM's dlight"),
    PublicModule("warploom.meta_schedule", "wms", "tuning: searches, runners, databases"),
    PublicModule("warploom.schedule", "schedule", "scheduling primitives for S-TIR"),
    PublicModule("warploom.emulator", "emulator", "kernels on a CPU, with reports of races"),
    PublicModule("warploom.profile", "profile", "timelines of kernels"),
    PublicModule("warploom.transform", "transform", "the passes that lower tile programs"),
    PublicModule("warploom.sparse", "sparse", "2:4 sparse operands"),
    PublicModule("warploom.kernels", "kernels", "generated matmuls with roles and without"),
    PublicModule("warploom.schedulers", "schedulers", "schedulers for kernels by hand"),
    PublicModule("warploom.target", "target", "facts of architectures and GPUs"),
    PublicModule("warploom.errors", "errors", "errors and warnings"),
)


@dataclass(frozen=True)
class Entry:
    """A public name and the object behind it."""

    module: str
    name: str
    value: Any

    @property
    def path(self) -> str:
        """The name with its module."""
        return f"{self.module}.{self.name}"

    @property
    def kind(self) -> str:
        """``"class"``, ``"error"``, ``"module"``, ``"function"`` or ``"data"``."""
        if inspect.isclass(self.value):
            return "error" if issubclass(self.value, BaseException) else "class"
        if inspect.ismodule(self.value):
            return "module"
        return "function" if callable(self.value) else "data"

    @property
    def is_ours(self) -> bool:
        """Whether warploom has written it: TVM's classes are shown where they are used."""
        home = getattr(self.value, "__module__", None) or self.module
        return home.split(".")[0] == "warploom"

    @property
    def doc(self) -> str:
        """The docstring; of data, the comment ``#:`` where it is made."""
        if self.kind != "data":
            return inspect.getdoc(self.value) or ""
        pattern = rf"((?:^#:.*\n)+){self.name}\b.* = "
        for name, module in sorted(sys.modules.items()):
            if not name.startswith("warploom.") or vars(module).get(self.name) is not self.value:
                continue
            if found := re.search(pattern, inspect.getsource(module), re.MULTILINE):
                return re.sub(r"^#: ?", "", found[1], flags=re.MULTILINE).strip()
        return ""


def entries() -> Iterator[Entry]:
    """Every public name of every public module."""
    for module in MODULES:
        loaded = importlib.import_module(module.name)
        for name in module.names():
            yield Entry(module.name, name, getattr(loaded, name))
