"""``wl.print`` where a tile program is interpreted: the text that a GPU prints.

``wl.device_assert`` raises it.
"""

from __future__ import annotations

import sys

from warploom.errors import TileProgramError
from warploom.language.interpreter.running import Running
from warploom.language.print_format import FLOAT, formatted
from warploom.language.printing import Print


def run_print(evaluate: Running, call: Print) -> None:
    """Execute a print statement or an assertion.

    Raises
    ------
    TileProgramError
        If a condition does not hold.
    """
    if not evaluate(call.predicate):
        return
    values = []
    for (kind, bits), expression in zip(call.kinds, call.values, strict=True):
        value = evaluate(expression)
        values.append((kind, bits, float(value) if kind is FLOAT else int(value)))
    text = formatted(call.format, values)
    if call.ends_kernel:
        raise TileProgramError(f"device_assert: {text}.")
    sys.stdout.write(text + "\n")
