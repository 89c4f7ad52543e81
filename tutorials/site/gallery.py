"""Pages of the gallery: what a kernel computes, its program, its check, and what that printed."""

from __future__ import annotations

import ast
from pathlib import Path

from tutorials.site.notebooks import ROOT, Outputs, shown


def kernels(folder: Path) -> list[Path]:
    """The programs of the gallery."""
    return sorted(folder.glob("*.py"))


def page(path: Path, outputs: Outputs | None) -> str:
    """A page: the docstring is prose, the rest is code.

    Parameters
    ----------
    path : Path
    outputs : Outputs or None
        What the programs have printed; None shows the code alone.
    """
    source = path.read_text()
    tree = ast.parse(source)
    about = ast.get_docstring(tree) or ""
    end = tree.body[0].end_lineno if about else 0
    code = "\n".join(source.splitlines()[end:]).strip("\n")
    title = about.partition("\n")[0].partition(":")[0].rstrip(".")
    parts = [f"# {_prose(title)}", _prose(about)]
    parts += [f"```python\n{code}\n```"]
    name = path.relative_to(ROOT)
    parts.append(f"`python {name}` executes the page without a GPU:" if outputs else "")
    if outputs:
        parts.append(shown("\n".join(outputs.of(path).values()).strip("\n")))
    parts.append(f"On a GPU, `warploom bench gallery {path.stem}` measures it.")
    return "\n\n".join(part for part in parts if part) + "\n"


def _prose(text: str) -> str:
    """A docstring as Markdown: indented blocks become code, and single stars stay stars."""
    lines = []
    for line in text.strip("\n").replace("``", "`").splitlines():
        lines.append(line if line.startswith("    ") else line.replace("*", "\\*"))
    return "\n".join(lines)
