"""How a pass says that it cannot handle a program."""

from __future__ import annotations

import tvm_ffi

from warploom.errors import WarploomError


@tvm_ffi.register_error("Decline")  # else it would leave a walk over a program as a RuntimeError
class Decline(WarploomError):
    """A pass leaves a program alone.

    The message is one sentence that names the operand, the rule, and the fix.
    """
