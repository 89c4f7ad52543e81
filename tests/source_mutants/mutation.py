"""Mutants of the package's own sources: one change of one expression or statement.

A mutant is a replacement in the text of a module, so all its other lines stay where they are.
Messages, annotations, decorators and docstrings are not changed: tests of behaviour cannot tell.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

#: What a statement says that emits or counts synchronisation.
SYNCHRONISATION = re.compile(
    r"fence|barrier|mbar|wait|arriv|parity|phase|sync|commit|expect|meet|publish|release|acquire"
    r"|pending|in_flight|under_way|turn_of|pair|advance|\bfull\b|\bempty\b"
)
_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*", ast.Mod: "//",
    ast.LShift: ">>", ast.RShift: "<<", ast.BitOr: "&", ast.BitAnd: "|", ast.BitXor: "|",
}  # fmt: skip
#: Stands for an element that is left out of a list or a tuple.
NOTHING = "*()"
#: Expressions whose text or type no mutant changes.
_LEFT_ALONE = (ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal)
#: A statement of more lines than that is about more than one thing.
_FEW = 3
#: Calls whose arguments are for people.
_SPOKEN = re.compile(r"^(warn|describe|decided|decline|print|fail|log|format|field)")


@dataclass(frozen=True)
class SourceMutant:
    """One change of a module.

    Attributes
    ----------
    module : str
        Path of the module below the package.
    function : str
        The function or class around the change, with its outer ones; empty outside.
    kind : str
        What was changed: ``comparison``, ``boolean``, ``condition``, ``constant``, ``arithmetic``,
        ``statement`` or ``element``.
    line : str
        The line that it begins in, without its indentation.
    old, new : str
        The text that is replaced, and by what.
    which : int
        The function has several such changes; which of them, from 0.
    first, last : int
        Lines of the statement around it.
    start : int
        Where the text begins, in characters.
    context : str
        What says whether it synchronises: what is left out, or else the lines around it.
    digest : str
        Identity of the function's text.
    """

    module: str
    function: str
    kind: str
    line: str
    old: str
    new: str
    which: int
    first: int
    last: int
    start: int
    context: str
    digest: str

    @property
    def key(self) -> tuple[str, ...]:
        """What finds the mutant again in another version of the module."""
        return self.module, self.function, self.line, flat(self.old), self.new, str(self.which)

    @cached_property
    def synchronises(self) -> bool:
        """Whether what changes has to do with the order of threads and of engines."""
        return bool(SYNCHRONISATION.search(self.context) or SYNCHRONISATION.search(self.function))

    def is_of(self, source: str) -> bool:
        """Whether the text of the module has what is replaced, where it was."""
        return source.startswith(self.old, self.start)

    def apply(self, source: str) -> str:
        """The module with the change."""
        assert self.is_of(source)
        end = self.start + len(self.old)
        return source[: self.start] + self.new + source[end:]

    def __str__(self) -> str:
        old = flat(self.old)
        return f"{self.module}:{self.first} {self.function}: {old} -> {flat(self.new)}"


def flat(text: str) -> str:
    """A text on one line."""
    return " ".join(text.split())


def mutants(package: Path, module: str) -> list[SourceMutant]:
    """All mutants of a module, in the order of its text."""
    return mutants_of((package / module).read_text(), module)


def mutants_of(source: str, module: str) -> list[SourceMutant]:
    """All mutants of the text of a module, in its order; each parses, and no two are equal."""
    found: list[SourceMutant] = []
    counts: dict[tuple[str, ...], int] = {}
    text = _Text(source)
    for change in sorted(_Walk(text).changes, key=lambda one: (one.start, one.old, one.new)):
        key = (change.function, change.line, flat(change.old), change.new)
        which = counts.get(key, 0)
        counts[key] = which + 1
        mutant = SourceMutant(
            module, change.function, change.kind, change.line, change.old, change.new, which,
            change.first, change.last, change.start, change.context, change.digest,
        )  # fmt: skip
        found.append(mutant)
    return found


@dataclass(frozen=True)
class _Change:
    function: str
    kind: str
    line: str
    old: str
    new: str
    first: int
    last: int
    start: int
    context: str
    digest: str


class _Text:
    """The text of a module, by the positions of its syntax tree."""

    def __init__(self, source: str) -> None:
        self.source, self.tree = source, ast.parse(source)
        self.lines = source.split("\n")
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)

    def at(self, line: int, column: int) -> int:
        """Characters before a position of the syntax tree, which counts bytes."""
        before = self.lines[line - 1].encode()[:column].decode()
        return self.starts[line - 1] + len(before)

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Where the text of a node begins and ends."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def of(self, node: ast.expr | ast.stmt) -> str:
        """The text of a node."""
        return self.source[slice(*self.span(node))]


class _Walk(ast.NodeVisitor):
    """Collects the changes of a module."""

    def __init__(self, text: _Text) -> None:
        self.text = text
        self.changes: list[_Change] = []
        self.names: list[str] = []
        self.digests: list[str] = []
        self.statements: list[ast.stmt] = []
        self.visit(text.tree)

    def _add(self, kind: str, start: int, end: int, new: str) -> None:
        text, around = self.text, self.statements[-1]
        body = getattr(around, "body", None)
        head = body[0].lineno - 1 if body else around.end_lineno or around.lineno
        last = max(around.lineno, head)
        number = text.source.count("\n", 0, start)
        context = "\n".join(text.lines[around.lineno - 1 : last])
        if kind in ("element", "statement"):
            context = text.source[start:end]
        elif last - around.lineno > _FEW:
            context = text.lines[number]
        digest = self.digests[-1] if self.digests else _digest(text.of(around))
        old, line = text.source[start:end], text.lines[number].strip()
        name = ".".join(self.names)
        self.changes.append(
            _Change(name, kind, line, old, new, around.lineno, last, start, context, digest)
        )

    def _replace(self, kind: str, node: ast.expr | ast.stmt, new: str) -> None:
        self._add(kind, *self.text.span(node), new)

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, _LEFT_ALONE):
            return
        if isinstance(node, ast.stmt):
            self.statements.append(node)
            super().visit(node)
            self.statements.pop()
        else:
            super().visit(node)

    # -- functions, classes, and what is for people ---------------------------------------------

    def _scope(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        self.names.append(node.name)
        if isinstance(node, ast.FunctionDef) or not self.digests:
            self.digests.append(_digest(self.text.of(node)))
        if isinstance(node, ast.FunctionDef):
            for default in (*node.args.defaults, *node.args.kw_defaults):
                if default is not None:
                    self.visit(default)
        for one in node.body:
            self.visit(one)
        if isinstance(node, ast.FunctionDef) or len(self.names) == 1:
            self.digests.pop()
        self.names.pop()

    visit_FunctionDef = _scope
    visit_ClassDef = _scope

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._replace("statement", node, "pass")

    def visit_Assert(self, node: ast.Assert) -> None:
        """What never happens needs no test."""

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        name = node.func.id if isinstance(node.func, ast.Name) else name
        if not _SPOKEN.match(name):
            self.generic_visit(node)

    # -- expressions ----------------------------------------------------------------------------

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        for operator, left, right in zip(node.ops, sides, sides[1:], strict=False):
            start, end = self.text.span(left)[1], self.text.span(right)[0]
            old, new = _COMPARISONS[type(operator)]
            between = self.text.source[start:end]
            place = re.search(r"\s+".join(map(re.escape, old.split())), between)
            if place:
                self._add("comparison", start + place.start(), start + place.end(), new)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        parts = [f"({self.text.of(one)})" for one in node.values]
        if len(parts) == 2:
            start, end = self.text.span(node.values[0])[1], self.text.span(node.values[1])[0]
            between = self.text.source[start:end]
            place = re.search(rf"\b{old}\b", between)
            assert place
            self._add("boolean", start + place.start(), start + place.end(), new)
        else:
            for number in range(len(parts)):
                left = [*parts[:number], *parts[number + 1 :]]
                self._replace("boolean", node, f"({f' {old} '.join(map(flat, left))})")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._replace("boolean", node, f"({self.text.of(node.operand)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        new = _OPERATORS.get(type(node.op))
        texts = isinstance(node.left, (ast.Constant, ast.JoinedStr)) and not isinstance(
            getattr(node.left, "value", ""), int
        )
        if new and not texts:
            left, right = self.text.span(node.left)[1], self.text.span(node.right)[0]
            between = self.text.source[left:right]
            place = re.search(r"//|<<|>>|[-+*%|&^]", between)
            assert place
            self._add("arithmetic", left + place.start(), left + place.end(), new)
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":  # lengths that always agree
            self.visit(node.value)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._replace("constant", node, str(not value))
        elif isinstance(value, int):
            self._replace("constant", node, str(value + 1))
            if value > 1:
                self._replace("constant", node, str(value - 1))

    def _condition(self, node: ast.If | ast.While | ast.IfExp) -> None:
        if not isinstance(node.test, (ast.UnaryOp, ast.Compare)):
            self._replace("condition", node.test, f"(not ({self.text.of(node.test)}))")
        self.generic_visit(node)

    visit_If = _condition
    visit_While = _condition
    visit_IfExp = _condition

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._replace("condition", test, "True")
        self.generic_visit(node)

    # -- statements and elements ----------------------------------------------------------------

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        if isinstance(node.value, (ast.Call, ast.Yield)):
            self._replace("statement", node, "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._replace("statement", node, "pass")
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace("statement", node, "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self._replace("statement", node, "pass")

    def visit_Return(self, node: ast.Return) -> None:
        # An early return that is dropped lets the function go on.
        around = self.statements[-2] if len(self.statements) > 1 else None
        if isinstance(around, ast.If):
            self._replace("statement", node, "pass")
        self.generic_visit(node)

    def _sequence(self, node: ast.List | ast.Tuple) -> None:
        for one in node.elts:
            if isinstance(node, ast.Tuple) and len(node.elts) < 3:
                break
            if isinstance(one, (ast.Call, ast.Starred)) and isinstance(node.ctx, ast.Load):
                self._replace("element", one, NOTHING)
        self.generic_visit(node)

    visit_List = _sequence
    visit_Tuple = _sequence


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def modules(package: Path, under: Iterator[str] | tuple[str, ...]) -> list[str]:
    """The modules of some folders, or some modules, by their paths below the package."""
    found = []
    for one in under:
        place = package / one
        found += [place] if place.is_file() else sorted(place.rglob("*.py"))
    return [str(one.relative_to(package)) for one in found]
