"""The streams of a launch: the records of its threads, and how they spent their time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Span:
    """A span.

    Attributes
    ----------
    name, category : str
    begin, end : float
        Nanoseconds since the first begin of any recorded stream; instructions on the emulator.

    Examples
    --------
    >>> span = profile.Span("wait", "wait", begin=10.0, end=35.0)
    >>> span.end - span.begin
    25.0
    """

    name: str
    category: str
    begin: float
    end: float

    @property
    def length(self) -> float:
        """``end - begin``."""
        return self.end - self.begin


@dataclass(frozen=True)
class Stream:
    """The records of one thread of a CTA.

    Attributes
    ----------
    name : str
        Its role.
    cta, sm : int
        The number of its CTA in the grid, and of the multiprocessor that it ran on.
    begin, end : float
        As those of a span.
    spans : tuple of Span
        In the order of their ends.
    full : bool
        Whether there was no room for further spans.

    Examples
    --------
    >>> stream = timeline.streams[0]  # doctest: +SKIP
    >>> waits = [span for span in stream.spans if span.category == "wait"]  # doctest: +SKIP
    >>> sum(span.end - span.begin for span in waits)  # doctest: +SKIP
    """

    name: str
    cta: int
    sm: int
    begin: float
    end: float
    spans: tuple[Span, ...]
    full: bool

    @property
    def role(self) -> str:
        """The role of its threads, without the number of the group."""
        return self.name if self.name.startswith("warp ") else self.name.split()[0]

    @property
    def recorded_until(self) -> float:
        """The time up to which spans are known."""
        return max((span.end for span in self.spans), default=self.begin) if self.full else self.end


@dataclass(frozen=True)
class Subject:
    """The kernel that a timeline is of.

    Attributes
    ----------
    kernel : str
        Its name.
    parameters : tuple of str
        Its parameters, as ``"A[512, 768] float16"``.
    suppliers : mapping of str to tuple of str
        For each mbarrier the roles that complete its phases: what a wait for it waits for.
    """

    kernel: str = ""
    parameters: tuple[str, ...] = ()
    suppliers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Streams:
    """All streams of a launch.

    Attributes
    ----------
    streams : tuple of Stream
        By CTA, then in the order of the roles.
    gigahertz : float
        Clocks in a nanosecond, as the records tell; 1 on the emulator.
    emulated : bool
        Whether times are instructions of the emulator, which counts those of each cluster.
    subject : Subject
        The kernel.
    """

    streams: tuple[Stream, ...]
    gigahertz: float
    emulated: bool = False
    subject: Subject = Subject()

    @property
    def length(self) -> float:
        """Nanoseconds from the first begin to the last end."""
        return max(stream.end for stream in self.streams)

    @property
    def busy_ctas(self) -> set[int]:
        """The recorded CTAs that have a span."""
        return {stream.cta for stream in self.streams if stream.spans}

    def shares(self) -> dict[str, dict[str, float]]:
        """For each role the part of its recorded time that it spends in spans of each category.

        Spans within others count once; warpgroups of a role count together. CTAs that found
        nothing to do are left out, and roles (or warps) without a span.
        """
        spent: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        total: dict[str, float] = defaultdict(float)
        busy = self.busy_ctas
        for stream in self.streams:
            if stream.cta not in busy:
                continue
            role = stream.role
            total[role] += stream.recorded_until - stream.begin
            for span in outermost(stream.spans):
                spent[role][span.category] += span.length
        return {
            role: {kind: time / total[role] for kind, time in spent[role].items()}
            for role in total if spent[role]
        }  # fmt: skip

    def summary(self) -> str:
        """The shares as a table, and the recorded spans."""
        shares = self.shares()
        names = list(dict.fromkeys(kind for share in shares.values() for kind in share))
        width = max(map(len, [*shares, "role"]))
        lines = [f"{'role':{width}}  " + "  ".join(f"{name:>8}" for name in names)]
        for role, parts in shares.items():
            cells = [f"{100 * parts.get(name, 0.0):6.1f} %" for name in names]
            lines.append(f"{role:{width}}  " + "  ".join(cells))
        spans = sum(len(stream.spans) for stream in self.streams)
        full = sum(stream.full for stream in self.streams)
        rest = f"; {full} streams have recorded their beginning only" if full else ""
        lines.append(f"{spans} spans of {len(self.busy_ctas)} CTAs{rest}")
        return "\n".join(lines)


def outermost(spans: Sequence[Span]) -> list[Span]:
    """The spans that are in no other one."""
    outer: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.begin, -span.end)):
        if not outer or span.begin >= outer[-1].end:
            outer.append(span)
    return outer
