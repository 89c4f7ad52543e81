"""Pages of measurements, made from ``python/warploom_bench/results`` and ``data``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tutorials.site.charts import bars

#: Names of the entries that are warploom's, the most important first.
_OURS = ("tuned", "default", "warploom, tile program", "warploom")


def title_of(name: str, text: str) -> str:
    """The heading of a page of results: its own, or one made from the name of its file."""
    own = re.match(r"# (.+)\n", text)
    if own:
        return own[1].strip()
    date, gpu, what = re.fullmatch(r"(\d{4}-\d\d-\d\d)-(?:(h\d+)-)?(.+)", name).groups()
    words = what.replace("_", " ").replace("-", " ")
    return f"{words[0].upper()}{words[1:]} ({(gpu + ', ').upper() if gpu else ''}{date})"


def with_title(name: str, text: str) -> str:
    """A page of results with a heading of the first level; tables list it, no contents do."""
    if not text.startswith("# "):
        deeper = re.sub(r"^# ", "## ", text, flags=re.MULTILINE)
        text = f"# {title_of(name, text)}\n\n{deeper}"
    return f"---\norphan: true\n---\n\n{text}"


def index(folder: Path) -> str:
    """The table of all pages of results, the latest first."""
    rows = []
    for path in sorted(folder.glob("*.md"), reverse=True):
        title = re.sub(r"\s*\([^()]*\)$", "", title_of(path.stem, path.read_text()))
        gpu = re.search(r"-(h\d+)-", path.name)
        rows.append(
            f"| {path.name[:10]} | {gpu[1].upper() if gpu else ''} | [{title}]({path.name}) |"
        )
    return (
        "# All measurements\n\n"
        "Every page has its date, machine and command. [Charts](charts.md) shows the runs whose "
        "samples are kept as JSON.\n\n"
        "| date | GPU | page |\n|---|---|---|\n" + "\n".join(rows) + "\n\n"
        "[Back to performance](index.md)\n"
    )


def charts(files: Sequence[Path]) -> tuple[str, dict[str, str]]:
    """A page with a chart for each run that is kept as JSON.

    Parameters
    ----------
    files : sequence of Path
        JSON as ``warploom bench WHAT --out`` writes.

    Returns
    -------
    tuple of (str, dict of str to str)
        The page, and the pictures (SVG) by their names.
    """
    text = [
        "# Charts",
        "",
        "Bars are speeds relative to the fastest library of the same run; longer than 1 means "
        "that warploom is faster. The samples are in the JSON files beside the pages.",
        "",
    ]
    pictures = {}
    for name, run, comparisons in _runs(files):
        rows = ratios(comparisons)
        if not rows:
            continue
        gpu = run["gpu"]["name"]
        pictures[f"{name}.svg"] = bars(rows, f"Speed relative to the fastest library ({gpu})")
        text += [
            f"## {title_of(name, '')}",
            "",
            f"`{run['command']}`, {run['date']}, {gpu}.",
            "",
            f"![Ratios of {name}]({name}.svg)",
            "",
        ]
    return "\n".join(text), pictures


def _runs(files: Sequence[Path]) -> Iterator[tuple[str, dict[str, Any], list[dict[str, Any]]]]:
    """(name, environment, comparisons) of every run; a file may hold one run or several."""
    for file in files:
        loaded = json.loads(file.read_text())
        if "comparisons" in loaded:
            yield file.stem, loaded["environment"], loaded["comparisons"]
        for name, run in loaded.get("results", {}).items():
            yield f"{file.stem}-{name}", loaded, run["comparisons"]


def ratios(comparisons: Sequence[dict[str, Any]]) -> list[tuple[str, float]]:
    """(shape, speed relative to the fastest library) of every comparison that has both."""
    rows = []
    for one in comparisons:
        times = {each["name"]: _median(each) for each in one["entries"]}
        ours = next((times[name] for name in _OURS if times.get(name)), None)
        others = [
            time for name, time in times.items() if time and not name.startswith((*_OURS, "TVM"))
        ]
        if ours and others:
            rows.append((_label(one["shape"]), min(others) / ours))
    return rows


def _median(entry: dict[str, Any]) -> float | None:
    samples = (entry.get("seconds") or {}).get("burst") or []
    return sorted(samples)[len(samples) // 2] if samples else None


def _label(shape: dict[str, Any]) -> str:
    if {"m", "n", "k"} <= shape.keys():
        sizes = f"{shape['m']} x {shape['n']} x {shape['k']}"
    elif "tokens" in shape:
        causal = ", causal" if shape.get("causal") else ""
        sizes = f"{shape['tokens']} tokens, head dim {shape['head_dim']}{causal}"
    elif "rows" in shape:
        quantised = ", 4-bit weights" if (shape.get("sizes") or {}).get("quantised") else ""
        sizes = f"{shape['rows']} rows{quantised}"
    else:
        sizes = str(shape.get("group", "?"))
    dtype = shape.get("dtype") or (shape.get("sizes") or {}).get("dtype") or ""
    return f"{sizes} {dtype}".strip()
