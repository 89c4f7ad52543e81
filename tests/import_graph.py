"""The graph of imports of a package, read from its sources: nothing is imported.

Every import counts: those inside functions, those under `TYPE_CHECKING`, and strings that are the
name of a module (`importlib.import_module("warploom.relax")`, tables of lazy names). Run as a
script it prints the graph of packages.
"""

import ast
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "python"


@dataclass(frozen=True)
class Import:
    """`importer` imports `imported` in line `line` of `path`; all three are those of modules."""

    importer: str
    imported: str
    path: Path
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.importer} imports {self.imported}"


def modules(package: str, sources: Path = SOURCES) -> dict[str, Path]:
    """The modules of `package` by dotted name; a package is the module of its `__init__.py`."""
    found = {}
    for path in sorted((sources / package).rglob("*.py")):
        parts = path.relative_to(sources).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(package: str, sources: Path = SOURCES) -> list[Import]:
    """Each import of a module of `package` by another one, in the order of the sources."""
    known = modules(package, sources)
    found = []
    for name, path in known.items():
        tree = ast.parse(path.read_text(), str(path))
        here = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for line, dotted in _named(tree, here, known):
            imported = _module_of(dotted, known)
            if imported is not None and imported != name:
                found.append(Import(name, imported, path.relative_to(sources), line))
    return found


def _named(tree: ast.Module, here: str, known: Mapping[str, Path]) -> Iterator[tuple[int, str]]:
    """Lines and dotted names that a module in package `here` asks for."""
    # A module's own packages have been imported before it.
    elsewhere = {name for name in known if not f"{here}.".startswith(f"{name}.")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = here.split(".")
                base = ".".join([*parents[: len(parents) - node.level + 1], *filter(None, [base])])
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"
        elif isinstance(node, ast.Constant) and node.value in elsewhere:
            yield node.lineno, node.value


def _module_of(dotted: str, known: Mapping[str, Path]) -> str | None:
    """The module that holds a dotted name: the longest prefix that is a module."""
    while dotted and dotted not in known:
        dotted = dotted.rpartition(".")[0]
    return dotted or None


def unit(module: str) -> str:
    """The first-level package or module that `module` belongs to: `warploom.tile.ir` -> `tile`."""
    package, _, inside = module.partition(".")
    return inside.partition(".")[0] or package


def cycles(edges: Iterable[tuple[str, str]]) -> list[list[str]]:
    """The strongly connected components of more than one node (Tarjan's algorithm), sorted."""
    after: dict[str, set[str]] = {}
    for tail, head in edges:
        after.setdefault(tail, set()).add(head)
        after.setdefault(head, set())
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        for head in sorted(after[node]):
            if head not in number:
                visit(head)
                low[node] = min(low[node], low[head])
            elif head in stack:
                low[node] = min(low[node], number[head])
        if low[node] == number[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(component) > 1:
                found.append(sorted(component))

    sys.setrecursionlimit(max(sys.getrecursionlimit(), 10 * len(after) + 1000))
    for node in sorted(after):
        if node not in number:
            visit(node)
    return sorted(found)


def report(package: str, sources: Path = SOURCES) -> str:
    """The graph of the first-level packages with the number of imports, and all cycles."""
    found = imports(package, sources)
    counts = Counter((unit(each.importer), unit(each.imported)) for each in found)
    lines = []
    for tail in sorted({unit(module) for module in modules(package, sources)}):
        heads = [f"{head} {n}" for (t, head), n in sorted(counts.items()) if t == tail != head]
        lines.append(f"{tail} -> {', '.join(heads) or 'nothing'}")
    between = cycles(pair for pair in counts if pair[0] != pair[1])
    lines += ["", f"cycles of packages: {len(between)}"]
    lines += [f"  {len(cycle)}: {' '.join(cycle)}" for cycle in between]
    inside = cycles((each.importer, each.imported) for each in found)
    lines += [f"cycles of modules: {len(inside)}"]
    lines += [f"  {len(cycle)}: {' '.join(cycle)}" for cycle in inside]
    return "\n".join(lines)


if __name__ == "__main__":
    print(report(sys.argv[1] if len(sys.argv) > 1 else "warploom"))
