"""The site: every public name and every page of the guide is on it, links lead somewhere.

Nothing here needs Sphinx but the last test, which builds the site without executing tutorials.
"""

from __future__ import annotations

import doctest
import functools
import importlib.util
import inspect
import json
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

import warploom
from tests.shared.paths import ROOT
from tutorials.site import commands, markdown, notebooks, public, results, stage
from tutorials.site.execute import execute
from warploom import emulator, errors, profile, programs, sparse
from warploom import language as wl
from warploom import meta_schedule as wms
from warploom.cli import COMMANDS
from warploom.decide import Config


@functools.cache
def pages() -> dict[str, str]:
    return stage.pages()


@functools.cache
def described() -> dict[str, public.Entry]:
    """Public names of our own that have docstrings, each object once."""
    found: dict[int, public.Entry] = {}
    for entry in public.entries():
        if entry.kind not in ("data", "module") and entry.is_ours:
            found.setdefault(id(entry.value), entry)
    return {entry.path: entry for entry in found.values()}


def test_every_public_name_is_in_the_reference():
    for entry in public.entries():
        page = pages()[f"reference/{entry.module}.rst"]
        assert re.search(rf"(:: |``){re.escape(entry.path)}\b|``{entry.name}``", page), entry.path


def test_every_public_name_is_described():
    assert not [entry.path for entry in public.entries() if not entry.doc.strip()]


def test_every_docstring_has_an_example():
    without = [
        path
        for path, entry in described().items()
        if not re.search(r"^Examples\n-+\n|>>> |::\n\n", entry.doc, re.MULTILINE)
    ]
    assert not without


def test_modules_of_the_face_are_public():
    """What a guide imports from a package's face has a page."""
    known = {module.name for module in public.MODULES}
    for name in ("language", "programs", "relax", "meta_schedule", "emulator", "profile", "target"):
        assert f"warploom.{name}" in known
    assert {entry.name for entry in public.entries() if entry.module == "warploom"} >= {
        name for name in warploom.__all__ if not name.startswith("__")
    }


def _doctests() -> Iterator[doctest.DocTest]:
    """The examples of the public names, with what the page of the reference says is imported."""
    program = programs.gemm(Config(tile_n=128), 512, 512, 512)
    shared = {
        "np": np, "tvm": tvm, "relax": relax, "wl": wl, "wms": wms, "warploom": warploom,
        "emulator": emulator, "errors": errors, "profile": profile, "programs": programs,
        "sparse": sparse, "warnings": warnings, "Config": Config, "program": program,
        "mod": tvm.IRModule({"main": program}), "target": warploom.cuda_target("h200"),
    }  # fmt: skip
    parser = doctest.DocTestParser()
    for path, entry in described().items():
        home = inspect.getmodule(inspect.unwrap(entry.value))
        names = {**vars(home), **shared, entry.name: entry.value}
        yield parser.get_doctest(entry.doc, names, path, None, None)


def test_examples_do_what_they_say(monkeypatch):
    monkeypatch.delenv("WARPLOOM_SHIPPED", raising=False)
    options = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL | doctest.NORMALIZE_WHITESPACE
    runner = doctest.DocTestRunner(verbose=False, optionflags=options)
    failed = []
    for test in _doctests():
        said: list[str] = []
        if runner.run(test, out=said.append).failed:
            failed.append("".join(said))
    assert runner.tries > 100
    assert not failed, "\n".join(failed)


def test_every_page_of_the_guide_is_on_the_site():
    shown = stage.sources()
    for path in (ROOT / "tutorials" / "guide").glob("*.md"):
        page = shown[path.relative_to(ROOT).as_posix()]
        first = path.read_text().splitlines()[0]
        assert pages()[page].startswith(first)


def test_every_tutorial_kernel_and_result_has_a_page():
    shown = stage.sources()
    patterns = ("tutorials/[0-9]*.py", "tutorials/ladder_*/*.py", "tutorials/gallery/*.py")
    for pattern in (*patterns, "python/warploom_bench/results/*.md"):
        found = [path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern)]
        assert found and not [path for path in found if shown.get(path) not in pages()]


def test_every_page_is_in_a_table_of_contents():
    """Sphinx would warn of others; results say that they are in none."""
    listed = set()
    for name, text in pages().items():
        folder = Path(name).parent
        for match in re.finditer(r"^```\{toctree\}(.*?)^```", text, re.DOTALL | re.MULTILINE):
            lines = [line for line in match[1].splitlines() if line and not line.startswith(":")]
            listed |= {(folder / line).as_posix() for line in lines}
        for match in re.finditer(r"^\.\. toctree::\n(.*)", text, re.DOTALL | re.MULTILINE):
            listed |= {(folder / line).as_posix() for line in match[1].split() if ":" not in line}
    every = {
        name.rpartition(".")[0]
        for name, text in pages().items()
        if name.endswith((".md", ".rst")) and "\norphan: true\n" not in text
    }
    assert every - listed == {"index"}
    assert listed <= every


def test_links_lead_to_pages_and_headings():
    assert not list(stage.broken_links(pages()))


def test_a_broken_link_is_found():
    made = {"a.md": "# A\n\n[b](b.md#there) [c](c.md) [d](#a)\n\n`[e](e.md)`\n", "b.md": "# B\n"}
    assert list(stage.broken_links(made)) == [
        "a.md: b.md#there is no heading of b.md",
        "a.md: c.md is no page",
    ]


def test_links_of_the_repository_lead_to_the_site():
    shown = {"tutorials/guide/x.md": "guide/x.md", "tutorials/07_y.py": "tutorials/07_y.md"}
    code = "```sh\n[x](x.md)\n```\n"
    text = f"[x](x.md#part) [`y`](../*_y.py) `x.md` ![p](no.svg) [z](../z.txt)\n{code}"
    made = markdown.relinked(text, "tutorials/guide/w.md", "guide/w.md", shown)
    assert made == f"[x](x.md#part) [`y`](../tutorials/07_y.md) [`x.md`](x.md) p z\n{code}"


def test_every_command_is_in_the_reference_of_commands():
    index, bench = pages()["commands/index.md"], pages()["commands/bench.md"]
    for command in COMMANDS:
        if command.module is not None:
            assert f"## `warploom {' '.join(command.words)}`" in index
    names = [name for name, _, _ in commands.benchmarks()]
    assert len(names) > 20 and not [name for name in names if f"## `warploom {name}`" not in bench]


def test_every_option_of_a_parser_is_shown():
    for name, about, parser in commands.parsers():
        text = commands.section(name, about, parser)
        options = [option for action in parser._actions for option in action.option_strings]
        shown = set(re.findall(r"`(-[\w-]+)", text))
        assert {*options} - {"-h", "--help"} <= shown, name


def test_cells_are_those_of_the_notebook(tmp_path):
    file = tmp_path / "a.py"
    file.write_text("# %% [markdown]\n# # Title\n#\n# text\n\n# %%\nx = 1\n\n# %%\nprint(x)\n")
    assert notebooks.cells(file) == [
        notebooks.Cell(False, "# Title\n\ntext", 2),
        notebooks.Cell(True, "x = 1", 7),
        notebooks.Cell(True, "print(x)", 10),
    ]


def test_outputs_stand_below_the_cells_that_print(tmp_path, monkeypatch):
    monkeypatch.setattr(notebooks, "ROOT", tmp_path)
    file = tmp_path / "a.py"
    file.write_text("# %% [markdown]\n# # Title\n\n# %%\nx = 1\n\n# %%\nprint(x + 1)\n")
    outputs = notebooks.Outputs(tmp_path)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", [*sys.path])
    outputs.file(file).write_text(json.dumps(execute(file)))
    text = notebooks.page(file, outputs)
    assert text.index("x = 1") < text.index("print(x + 1)") < text.index(":class: output\n\n2\n")
    assert text.count(":class: output") == 1


def test_ratios_are_those_to_the_fastest_library():
    entry = "{{'name': '{}', 'seconds': {{'burst': [{}]}}}}".format
    entries = [eval(entry(*pair)) for pair in (("default", 2.0), ("cublaslt", 4.0), ("torch", 3.0))]
    shape = {"m": 1, "n": 2, "k": 3, "dtype": "float16"}
    found = results.ratios([{"shape": shape, "entries": entries}])
    assert found == [("1 x 2 x 3 float16", 1.5)]


@pytest.mark.long
def test_the_site_builds_without_a_warning(tmp_path):
    for name in ("sphinx", "myst_parser", "furo"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed; pip install '.[docs]' has it")
    command = [sys.executable, "-m", "tutorials.site", "--no-execute", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    home = (tmp_path / "html" / "index.html").read_text()
    assert "Write kernels" in home
    for module in public.MODULES:
        page = (tmp_path / "html" / "reference" / f"{module.name}.html").read_text()
        assert not [name for name in module.names() if name not in page]
