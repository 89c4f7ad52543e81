"""Tutorials are files in cells, which become notebooks with the same code."""

from __future__ import annotations

import ast

import nbformat
import pytest

from tests.shared.paths import ROOT
from warploom import cli
from warploom.errors import WarploomError
from warploom.tutorials import export

FOLDER = ROOT / "tutorials"
TUTORIALS = export.find_tutorials(FOLDER)


def test_every_file_is_found():
    others = ("gallery", "site", "exercises")  # files without cells
    found = ((path.relative_to(FOLDER).parts[0], path) for path in FOLDER.rglob("*.py"))
    in_cells = {path for part, path in found if part not in others}
    assert set(TUTORIALS) == in_cells and len(TUTORIALS) > 22


def test_notebooks_are_valid_and_have_the_code_of_their_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert cli.main(["tutorials", "export", str(tmp_path)]) == 0
    listed = capsys.readouterr().out.split()
    assert len(listed) == len(TUTORIALS)
    for path, place in zip(TUTORIALS, listed, strict=True):
        notebook = nbformat.read(place, as_version=4)
        nbformat.validate(notebook)
        first, *_ = notebook.cells
        assert first.cell_type == "markdown" and first.source.startswith("# "), place
        code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
        assert ast.dump(ast.parse(code)) == ast.dump(ast.parse(path.read_text())), place
        assert all(not cell.outputs for cell in notebook.cells if cell.cell_type == "code")


def test_the_index_names_every_tutorial_once():
    index = (FOLDER / "README.md").read_text()
    for path in TUTORIALS:
        assert index.count(f"| `{path.name}` |") == 1, path.name


def test_without_jupytext_the_extra_is_named(monkeypatch):
    def missing(name, *_):
        raise ImportError(name)

    monkeypatch.setattr(export.importlib, "import_module", missing)
    with pytest.raises(WarploomError, match=r"pip install 'warploom\[notebooks\]'"):
        export.notebook(TUTORIALS[0])


def test_bad_folders_and_files_are_refused(tmp_path):
    with pytest.raises(WarploomError, match="has no tutorials"):
        export.find_tutorials(tmp_path)
    (tmp_path / "01_bare.py").write_text("x = 1\n")
    with pytest.raises(WarploomError, match="must begin with a line '# %%'"):
        export.export(tmp_path, tmp_path / "out")
