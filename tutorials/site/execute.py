"""``python -m tutorials.site.execute FILE OUT``: run a tutorial and keep what each cell prints.

The code keeps the lines that it has in its file, because TVMScript reads its own source.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
import types
from pathlib import Path

from tutorials.site.notebooks import cells


def execute(path: Path) -> dict[int, str]:
    """Run a file as a program.

    Returns
    -------
    dict of int to str
        What is printed on standard output, by the first line of the cell that prints.
    """
    module = types.ModuleType("__main__")
    module.__file__ = str(path)
    sys.modules["__main__"] = module
    sys.argv = [str(path)]
    sys.path.insert(0, str(path.parent))
    tree = ast.parse(path.read_text(), str(path))
    starts = [cell.line for cell in cells(path) if cell.is_code]
    printed = {}
    for start, end in zip(starts, [*starts[1:], sys.maxsize], strict=True):
        body = [each for each in tree.body if start <= _first_line(each) < end]
        code = compile(ast.Module(body, []), str(path), "exec")
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code, module.__dict__)
        printed[start] = out.getvalue()
    return printed


def _first_line(statement: ast.stmt) -> int:
    decorators = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(each.lineno for each in decorators)])


if __name__ == "__main__":
    file, kept = map(Path, sys.argv[1:])
    Path(kept).write_text(json.dumps(execute(file)))
