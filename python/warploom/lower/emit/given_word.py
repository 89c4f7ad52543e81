"""The word that tells CTAs, in a workspace that nobody prepares, that something is there.

A workspace holds anything before a launch. So a flag that is set is a word that memory does not
hold by chance, and a launch leaves its workspace without the word. A kernel that clears flags
before would be a launch of its own. Flags of zeroed memory that outlives launches, as other
libraries have them, would be shared by all threads that launch the kernel.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Stmt

from warploom.tile import ir
from warploom.tile.scalar import ThreadScalar

#: A flag that is set. It is no float: both halves are signalling NaNs as float32, and so is the
#: first half of the word as bfloat16; as float16 that is a NaN with a payload. Arithmetic yields
#: none of these. Random bytes have it once in 2^64 words.
GIVEN_WORD = 0x7FB53C97_7F9A61D3
#: Of flags.
FLAG_DTYPE = "uint64"


def set_flag(flag: Any) -> Stmt:
    """Set the flag at an address; a thread that sees it also sees what this one has stored."""
    return ir.evaluate(T.ptx.st.release.gpu.global_.u64(flag, T.uint64(GIVEN_WORD)))


def wait_for_flag(flag: Any) -> list[Stmt]:
    """Wait until the flag at an address is set."""
    seen = ThreadScalar("seen", FLAG_DTYPE)
    poll = ir.evaluate(T.ptx.ld.acquire.gpu.global_.u64(seen.value, flag))
    return [*seen.define(0), tirx.While(T.NE(seen.value, T.uint64(GIVEN_WORD)), poll)]


def clear_flag(flag: Any) -> Stmt:
    """Leave the flag at an address as the next launch has to find it."""
    return ir.evaluate(T.ptx.st.relaxed.gpu.global_.u64(flag, T.uint64(0)))
