"""The shares of a model's kernels as a table that fits a terminal of 80 columns, or of more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from warploom.relax.time_shares import KINDS, ROWS, TVM, WGMMA, FunctionShares, KernelShare

#: Colours of the kinds.
_STYLES = {WGMMA: "blue", ROWS: "green", TVM: "bold red"}
#: Characters of a terminal's line from which sizes and tiles are shown.
_WITH_WORDS = 110
#: Columns with numbers, and how they are set.
_COLUMNS = (("time", "right"), ("", "left"), ("µs", "right"), ("calls", "right"),
            ("FLOPs", "right"), ("bytes", "right"), ("by", "left"))  # fmt: skip
#: The part of the room beside them that names of kernels may take.
_NAME_PART = 0.42
#: Characters of a name, at the least: a narrower terminal wraps or cuts lines.
_LEAST = 12
#: Characters of the longest bar.
_BAR = 10
_EIGHTHS = " ▏▎▍▌▋▊▉█"


class SharesTable:
    """One Relax function: a row for each kernel, the longest first, and totals.

    Parameters
    ----------
    shares : FunctionShares
    """

    def __init__(self, shares: FunctionShares) -> None:
        self.shares = shares

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(_title(self.shares), style="bold", overflow="fold")
        wide = options.max_width >= _WITH_WORDS
        cells = [self._row(kernel) for kernel in self.shares.kernels]
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
        used = 0
        for place, (header, justify) in enumerate(_COLUMNS):
            width = max([len(header), *(len(row[place]) for row in cells)])
            table.add_column(header, justify=justify, no_wrap=True, width=width)
            used += width + 1
        left = max(_LEAST, options.max_width - used)
        name = max([len("kernel"), *(len(row[len(_COLUMNS)]) for row in cells)])
        name = min(name, int(left * _NAME_PART) if wide else left)
        table.add_column("kernel", no_wrap=True, overflow="ellipsis", width=name)
        if wide:
            room = left - name - 1
            table.add_column("what", no_wrap=True, overflow="ellipsis", max_width=room)
        for row in cells:
            table.add_row(*(row if wide else row[:-1]))
        if cells:
            yield table
            yield from self._totals()
        yield from self._reasons()

    def _row(self, kernel: KernelShare) -> list[Text]:
        share, style = self.shares.share, _STYLES[kernel.kind]
        part = share("time", kernel)
        return [
            Text(percent(part)),
            Text(_bar(part), style=style),
            Text(("≥" if kernel.at_least else "") + number(kernel.time)),
            Text(str(kernel.calls)),
            Text(percent(share("flops", kernel)) if kernel.flops else "-"),
            Text(percent(share("bytes", kernel))),
            Text(kernel.kind, style=style),
            Text(kernel.name, style=style if kernel.kind == TVM else ""),
            Text(kernel.words, style="dim"),
        ]

    def _totals(self) -> Iterator[Text]:
        shares = self.shares
        at_least = "at least " if any(one.at_least for one in shares.kernels) else ""
        flops = f"{si(shares.total('flops'))}FLOP, " if shares.total("flops") else ""
        yield Text(
            f"{at_least}{number(shares.total('time'))} µs, {flops}"
            f"{si(shares.total('bytes'))}B, {_launches(shares.total('calls'))}",
            style="bold",
        )
        for kind in KINDS:
            if not shares.total("calls", kind):
                continue
            parts = [
                f"{percent(shares.share(quantity, kind))} of the {words}"
                for quantity, words in (("time", "time"), ("flops", "FLOPs"), ("bytes", "bytes"))
                if shares.total(quantity, kind)
            ]
            launches = _launches(shares.total("calls", kind))
            yield Text(f"  {kind:5} {', '.join(parts)}, {launches}", style=_STYLES[kind])

    def _reasons(self) -> Iterator[Padding]:
        lines = [
            Text(f"left to TVM: {kernel.name}: {kernel.reason}", style=_STYLES[TVM])
            for kernel in self.shares.kernels
            if kernel.kind == TVM
        ]
        lines += [
            Text(f"not modelled: {calls} call{'s' * (calls != 1)} of {name}", style="dim")
            for name, calls in sorted(self.shares.uncounted.items())
        ]
        for line in lines:
            yield Padding(line, (0, 0, 0, 2), expand=False)


def _title(shares: FunctionShares) -> str:
    sizes = ", ".join(f"{name} = {size}" for name, size in shares.sizes.items())
    return shares.name + (f", {sizes}" if sizes else "")


def _launches(count: float) -> str:
    return f"{count:.0f} launch{'es' if count != 1 else ''}"


def legend(gpu: str, functions: Sequence[FunctionShares]) -> str:
    """What the numbers are, in a sentence or two."""
    text = f"Modelled on {gpu}; nothing was measured."
    if any(kernel.at_least for one in functions for kernel in one.kernels):
        text += " ≥: at least, from bytes and multiply-adds."
    return text


def percent(part: float) -> str:
    """A share between 0 and 1; small ones are not 0."""
    if part and part < 0.001:
        return "<0.1%"
    return f"{part:.1%}" if part < 0.9995 else "100%"


def number(value: float) -> str:
    """Microseconds in three digits or more: ``"1234"``, ``"12.3"``, ``"0.81"``."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def si(value: float) -> str:
    """A number with a unit's prefix: ``"1.23 G"``."""
    for prefix in ("", "k", "M", "G", "T"):
        if value < 999.5:
            return f"{value:.3g} {prefix}"
        value /= 1000
    return f"{value:.3g} P"


def _bar(part: float) -> str:
    eighths = round(part * _BAR * 8)
    whole, rest = divmod(max(1, eighths) if part else 0, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")
