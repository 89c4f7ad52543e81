"""``warploom tutorials export DIR``: notebooks of the tutorials.

Tutorials are Python files in the percent format: a line ``# %%`` begins a cell of code, and
``# %% [markdown]`` one of text, whose lines are comments.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warploom.command_line import Parser, output_folder
from warploom.errors import WarploomError

#: The program that opens the notebooks.
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def find_tutorials(folder: Path) -> list[Path]:
    """All tutorials of a folder, those of its subfolders last.

    Raises
    ------
    WarploomError
        If there are none.
    """
    tutorials = [*sorted(folder.glob("[0-9]*.py")), *sorted(folder.glob("*/v[0-9]*.py"))]
    if not tutorials:
        raise WarploomError(
            f"{folder} has no tutorials; run in a checkout of warploom, or name the folder with "
            "--tutorials."
        )
    return tutorials


def notebook(path: Path) -> Any:
    """A tutorial as a notebook (an ``nbformat.NotebookNode``) without outputs.

    Raises
    ------
    WarploomError
        If jupytext is missing, or the file has no cells.
    """
    try:
        jupytext = importlib.import_module("jupytext")
    except ImportError as error:
        raise WarploomError(
            "Notebooks are made by jupytext; install it with `pip install 'warploom[notebooks]'`."
        ) from error
    text = path.read_text(encoding="utf-8")
    if not text.startswith("# %%"):
        raise WarploomError(f"{path} has no cells; it must begin with a line '# %%'.")
    made = jupytext.reads(text, fmt="py:percent")
    made.metadata = {"kernelspec": _KERNEL, "language_info": {"name": "python"}}
    return made


def export(folder: Path, out: Path) -> list[Path]:
    """Write a notebook of each tutorial in ``folder`` to the same place under ``out``.

    Parameters
    ----------
    folder : Path
        Of the tutorials.
    out : Path
        Made if need be; notebooks of the same names are replaced.

    Returns
    -------
    list of Path
        The notebooks.

    Raises
    ------
    WarploomError
        As :func:`find_tutorials` and :func:`notebook`.
    """
    written = []
    for path in find_tutorials(folder):
        made = notebook(path)
        place = (out / path.relative_to(folder)).with_suffix(".ipynb")
        place.parent.mkdir(parents=True, exist_ok=True)
        importlib.import_module("nbformat").write(made, place)
        written.append(place)
    return written


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = Parser(
        prog="warploom tutorials export", description="Write the tutorials as Jupyter notebooks."
    )
    parser.add_argument("out", type=output_folder, metavar="DIR", help="folder for the notebooks")
    parser.add_argument(
        "--tutorials", type=Path, default=Path("tutorials"),
        help="folder of the tutorials (default: %(default)s)",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    for path in export(options.tutorials, options.out):
        print(path)
    return 0
