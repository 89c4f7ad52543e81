"""The graph of imports of a package, or from one to another: read from sources, none is imported.

Every import counts: those inside functions, those under `TYPE_CHECKING`, and strings that are the
name of a module (`importlib.import_module("warploom.relax")`, tables of lazy names). Run as a
script it prints the graph of packages.
"""

import ast
import functools
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "python"


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


def imports(package: str, sources: Path = SOURCES, of: str | None = None) -> list[Import]:
    """Each import of a module of `package` by another one, in the order of the sources.

    With `of` instead each import of a module of the package `of` by one of `package`.
    """
    known = modules(of or package, sources)
    found = []
    for asked in _asked(package, sources, of or package):
        imported = _module_of(asked.name, known)
        if imported is not None and imported != asked.importer:
            found.append(Import(asked.importer, imported, asked.path, asked.line))
    return found


def missing(package: str, sources: Path = SOURCES, of: str | None = None) -> list[str]:
    """A line for each import by `package` of what `of`, by default `package`, does not have.

    That is a module, or a name in one.
    """
    known = modules(of or package, sources)
    lines = []
    for asked in _asked(package, sources, of or package):
        if asked.module.partition(".")[0] != (of or package) or asked.name in known:
            continue
        place = Import(asked.importer, asked.name, asked.path, asked.line)
        name = asked.name.removeprefix(f"{asked.module}.")
        if asked.module not in known or not _binds(known[asked.module], name):
            lines.append(f"{place}, which does not exist")
    return lines


def _binds(path: Path, name: str) -> bool:
    """Whether a module has a name of its own, or may make it when it is asked."""
    names = _bound(path)
    return bool(names & {name, "*", "__getattr__"}) or name == "*"


@functools.cache
def _bound(path: Path) -> frozenset[str]:
    """What the statements of a module bind, `*` for names of another one."""
    found = set()
    inside = list(ast.parse(path.read_text(encoding="utf-8"), str(path)).body)
    while inside:
        node = inside.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name):
            found.add(node.id)
        else:
            inside += ast.iter_child_nodes(node)
    return frozenset(found)


@dataclass(frozen=True)
class _Asked:
    """What line `line` of `importer` asks for: `name`, from a module that is `module` or in it."""

    importer: str
    path: Path
    line: int
    name: str
    module: str


@functools.cache
def _asked(package: str, sources: Path, of: str) -> tuple[_Asked, ...]:
    known = modules(of, sources)
    found = []
    for importer, path in modules(package, sources).items():
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        folder = importer if path.name == "__init__.py" else importer.rpartition(".")[0]
        for line, name, module in _names(tree, folder, known):
            found.append(_Asked(importer, path.relative_to(sources), line, name, module))
    return tuple(found)


def _names(
    tree: ast.Module, folder: str, known: Mapping[str, Path]
) -> Iterator[tuple[int, str, str]]:
    """Line, dotted name and module of all that a module in package `folder` asks for."""
    # A module's own packages have been imported before it.
    elsewhere = {name for name in known if not f"{folder}.".startswith(f"{name}.")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, alias.name
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                parents = folder.split(".")[: len(folder.split(".")) - node.level + 1]
                module = ".".join([*parents, *filter(None, [module])])
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}", module
        elif isinstance(node, ast.Constant) and node.value in elsewhere:
            yield node.lineno, node.value, node.value


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
