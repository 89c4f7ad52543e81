"""A function with several kernels: each is lowered alone, between the host statements of all.

A kernel that reads what all CTAs of another have written is a kernel of its own: it starts when
the other has ended. The workspace between the two, and values that the host computes for both,
stand before them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm.tirx import PrimFunc, Stmt

from warploom.errors import Decline
from warploom.tile import ir
from warploom.tile.entries import device_entries
from warploom.tile.state import STATE


def has_several_kernels(func: PrimFunc) -> bool:
    """Whether a function that no pass has begun to lower has several device entries."""
    return STATE not in (func.attrs or {}) and len(device_entries(func)) > 1


def host_statements(func: PrimFunc) -> int:
    """How many statements of the host stand before the kernel of a function with one."""
    (entry,) = device_entries(func)
    statements = ir.flatten(func.body)
    return next((i for i, each in enumerate(statements) if each.same_as(entry)), 0)


def lower_each(func: PrimFunc, lower: Callable[[PrimFunc], PrimFunc]) -> PrimFunc:
    """The function with each of its kernels lowered.

    Parameters
    ----------
    func : PrimFunc
        Its body is a sequence of host statements and kernels: a kernel uses what the host
        statements before it define.
    lower : callable
        Lowers a function with one kernel.

    Raises
    ------
    Decline
        If a kernel is part of another statement; or as ``lower`` does.
    """
    entries = device_entries(func)
    statements = ir.flatten(func.body)
    if sum(map(_is_one_of(entries), statements)) != len(entries):
        raise Decline(
            "A kernel of a function with several stands in a loop, a branch or another kernel; let "
            "the kernels follow each other, and give one that may not be needed no CTA."
        )
    host: list[Stmt] = []
    whole: list[Stmt] = []
    attrs: dict[str, Any] = dict(func.attrs or {})
    for statement in statements:
        if not _is_one_of(entries)(statement):
            host.append(statement)
            whole.append(statement)
            continue
        alone = lower(func.with_body(ir.seq([*host, statement])))
        # Passes add statements of the host behind those of the author.
        whole += ir.flatten(alone.body)[len(host) :]
        attrs |= dict(alone.attrs or {})
    lowered = func.with_body(ir.seq(whole))
    return lowered.with_attrs(attrs) if attrs else lowered


def _is_one_of(entries: list[Any]) -> Callable[[Stmt], bool]:
    return lambda statement: any(statement.same_as(entry) for entry in entries)
