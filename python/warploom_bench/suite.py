"""Which GEMMs are measured: suites of shapes, as JSON.

A suite of this package lists its shapes one by one, with the ratio that each must reach
(``suites/foundation.json``). A file that maps group names to lists of ``[M, N, K]`` is read as
well; it has no dtypes, and the caller says which. ``unseen:SEED`` draws such lists at random
(:mod:`warploom_bench.unseen`): no model was fitted to them and no record was measured for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from warploom.errors import WarploomError, reading
from warploom.gemm_shape import GemmShape
from warploom.target import TMA
from warploom.target.dtypes import bits_of
from warploom_bench import unseen


def suite_names() -> list[str]:
    """Suites that come with the package."""
    files = resources.files("warploom_bench").joinpath("suites").iterdir()
    return sorted(file.name.removesuffix(".json") for file in files if file.name.endswith(".json"))


def load_suite(
    name: str,
    dtypes: Sequence[str] = ("float16",),
    groups: Iterable[str] = (),
    layouts: Sequence[str] = ("NT",),
    epilogues: Sequence[str] = ("none",),
) -> list[GemmShape]:
    """Shapes of a suite of this package, or of a JSON file.

    Parameters
    ----------
    name : str
        One of :func:`suite_names`, ``unseen:SEED`` or ``unseen:SEED:COUNT``, or the path of a file.
    dtypes : sequence of str
        For files of ``[M, N, K]`` lists: every shape is measured with each of them.
    groups : iterable of str
        Only these groups; all if empty.
    layouts, epilogues : sequence of str
        As ``dtypes``, for such files.

    Raises
    ------
    WarploomError
        If there is no such suite, group or dtype.
    """
    drawn = unseen.parse(name, _steps(dtypes, layouts, epilogues))
    text = None if drawn else _find(name)
    with reading(name, "suite of shapes"):
        content = drawn or json.loads(text)
        if "shapes" in content:
            shapes = [GemmShape(**entry) for entry in content["shapes"]]
        else:
            shapes = shapes_of(content, dtypes, layouts, epilogues)
    wanted, known = set(groups), {shape.group for shape in shapes}
    if wanted - known:
        raise WarploomError(
            f"Suite {name!r} has no group {min(wanted - known)!r}; "
            f"allowed are {', '.join(sorted(known))}."
        )
    return [shape for shape in shapes if not wanted or shape.group in wanted]


def shapes_of(
    content: Mapping[str, Any],
    dtypes: Sequence[str],
    layouts: Sequence[str] = ("NT",),
    epilogues: Sequence[str] = ("none",),
) -> list[GemmShape]:
    """All combinations of a mapping from groups to lists of ``[M, N, K]`` with the others."""
    return [
        GemmShape(group, *extents, dtype, layout=layout, epilogue=epilogue)
        for group, entries in content.items()
        if _is_shape_list(entries)
        for extents in entries
        for dtype in dtypes
        for layout in layouts
        for epilogue in epilogues
    ]


def _steps(
    dtypes: Sequence[str], layouts: Sequence[str], epilogues: Sequence[str]
) -> tuple[int, int, int]:
    """Of what M, N and K are multiples, so that rows of all tensors are whole chunks of TMA."""
    kinds = shapes_of({"": [[16, 16, 16]]}, dtypes, layouts, epilogues)
    row = 8 * TMA.chunk_bytes
    operands = max(row // bits_of(kind.storage_dtype) for kind in kinds)
    results = max(row // bits_of(kind.result_dtype) * (16 // kind.columns) for kind in kinds)
    turned = any(kind.layout[0] == "T" for kind in kinds)
    return operands if turned else 1, max(operands, results), operands


def parse_extents(text: str) -> list[int]:
    """``"4096x4096x4096"`` as M, N and K."""
    parts = text.split("x")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        raise WarploomError(f"{text!r} is no shape; write MxNxK, such as 4096x4096x4096.")
    return [int(part) for part in parts]


def _find(name: str) -> str:
    if name in suite_names():
        file = resources.files("warploom_bench").joinpath("suites", f"{name}.json")
        return file.read_text(encoding="utf-8")
    if not Path(name).is_file():
        raise WarploomError(
            f"There is no suite {name!r}; give the path of a JSON file, {unseen.FORM}, or one of "
            f"{', '.join(suite_names())}."
        )
    return Path(name).read_text(encoding="utf-8")


def _is_shape_list(entries: object) -> bool:
    return isinstance(entries, list) and all(
        isinstance(e, list) and len(e) == 3 and all(isinstance(v, int) for v in e) for e in entries
    )
