"""CTAs that wait for each other: each runs until it has to wait, and goes on when others have run.

What executes statements is a generator. It yields a :class:`Wait` each time it finds that what it
waits for has not happened, the same object until it has; if in a whole round all yield what they
have yielded before, none will ever go on. It yields a :class:`Signal` when it has told others to go
on. Then, as a coin says that falls alike in every run, they come first, or it goes on at once: so
both a CTA that tells others too early and one that does not wait for them give wrong results. A CTA
that neither waits nor tells anything runs to its end at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from warploom.errors import TileProgramError

#: CTAs that the message of a deadlock names.
_NAMED = 4


@dataclass(frozen=True, eq=False)
class Wait:
    """One wait, until it is over.

    Attributes
    ----------
    event : str
        What it waits for.
    """

    event: str


class Signal:
    """What others wait for has happened."""


Waits = Iterator[Wait | Signal]


def wait_until(happened: Callable[[], bool], event: str) -> Waits:
    """Wait until ``happened()``, which other CTAs bring about."""
    wait = Wait(event)
    while not happened():
        yield wait


def run_ctas(ctas: Iterable[tuple[str, Waits]]) -> None:
    """Run CTAs, each a name and its statements, in their order and then round robin until all end.

    Raises
    ------
    TileProgramError
        If all that are left wait for what never happens; it has the line of the first that waits.
    """
    coin = random.Random(0)
    left = [_Cta(name, statements) for name, statements in ctas]
    left = [cta for cta in left if cta.goes_on(coin)]
    while left:
        before = [cta.stop for cta in left]
        after = [cta for cta in left if cta.goes_on(coin)]
        if len(after) == len(left) and all(
            cta.stop is stop for cta, stop in zip(left, before, strict=True)
        ):
            left[0].statements.throw(_deadlock(left))
        left = after


@dataclass(eq=False)
class _Cta:
    """A CTA, and why it has stopped at last."""

    name: str
    statements: Waits
    stop: Wait | Signal | None = None

    def goes_on(self, coin: random.Random) -> bool:
        """Run it until others come first; whether it has not ended."""
        self.stop = next(self.statements, None)
        while isinstance(self.stop, Signal) and coin.getrandbits(1):
            self.stop = next(self.statements, None)
        return self.stop is not None


def _deadlock(ctas: list[_Cta]) -> TileProgramError:
    named = "; ".join(f"{cta.name} for {cta.stop.event}" for cta in ctas[:_NAMED])
    more = f"; and {len(ctas) - _NAMED} more" if len(ctas) > _NAMED else ""
    return TileProgramError(
        f"the program never ends: all CTAs that have not ended wait, {named}{more}."
    )
