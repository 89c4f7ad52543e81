"""The sources of the site: what the repository has, and what is made of it.

Nothing here needs Sphinx. A page of the site is a text; pages that the repository has already (the
guide, results, the changelog) are read where they are, and only their links are changed.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from tutorials.site import commands, drawings, gallery, markdown, notebooks, reference, results

ROOT = Path(__file__).parents[2]
SITE = Path(__file__).parent

#: Markdown of the repository -> its page.
_SINGLE = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    ".github/SECURITY.md": "project/security.md",
    "tests/README.md": "project/tests.md",
    "python/warploom_bench/README.md": "performance/method.md",
    "python/warploom/lower/README.md": "project/lowering.md",
    "python/warploom/language/builtins/VOCABULARY.md": "guide/builtins.md",
    "src/emulator/README.md": "project/emulator.md",
}
#: Pages of the guide that other sections have.
_MOVED = {
    "performance": "performance/index.md",
    "architecture": "project/architecture.md",
    "stability": "project/stability.md",
    "limits": "reference/limits.md",
    "environment": "reference/environment.md",
}


def sources() -> dict[str, str]:
    """Path of a file of the repository -> the file of the site that shows it."""
    found = {path: page for path, page in _SINGLE.items() if (ROOT / path).exists()}
    found["README.md"] = "index.md"
    found["tutorials/README.md"] = "tutorials/index.md"
    found["tutorials/gallery/README.md"] = "gallery/index.md"
    for path in _paths("tutorials/guide/*.md"):
        moved = _MOVED.get(path.stem, f"guide/{path.name}")
        found[_name(path)] = "guide/index.md" if path.stem == "README" else moved
    for path in _paths("tutorials/guide/*.svg"):
        found[_name(path)] = f"guide/{path.name}"
    for path in _paths("python/warploom_bench/results/*.md"):
        found[_name(path)] = f"performance/{path.name}"
    for path in _paths("tutorials/site/pages/**/*.md"):
        found[_name(path)] = path.relative_to(SITE / "pages").as_posix()
    found["tutorials/site/pages/home.md"] = "index.md"
    for path in notebooks.tutorials(ROOT / "tutorials"):
        place = path.relative_to(ROOT / "tutorials").with_suffix(".md").as_posix()
        found[_name(path)] = f"tutorials/{place}"
    for path in gallery.kernels(ROOT / "tutorials" / "gallery"):
        found[_name(path)] = f"gallery/{path.stem}.md"
    return found


def pages(outputs: notebooks.Outputs | None = None) -> dict[str, str]:
    """The text of every page and picture that is made, by its file.

    Parameters
    ----------
    outputs : Outputs, optional
        What the tutorials have printed; without it their pages show the code alone.
    """
    shown = sources()
    made: dict[str, str] = {}
    made |= generated()
    shown |= {f"tutorials/site/pages/{name}": name for name in made}
    for source, page in shown.items():
        path = ROOT / source
        if page in made or source == "README.md":
            continue
        if source.startswith("python/warploom_bench/results/"):
            text = results.with_title(path.stem, path.read_text())
        elif source.startswith("tutorials/gallery/") and path.suffix == ".py":
            text = gallery.page(path, outputs)
        elif path.suffix == ".py":
            text = notebooks.page(path, outputs)
        else:
            text = path.read_text()
        made[page] = markdown.relinked(text, source, page, shown) if page.endswith(".md") else text
    return with_contents(made)


def generated() -> dict[str, str]:
    """Pages and pictures that no file has: reference, commands, charts, drawings."""
    measured = ROOT / "python" / "warploom_bench"
    chart_page, pictures = results.charts(
        [*sorted(measured.glob("data/*.json")), *sorted(measured.glob("results/*.json"))]
    )
    made = {"performance/all.md": results.index(measured / "results")}
    made["performance/charts.md"] = chart_page
    made |= {f"performance/{name}": text for name, text in pictures.items()}
    made |= {f"{name}.rst": text for name, text in reference.pages().items()}
    made |= {f"{name}.md": text for name, text in commands.pages().items()}
    return made | {f"guide/{name}": text for name, text in drawings.pictures().items()}


def with_contents(made: Mapping[str, str]) -> dict[str, str]:
    """The pages, with the tables of contents of the sections."""
    made = dict(made)

    def under(folder: str) -> list[str]:
        inside = [name for name in made if name.startswith(f"{folder}/")]
        names = {name.rpartition(".")[0].removeprefix(f"{folder}/") for name in inside
                 if name.endswith((".md", ".rst"))}  # fmt: skip
        return sorted(names - {"index"})

    first = ["concepts", "tile-programs", "choices", "kernels-by-hand", "builtins", "models"]
    guide = [*first, *(name for name in under("guide") if name not in first)]
    read = re.findall(r"\[`(\d\w+)\.py`\]", made["tutorials/index.md"])
    steps = [name for name in under("tutorials") if "/" not in name and name != "ladder"]
    steps.sort(key=lambda name: read.index(name) if name in read else len(read))
    made["tutorials/ladder.md"] = _ladder(made)
    made["guide/index.md"] += _contents(guide)
    made["tutorials/index.md"] += _contents([*steps, "ladder"])
    made["gallery/index.md"] += _contents(under("gallery"))
    made["how-to/index.md"] += _contents(under("how-to"))
    made["performance/index.md"] += _contents(["method", "charts", "all"])
    made["project/index.md"] += _contents(under("project"))
    return made


def _ladder(made: Mapping[str, str]) -> str:
    """The page of the ladder: each step on both architectures."""
    pages = sorted(name for name in made if name.startswith("tutorials/ladder_"))
    rows: dict[str, dict[str, str]] = {}
    for name in pages:
        _, folder, file = name.split("/")
        rows.setdefault(file, {})[folder.removeprefix("ladder_")] = f"{folder}/{file}"
    text = [
        "# The ladder",
        "",
        "Eleven steps from one tile that waits for everything to a kernel at the speed of cuBLAS.",
        "",
        "| step | Hopper | Blackwell |",
        "|---|---|---|",
    ]
    for file, links in rows.items():
        number = file.partition("_")[0]
        title = made["tutorials/" + next(iter(links.values()))].partition("\n")[0]
        idea = title.partition(": ")[2]
        cells = [f"[{number}]({links[key]})" if key in links else ""
                 for key in ("hopper", "blackwell")]  # fmt: skip
        text.append(f"| {idea} | {cells[0]} | {cells[1]} |")
    listed = [link for key in ("hopper", "blackwell") for row in rows.values()
              if (link := row.get(key, "").removesuffix(".md"))]  # fmt: skip
    return "\n".join(text) + "\n" + _contents(listed)


def _contents(names: list[str]) -> str:
    listed = "\n".join(names)
    return f"\n\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"


def write(folder: Path, outputs: notebooks.Outputs | None = None) -> None:
    """Write all sources into a folder, whose former contents go."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in pages(outputs).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def broken_links(made: Mapping[str, str]) -> Iterator[str]:
    """Every link of a page in Markdown that leads to no page, picture or heading."""
    for name, text in made.items():
        if not name.endswith(".md"):
            continue
        for target in markdown.links(text):
            if not markdown.is_local(target):
                continue
            path, _, anchor = target.partition("#")
            other = _joined(name, path) if path else name
            if other not in made and not (SITE / other.removeprefix("_")).exists():
                yield f"{name}: {target} is no page"
            elif anchor and other.endswith(".md") and anchor not in markdown.anchors(made[other]):
                yield f"{name}: {target} is no heading of {other}"


def _joined(name: str, path: str) -> str:
    parts = list(Path(name).parent.parts)
    for part in Path(path).parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def _paths(pattern: str) -> list[Path]:
    return sorted(ROOT.glob(pattern))


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
