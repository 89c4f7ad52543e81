"""Pages of the reference: a page for each public module, made from ``__all__`` and docstrings."""

from __future__ import annotations

import importlib
import inspect

from tutorials.site.public import MODULES, Entry, entries

#: Kind of a name -> (the title of its section, Sphinx's directive).
_SECTIONS = {
    "function": ("Functions", "autofunction"),
    "class": ("Classes", "autoclass"),
    "error": ("Errors and warnings", "autoexception"),
    "data": ("Data", "autodata"),
    "module": ("Modules", ""),
}


def page_of(module: str) -> str:
    """Name of the page of a module."""
    return f"reference/{module}"


def pages() -> dict[str, str]:
    """Text of every page in reStructuredText, by its name."""
    every = list(entries())
    shown: set[int] = set()
    made = {"reference/index": _index(every)}
    for module in MODULES:
        own = [entry for entry in every if entry.module == module.name]
        made[page_of(module.name)] = _page(module.name, own, shown)
    return made


def _heading(text: str, line: str) -> str:
    return f"{text}\n{line * len(text)}\n"


def _index(every: list[Entry]) -> str:
    rows = "\n".join(
        f"   * - :doc:`{module.name}`\n     - {module.about}\n"
        f"     - {sum(entry.module == module.name for entry in every)}"
        for module in MODULES
    )
    listed = "\n".join(f"   {module.name}" for module in MODULES)
    return (
        _heading("Reference", "=")
        + "\nPublic is what the modules below have in ``__all__``; "
        + "everything else may change in any version.\n\n"
        + f".. list-table::\n   :header-rows: 1\n   :widths: 30 60 10\n\n"
        f"   * - module\n     - contents\n     - names\n{rows}\n\n"
        + f".. toctree::\n   :hidden:\n\n{listed}\n"
    )


def _page(module: str, own: list[Entry], shown: set[int]) -> str:
    intro = inspect.getdoc(importlib.import_module(module)) or ""
    text = [_heading(module, "="), intro, f"\n.. currentmodule:: {module}\n"]
    for kind, (title, directive) in _SECTIONS.items():
        some = [entry for entry in own if entry.kind == kind]
        if some:
            text.append(_heading(title, "-"))
            text += [_entry(entry, directive, shown) for entry in some]
    return "\n".join(text)


def _entry(entry: Entry, directive: str, shown: set[int]) -> str:
    """The directive of a name; a name that an earlier page describes leads there."""
    if entry.kind == "module":
        known = any(entry.path == module.name for module in MODULES)
        target = f":doc:`{entry.path}`" if known else f"``{entry.path}``"
        return f"* ``{entry.name}``: {target}\n"
    again = id(entry.value) in shown and entry.kind != "data"
    shown.add(id(entry.value))
    lines = [f".. {directive}:: {entry.path}"]
    if again:
        lines.append("   :no-index:")
    if entry.kind == "class" and entry.is_ours:
        lines += ["   :members:"]
    return "\n".join(lines) + "\n"
