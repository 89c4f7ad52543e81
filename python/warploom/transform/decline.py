"""How a pass says that it cannot handle a program."""

from __future__ import annotations


class Decline(ValueError):
    """A pass leaves a program alone.

    The message is one sentence that names the operand, the rule, and the fix.
    """
