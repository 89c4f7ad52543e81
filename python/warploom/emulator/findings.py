"""Reports of the emulator in parts: what was found, and the statements on both sides of it.

The emulator writes sentences. A statement in them reads ``PTX line 59 (tvm_kernels.cu:82, script
kernel.py:37 b[i] = a[i]): ld.shared.f32 of CTA (0, 0, 0) warp 2 lane 0``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

_SIDE = re.compile(
    r"PTX line (?P<ptx>\d+)(?: \((?P<cuda>\S+?:\d+)?(?:, )?"
    r"(?:script (?P<file>[^\s:]+):(?P<line>\d+) (?P<source>.*?))?\))?: "
    r"(?P<instruction>[\w.:]+)"
    r"(?: of (?P<thread>CTA \([^)]*\) warp \d+(?: lane \d+)?))?(?: (?P<does>reads|writes)\b)?"
)
_KERNEL = re.compile(r"in kernel (\w+)")
_FIX = re.compile(r"Fix: (.*?)(?: \(and \d+ other findings?\))?$", re.S)
#: A line of a deadlock about one warp.
_WARP = re.compile(r"^(  CTA \([^)]*\) )warp (\d+) (.*)$", re.S)
#: What ends a message about several findings.
OTHERS = re.compile(r" \(and \d+ other findings\)")


@dataclass(frozen=True)
class Side:
    """A statement that a finding names.

    Attributes
    ----------
    ptx_line : int
    cuda : str
        ``"tvm_kernels.cu:82"``; empty if it is not known.
    file, line, source : str, int, str
        The place in the author's script and the text there; empty and 0 if it is not known.
    instruction, thread : str
        The PTX instruction, and the thread that executed it.
    does : str
        ``"reads"`` or ``"writes"``; empty if it is something else.
    """

    ptx_line: int
    cuda: str
    file: str
    line: int
    source: str
    instruction: str
    thread: str
    does: str


@dataclass(frozen=True)
class Finding:
    """A report, and how often the like of it was found.

    Attributes
    ----------
    kind : str
        ``"data race"`` and so on.
    text : str
        The report; what repeats is folded.
    count : int
        Reports of this kind about the same statements of the author, by other threads or in other
        trips of a loop.
    """

    kind: str
    text: str
    count: int = 1

    @property
    def kernel(self) -> str:
        """The kernel that it is about; empty if it names none."""
        named = _KERNEL.search(self.text)
        return named[1] if named else ""

    @property
    def fix(self) -> str:
        """What the report recommends; empty if it recommends nothing."""
        fix = _FIX.search(self.text)
        return fix[1].strip() if fix else ""

    @property
    def sides(self) -> tuple[Side, ...]:
        """The different statements that it names, in its order."""
        found: dict[tuple[int, str], Side] = {}
        for match in _SIDE.finditer(self.text):
            side = Side(
                int(match["ptx"]), match["cuda"] or "", match["file"] or "",
                int(match["line"] or 0), match["source"] or "", match["instruction"],
                match["thread"] or "", match["does"] or "",
            )  # fmt: skip
            found.setdefault((side.ptx_line, side.does), side)
        return tuple(found.values())


def findings_of(reports: Iterable[Mapping[str, str]]) -> tuple[Finding, ...]:
    """The different findings of :func:`warploom.emulator.reports`, and how often each was made.

    Reports of a kind that name the same lines of a script are the same; without a script, those
    that name the same instructions. The failure of a launch repeats what was found before it, and
    is left out where it does.
    """
    found: dict[tuple[str, frozenset[str]], Finding] = {}
    texts: set[str] = set()
    for report in reports:
        text = fold(OTHERS.sub("", report["text"]).partition("\nThe launch ended with: ")[0])
        if text in texts:
            continue
        texts.add(text)
        finding = Finding(report["kind"], text)
        places = frozenset(
            f"{side.file}:{side.line}" if side.file else str(side.ptx_line)
            for side in finding.sides
        )
        key = finding.kind, places or frozenset([text])
        before = found.get(key)
        found[key] = finding if before is None else replace(before, count=before.count + 1)
    return tuple(found.values())


def summary(message: str, findings: Sequence[Finding]) -> str:
    """A message of the emulator that says what its other findings are."""
    if not findings or not OTHERS.search(message):
        return message
    first, others = findings[0], findings[1:]
    again = f"found {first.count} times" if first.count > 1 else ""
    names = dict.fromkeys(one.kind for one in others)
    more = f"and {len(others)} other findings: {', '.join(names)}" if others else ""
    words = "; ".join(filter(None, (again, more)))
    return OTHERS.sub(f" ({words})" if words else "", message)


def fold(text: str) -> str:
    """A report in which warps that wait for the same are named together.

    Examples
    --------
    >>> print(fold("deadlock:\\n  CTA (0, 0, 0) warp 4 waits\\n  CTA (0, 0, 0) warp 5 waits"))
    deadlock:
      CTA (0, 0, 0) warps 4 to 5 waits
    """
    merged: list[tuple[str, list[int], str]] = []
    for entry in _entries(text):
        match = _WARP.match(entry)
        if match is None:
            merged.append((entry, [], ""))
            continue
        begin, warp, rest = match[1], int(match[2]), match[3]
        for start, warps, end in merged:
            if warps and (start, end) == (begin, rest):
                warps.append(warp)
                break
        else:
            merged.append((begin, [warp], rest))
    return "\n".join(f"{begin}{_warps(warps)}{rest}" for begin, warps, rest in merged)


def _entries(text: str) -> Iterator[str]:
    """Lines of a report, each with the deeper lines that belong to it."""
    entry: list[str] = []
    for line in text.split("\n"):
        if entry and not line.startswith("      "):
            yield "\n".join(entry)
            entry = []
        entry.append(line)
    yield "\n".join(entry)


def _warps(warps: list[int]) -> str:
    if not warps:
        return ""
    if len(warps) == 1:
        return f"warp {warps[0]} "
    if warps == list(range(warps[0], warps[-1] + 1)):
        return f"warps {warps[0]} to {warps[-1]} "
    return f"warps {', '.join(map(str, warps))} "
