"""``python -m warploom_bench headline``: the numbers of the first page, from one committed run.

``--collect DIR`` takes the medians out of the folders that ``bench goals --out DIR`` has written,
and ``--out FILE`` keeps them. ``--page FILE`` writes the table between the two marks of a Markdown
page, and ``--chart FILE`` draws it. A test compares page and chart with the committed run.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from warploom.command_line import Parser, input_file, output_file
from warploom.errors import WarploomError, reading
from warploom_bench.claims import Claim, load
from warploom_bench.report import markdown_table

#: Between these a page has the table.
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
_OURS = ("tuned", "default")
_FIRST, _BEST = ("cublaslt",), ("cublaslt", "cublaslt-best")
_FASTEST = "cuBLASLt, best of 8"


@dataclass(frozen=True)
class Line:
    """A row of the table.

    Attributes
    ----------
    label, library : str
        The workload, and the library that warploom is compared with.
    row : str
        Of the goals, whose results have it.
    claim : dict
        How a ratio is made of them, as :class:`warploom_bench.claims.Claim` takes it.
    """

    label: str
    library: str
    row: str
    claim: Mapping[str, Any] = field(default_factory=dict)

    def cells(self, results: Mapping[str, Any]) -> tuple[int, float, float] | None:
        """Shapes, geometric mean and worst ratio; None if there is no such result."""
        of_row = results.get(self.row, {})
        means = [
            Claim(self.label, 1.0, take=take, **self.claim).measured(of_row)
            for take in ("mean", "worst")
        ]
        if None in means:
            return None
        (mean, detail), (worst, _) = means
        return int(detail.split()[0]), mean, worst


def _of(ours: Sequence[str], over: Sequence[str], **more: Any) -> dict[str, Any]:
    return {"ours": tuple(ours), "over": tuple(over), **more}


LINES = (
    Line("float16, random shapes (seed 20261123), default config", _FASTEST, "unseen-f16",
         _of(["default"], _BEST)),
    Line("float16, public suite, default config", _FASTEST, "public-f16", _of(["default"], _BEST)),
    Line("float16, public suite, shipped records", _FASTEST, "public-f16", _of(_OURS, _BEST)),
    Line("bfloat16, public suite, shipped records", _FASTEST, "public-bf16", _of(_OURS, _BEST)),
    Line("float16, up to 64 rows, alone on the GPU", "cuBLASLt", "public-f16",
         _of(_OURS, _FIRST, protocol="alone", where={"group": "decode"})),
    Line("float16, up to 64 rows, behind a copy", "cuBLASLt", "public-f16",
         _of(_OURS, _FIRST, protocol="behind a copy", where={"group": "decode"})),
    Line("float8, squares and DeepSeek layers", _FASTEST, "public-fp8", _of(_OURS, _BEST)),
    Line("float16, Llama layers with epilogues", _FASTEST, "fused", _of(_OURS, _BEST)),
    Line("4-bit weights, 1 to 64 rows", "cuBLAS, float16", "dequant"),
    Line("grouped GEMM, bfloat16", "PyTorch, cuBLAS", "grouped"),
    Line("attention forward, head dim 128", "PyTorch's fastest", "attention",
         {"where": {"causal": False}}),
    Line("the same, causal", "PyTorch's fastest", "attention", {"where": {"causal": True}}),
)  # fmt: skip


def collect(folder: Path) -> dict[str, Any]:
    """The medians of all rows in a folder of ``bench goals``, with where they were measured.

    Raises
    ------
    WarploomError
        If the folder has no results.
    """
    medians, facts = {}, None
    for row in load():
        results = row.results(folder)
        if "comparisons" in results:
            facts = facts or results["environment"]
            medians[row.name] = _medians(results)
    if facts is None:
        raise WarploomError(f"{folder} has no results of `warploom bench goals`.")
    keep = ("date", "gpu", "versions")
    return {
        "command": "warploom bench goals",
        **{name: facts[name] for name in keep},
        "results": medians,
    }


def _medians(results: Mapping[str, Any]) -> dict[str, Any]:
    def entry(result: Mapping[str, Any]) -> dict[str, Any]:
        seconds = {
            name: [float(f"{statistics.median(samples):.5g}")]
            for name, samples in result["seconds"].items()
        }
        return {"name": result["name"], "seconds": seconds}

    copy = results["environment"].get("copy_bytes_per_second")
    return {
        "environment": {"copy_bytes_per_second": copy},
        "comparisons": [
            {
                **{key: result[key] for key in ("shape", "text", "operations", "bytes")},
                "entries": list(map(entry, result["entries"])),
            }
            for result in results["comparisons"]
        ],
    }


def read(file: Path | None = None) -> dict[str, Any]:
    """A collected run: of a file, or the newest that comes with the package.

    Raises
    ------
    WarploomError
        If there is none.
    """
    if file is None:
        folder = resources.files("warploom_bench").joinpath("data")
        names = sorted(
            file.name for file in folder.iterdir() if file.name.endswith("-headline.json")
        )
        if not names:
            raise WarploomError("The package has no headline run; name a file with --run.")
        return json.loads(folder.joinpath(names[-1]).read_text(encoding="utf-8"))
    with reading(file, "collected run"):
        return json.loads(file.read_text(encoding="utf-8"))


def table(run: Mapping[str, Any]) -> str:
    """Where, when and how the run was made, and its rows, in Markdown."""
    gpu, versions = run["gpu"].get("name", "a GPU"), run["versions"]
    rows = [
        [line.label, str(cells[0]), f"{cells[1]:.3f}", f"{cells[2]:.3f}", line.library]
        for line in LINES
        if (cells := line.cells(run["results"])) is not None
    ]
    head = (
        f"One {gpu}, PyTorch {versions.get('torch', '')}, {run['date'][:10]}, `{run['command']}`. "
        "Ratios of speed, geometric means;\nabove 1 warploom is faster."
    )
    return f"{head}\n\n{markdown_table(['GEMM', 'shapes', 'ratio', 'worst', 'to'], rows)}"


def with_table(page: str, run: Mapping[str, Any]) -> str:
    """A page with the table of a run between its two marks.

    Raises
    ------
    WarploomError
        If the page has no such marks.
    """
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if not pattern.search(page):
        raise WarploomError(f"The page has no lines {BEGIN} and {END}.")
    return pattern.sub(lambda _: f"{BEGIN}\n{table(run)}\n{END}", page, count=1)


#: Sizes of the chart, in pixels: a row, its labels, a ratio of 1, and the whole.
_ROW, _LABELS, _UNIT, _WIDTH = 26, 430, 150, 860


def chart(run: Mapping[str, Any]) -> str:
    """The ratios as horizontal bars, in SVG: the line is the library, the tick the worst shape."""
    rows = [(line, cells) for line in LINES if (cells := line.cells(run["results"])) is not None]
    height = _ROW * (len(rows) + 2)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" font-family="sans-serif" font-size="13" '
        'fill="#767676">',
    ]
    for number, (line, (_, mean, worst)) in enumerate(rows):
        top = _ROW * (number + 1)
        long, tick = min(mean, 2.6) * _UNIT, _LABELS + worst * _UNIT
        color = "#2f81f7" if mean >= 1 else "#db6d28"
        lines += [
            f'<text x="{_LABELS - 10}" y="{top + 17}" text-anchor="end">{line.label}</text>',
            f'<rect x="{_LABELS}" y="{top + 4}" width="{long:.1f}" height="{_ROW - 8}" '
            f'fill="{color}"/>',
            f'<line x1="{tick:.1f}" x2="{tick:.1f}" y1="{top + 2}" y2="{top + _ROW - 2}" '
            'stroke="#767676" stroke-width="2"/>',
            f'<text x="{_LABELS + long + 6:.1f}" y="{top + 17}">{mean:.2f}</text>',
        ]
    scale = _LABELS + _UNIT
    lines += [
        f'<line x1="{scale}" x2="{scale}" y1="{_ROW - 4}" y2="{height - _ROW + 4}" '
        'stroke="#767676"/>',
        f'<text x="{scale}" y="{_ROW - 9}" text-anchor="middle">the library = 1</text>',
        f'<text x="{_LABELS}" y="{height - 8}">speed relative to the library; '
        "the tick is the worst shape</text>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = Parser(prog="warploom bench headline", description=__doc__)
    parser.add_argument("--collect", type=Path, metavar="DIR", help="of `bench goals --out DIR`")
    parser.add_argument("--run", type=input_file, metavar="FILE", help="a collected run")
    parser.add_argument(
        "--out", type=output_file, metavar="FILE", help="where to keep the collected results"
    )
    parser.add_argument(
        "--page", type=input_file, metavar="FILE", help="Markdown page to write into"
    )
    parser.add_argument("--chart", type=output_file, metavar="FILE", help="SVG to draw")
    options = parser.parse_args(arguments)
    run = collect(options.collect) if options.collect else read(options.run)
    if options.out:
        options.out.write_text(json.dumps(run) + "\n", encoding="utf-8")
    if options.page:
        page = options.page.read_text(encoding="utf-8")
        options.page.write_text(with_table(page, run), encoding="utf-8")
    if options.chart:
        options.chart.write_text(chart(run), encoding="utf-8")
    print(table(run))
    return 0
