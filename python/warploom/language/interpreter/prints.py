"""What ``wl.print`` prints where a tile program is interpreted: the text that a GPU prints."""

from __future__ import annotations

import sys

from warploom.language.interpreter.running import Running
from warploom.language.print_format import FLOAT, formatted
from warploom.language.printing import Print


def run_print(evaluate: Running, found: Print) -> None:
    """Execute a print statement."""
    if not evaluate(found.predicate):
        return
    values = []
    for (kind, bits), expression in zip(found.kinds, found.values, strict=True):
        value = evaluate(expression)
        values.append((kind, bits, float(value) if kind is FLOAT else int(value)))
    sys.stdout.write(formatted(found.format, values) + "\n")
