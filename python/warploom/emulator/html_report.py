"""Findings of the emulator as HTML: each with the source on both sides."""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from warploom.emulator.findings import Finding, Side

#: Lines of source before and after the line that a finding names.
_AROUND = 4
_STYLE = """
.wl-report { font-family: sans-serif; color: #222; max-width: 1160px; line-height: 1.45; }
.wl-report h1 { font-size: 1.3em; } .wl-report h2 { font-size: 1.1em; margin: 1.6em 0 .3em; }
.wl-kind { background: #d55e00; color: #fff; padding: .1em .5em; border-radius: .2em; }
.wl-sides { display: flex; flex-wrap: wrap; gap: 14px; margin: .6em 0; }
.wl-side { flex: 1 1 420px; min-width: 0; border: 1px solid #ccc; border-radius: 4px; }
.wl-side > header { background: #ededed; padding: .4em .7em; }
.wl-side pre { margin: 0; padding: .5em 0; overflow-x: auto; font-size: 12.5px; }
.wl-side pre div { padding: 0 .7em; min-width: max-content; }
.wl-side .wl-here { background: #fbe3d4; font-weight: bold; }
.wl-side .wl-n { color: #767676; display: inline-block; width: 3.2em; }
.wl-small { color: #767676; font-size: .88em; }
.wl-fix { border-left: 4px solid #009e73; padding: .2em .8em; margin: .6em 0; }
.wl-report details pre { white-space: pre-wrap; font-size: 12px; }
"""


def html_report(
    findings: Sequence[Finding], files: Mapping[str, str] | None = None, title: str = ""
) -> str:
    """A part of a page.

    Parameters
    ----------
    findings : sequence of Finding
    files : mapping of str to str, optional
        Paths of scripts by the names that reports have for them; without a path, or if the file
        has changed since, only the line that the report quotes is shown.
    title : str
    """
    heading = title or (f"{len(findings)} findings" if len(findings) != 1 else "1 finding")
    parts = [f"<h1>{escape(heading)}</h1>"]
    for number, finding in enumerate(findings, 1):
        parts += _finding(number, finding, files or {})
    if not findings:
        parts.append("<p>The emulator has found nothing wrong.</p>")
    return f'<div class="wl-report"><style>{_STYLE}</style>' + "\n".join(parts) + "</div>"


def html_page(
    findings: Sequence[Finding], files: Mapping[str, str] | None = None, title: str = ""
) -> str:
    """A whole page; the arguments are those of :func:`html_report`."""
    name = escape(title or "Report of the emulator")
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{name}</title></head>'
        f"<body>{html_report(findings, files, title)}</body></html>\n"
    )


def _finding(number: int, finding: Finding, files: Mapping[str, str]) -> Iterator[str]:
    kernel = f" in kernel <code>{escape(finding.kernel)}</code>" if finding.kernel else ""
    kind = escape(finding.kind)
    again = f' <span class="wl-small">found {finding.count} times</span>' * (finding.count > 1)
    yield f'<h2>{number}. <span class="wl-kind">{kind}</span>{kernel}{again}</h2>'
    sides = [side for side in finding.sides if side.file or side.cuda or side.thread]
    if sides:
        yield '<div class="wl-sides">'
        for side in sides[:6]:
            yield from _side(side, files)
        yield "</div>"
    if finding.fix:
        yield f'<p class="wl-fix"><b>Fix:</b> {escape(finding.fix)}</p>'
    hidden = " open" if not sides else ""
    report = f"<summary>The report</summary><pre>{escape(finding.text)}</pre>"
    yield f"<details{hidden}>{report}</details>"


def _side(side: Side, files: Mapping[str, str]) -> Iterator[str]:
    place = f"{side.file}:{side.line}" if side.file else side.cuda or f"PTX line {side.ptx_line}"
    does = f" <b>{side.does}</b>" if side.does else ""
    more = ", ".join(filter(None, (side.thread, side.instruction, f"PTX line {side.ptx_line}")))
    yield f'<section class="wl-side"><header><code>{escape(place)}</code>{does}'
    yield f'<div class="wl-small">{escape(more)}</div></header>'
    rows = [
        f'<div{" class=wl-here" * here}><span class="wl-n">{number}</span>{escape(text)} </div>'
        for number, text, here in _excerpt(side, files)
    ]
    yield f"<pre>{''.join(rows)}</pre>" if rows else ""
    yield "</section>"


def _excerpt(side: Side, files: Mapping[str, str]) -> list[tuple[int, str, bool]]:
    """Lines around a statement: number, text, and whether it is the line itself."""
    if not side.file:
        return []
    quoted = [(side.line, side.source, True)]
    path = files.get(side.file, "")
    if not path or not Path(path).is_file():
        return quoted
    linecache.checkcache(path)
    lines = linecache.getlines(path)
    begin = side.source.removesuffix("...").strip()
    if side.line > len(lines) or not " ".join(lines[side.line - 1].split()).startswith(begin):
        return quoted
    first, last = max(side.line - _AROUND, 1), min(side.line + _AROUND, len(lines))
    return [
        (number, lines[number - 1].rstrip(), number == side.line)
        for number in range(first, last + 1)
    ]
