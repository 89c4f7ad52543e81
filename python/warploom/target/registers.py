"""Registers of warps of different roles: at launch, and after setmaxnreg.

``setmaxnreg.dec`` releases registers of a warpgroup to a pool of its CTA, ``setmaxnreg.inc`` waits
until the pool has enough (PTX ISA, "setmaxnreg"). The pool begins empty, so all that a CTA can
share out is what its threads start with. That is what the launch bounds of the kernel leave, but
no more than the least that an ``inc`` of the kernel asks for: ptxas 13.5 starts a kernel of 256
threads, which could have 255 registers each, with 232 if it has ``inc 232`` and with 104 if it
has ``inc 104`` (cubins for sm_90a and sm_100a; a test compiles them again). An ``inc`` therefore
never asks for less than a thread has, and a ``dec`` must not ask for more.
"""

from __future__ import annotations

from dataclasses import dataclass

from warploom.errors import IllegalCombination
from warploom.target.arch import Arch

#: Registers that one thread needs to issue TMA copies: at least, where others take the rest.
PRODUCER_REGISTERS = 40


@dataclass(frozen=True)
class RegisterRoles:
    """A CTA of one warpgroup that gives registers away, and some that take them.

    Attributes
    ----------
    arch : Arch
    consumers : int
        Warpgroups that compute.
    blocks : int
        CTAs that share an SM.

    Examples
    --------
    >>> from warploom.target import SM90A
    >>> RegisterRoles(SM90A, consumers=2).split()
    (40, 232)
    """

    arch: Arch
    consumers: int
    blocks: int = 1

    @property
    def warpgroups(self) -> int:
        """Warpgroups of a CTA."""
        return self.consumers + 1

    def at_launch(self, consumer: int | None = None) -> int:
        """Registers that each thread starts with, a multiple of 8.

        Parameters
        ----------
        consumer : int, optional
            Registers that consumers ask for with ``setmaxnreg.inc``, if they do.

        Raises
        ------
        IllegalCombination
            If a multiprocessor does not hold so many blocks or threads.
        """
        bound = self.arch.registers_of_each(self.blocks, self.warpgroups * self.arch.warpgroup)
        return bound if consumer is None else min(bound, consumer)

    def split(self, producer: int | None = None, consumer: int | None = None) -> tuple[int, int]:
        """Registers of a thread of each role; a missing count is chosen.

        The consumers get all but :data:`PRODUCER_REGISTERS`, as far as a thread can have them, and
        the producer what they leave.
        """
        step = self.arch.setmaxnreg.step
        if consumer is None:
            bound = self.at_launch()
            least = min(PRODUCER_REGISTERS, bound) if producer is None else producer
            share = bound + (bound - least) // self.consumers
            consumer = min(share, self.arch.registers_per_thread) // step * step
        if producer is None:
            start = self.at_launch(consumer)
            left = start - self.consumers * (consumer - start)
            producer = min(max(left // step * step, min(PRODUCER_REGISTERS, start)), start)
        return producer, consumer

    def check(self, producer: int, consumer: int) -> None:
        """Check that ``setmaxnreg`` can give a producer and the consumers so many registers.

        Raises
        ------
        IllegalCombination
            If a number is none that it takes, if the producer would need more than it starts
            with, or if the consumers would wait for registers that no warp releases.
        """
        for count in (producer, consumer):
            self.arch.setmaxnreg.check(count)
        start = self.at_launch(consumer)
        if producer > start:
            raise IllegalCombination(
                f"Registers {(producer, consumer)} of a loading and {self.consumers} computing "
                f"warpgroups: each thread starts with {start}, and the loading one can only "
                f"release some (setmaxnreg.dec); let it have {start} at most."
            )
        pool = start * self.warpgroups
        wanted = producer + self.consumers * consumer
        if wanted > pool:
            lanes = self.arch.warpgroup
            raise IllegalCombination(
                f"Registers {(producer, consumer)} of a loading and {self.consumers} computing "
                f"warpgroups are {lanes * wanted} in all, and a CTA has {lanes * pool}; the "
                "computing ones would wait for ever, so ask for fewer."
            )
