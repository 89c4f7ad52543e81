"""Which candidates are the same kernel: different decisions may generate equal code.

A pass that declines a hint, or a choice that makes no difference for a function, gives a kernel
that has been measured already.
"""

from __future__ import annotations

import hashlib

from tvm.runtime import Executable

from warploom.runtime.modules import imported

#: Formats in which modules show all of their code, by their kinds.
_CODE = {"llvm": "ll", "c": "c", "cuda": "cuda"}


def kernel_digest(executable: Executable) -> str:
    """A hash of the code of a function and of its launch; milliseconds.

    Parameters
    ----------
    executable : Executable
        Of the function alone, under a name that all candidates have.

    Returns
    -------
    str
        Hexadecimal digits; empty if a module does not show its code.
    """
    digest = hashlib.sha256()
    for module in (executable.mod, *imported(executable.mod)):
        if module.kind not in _CODE:
            return ""
        digest.update(module.inspect_source(_CODE[module.kind]).encode())
    return digest.hexdigest()
