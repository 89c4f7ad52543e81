"""``warploom inspect choices``: the table of what can be chosen for a kernel."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from warploom.command_line import Parser
from warploom.tile.choices import CHOICES, EXCLUSIONS, Choice

_COLUMNS = ("choice", "values", "default", "hint", "drawn", "priced", "meaning")


def rows() -> list[tuple[str, ...]]:
    """A row for each choice, in the order of :data:`_COLUMNS`; "-" where there is nothing."""
    return [
        (
            row.name, str(row.kind), "-" if row.default is None else str(row.default),
            row.hint or "-", ", ".join(map(str, row.draws)) or "-", _priced(row), row.sentence,
        )
        for row in CHOICES
    ]  # fmt: skip


def markdown() -> str:
    """The table, and what excludes each other, as a page of the guide has them."""
    lines = [f"| {' | '.join(_COLUMNS)} |", "|" + "---|" * len(_COLUMNS)]
    lines += [f"| `{name}` | {' | '.join(others)} |" for name, *others in rows()]
    lines += ["", "| choice | rule |", "|---|---|"]
    lines += [f"| `{row.name}` | {row.rule} |" for row in CHOICES if row.rule]
    lines += ["", "| choice | other choices | because |", "|---|---|---|"]
    for rule in EXCLUSIONS:
        value = f"`{rule.name}`" + (f" {_words(rule.values)}" if rule.values else "")
        others = ", ".join(f"`{name}` {_words(values)}" for name, values in rule.allowed.items())
        lines.append(f"| {value} | {others} | {rule.because} |")
    return "\n".join(lines) + "\n"


def _words(values: Sequence[object]) -> str:
    return " or ".join(map(str, values))


def _priced(row: Choice) -> str:
    if row.default is None and not row.rule:
        return "-"
    words = [*(["model"] if row.priced else []), *(["rule"] if row.rule else [])]
    return ", ".join(words)


def main(arguments: list[str]) -> int:
    """Run the command."""
    parser = Parser(prog="warploom inspect choices", description=__doc__)
    parser.add_argument("--markdown", action="store_true", help="print the page of the guide")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    if options.json:
        print(json.dumps([dict(zip(_COLUMNS, row, strict=True)) for row in rows()], indent=2))
        return 0
    if options.markdown:
        print(markdown(), end="")
        return 0
    table = Table(*_COLUMNS, box=None)
    for row in rows():
        table.add_row(*row)
    Console(highlight=False).print(table)
    return 0
