"""Pages of the reference: a page for each public module, made from ``__all__`` and docstrings."""

from __future__ import annotations

import importlib
import inspect

from tutorials.site.public import MODULES, Entry, entries

#: What the examples of docstrings may use.
_IMPORTS = """\
   import numpy as np
   import tvm
   import warploom
   from tvm import relax
   from warploom import emulator, errors, language as wl, meta_schedule as wms
   from warploom import profile, programs, sparse
   from warploom.decide import Config

   program = programs.gemm(Config(tile_n=128), 512, 512, 512)
   mod, target = tvm.IRModule({"main": program}), warploom.cuda_target("h200")"""
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
        + "Examples have these imports, and are executed by the tests:\n\n"
        + f".. code-block:: python\n\n{_IMPORTS}\n\n"
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
    if entry.kind == "data":
        return _described(entry, f".. py:data:: {entry.path}", _value(entry))
    again = id(entry.value) in shown
    shown.add(id(entry.value))
    lines = [f".. {directive}:: {entry.path}"]
    if again:
        lines.append("   :no-index:")
    if not entry.is_ours:
        home = entry.value.__module__
        about = f"TVM's ``{home}.{entry.name}``: {entry.doc.splitlines()[0]}"
        return _described(entry, f".. py:{entry.kind}:: {entry.path}", about)
    if entry.kind == "class":
        lines.append("   :members:")
    return "\n".join(lines) + "\n"


def _described(entry: Entry, directive: str, text: str) -> str:
    """A name that autodoc would describe badly: data, and classes of TVM."""
    paragraphs = [text] if entry.kind != "data" else [entry.doc, text]
    body = "\n\n".join(f"   {each}" for each in paragraphs if each)
    return f"{directive}\n\n{body}\n"


def _value(entry: Entry) -> str:
    """What data is, in short."""
    value = entry.value
    if isinstance(value, dict):
        return "Keys: " + ", ".join(f"``{key}``" for key in value) + "."
    if isinstance(value, tuple):
        return f"{len(value)} values of :class:`{type(value[0]).__name__}`."
    if isinstance(value, int | str):
        return f"Value: ``{value!r}``."
    return f"Of the class :class:`{type(value).__name__}`."
