"""Tiles that are read before anything is written, and MMAs whose result no statement reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from warploom.errors import TileProgramError
from warploom.language.rules.scopes import REGISTERS, TILES


@dataclass
class Lifetimes:
    """The accesses to each tile so far, in the order of the program.

    Attributes
    ----------
    written, read : set of Buffer
    results : dict
        Accumulator -> the last statement that computes a matmul into it.
    """

    written: set[Any] = field(default_factory=set)
    read: set[Any] = field(default_factory=set)
    results: dict[Any, Any] = field(default_factory=dict)

    def writes(self, buffer: Any) -> None:
        """A statement writes some of a buffer."""
        self.written.add(buffer)

    def reads(self, buffer: Any, certain: bool, adds: bool = False) -> None:
        """A statement reads some of a buffer.

        Parameters
        ----------
        certain : bool
            Whether it does so whenever the program runs.
        adds : bool
            Whether it does so only to add to it; then no statement reads the sum.

        Raises
        ------
        TileProgramError
            If it is a tile that nothing has been written to.
        """
        if not adds:
            self.read.add(buffer)
        scope = str(buffer.scope())
        if not certain or buffer in self.written or scope not in TILES:
            return
        how = "load, zero or fill it first"
        if scope in REGISTERS and scope != "fragment":
            how = "compute it with gemm_async(..., accum=False) in the first step, or zero it first"
        raise TileProgramError(
            f"{buffer.name} is read before anything is written to it; its elements are undefined, "
            f"so {how}."
        )

    def computes(self, accumulator: Any, statement: Any) -> None:
        """A matmul into an accumulator."""
        self.results[accumulator] = statement
        self.written.add(accumulator)

    def unread_result(self) -> tuple[Any, TileProgramError] | None:
        """A matmul whose accumulator no statement reads, and the message."""
        for accumulator, statement in self.results.items():
            if accumulator not in self.read:
                name = accumulator.name
                return statement, TileProgramError(
                    f"nothing reads {name}, the result of this gemm_async; convert it into a "
                    f"fragment, Tx.cta.cast(out, {name}), and copy that to global memory, or leave "
                    "the gemm_async out."
                )
        return None
