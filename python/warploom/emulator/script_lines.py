"""Tells the emulator which line of TVMScript each line of CUDA source was made from.

TIRx statements keep the place in the script that they come from through all of lowering. Before
code generation, markers are put around every statement that has one; they appear in the CUDA source
as comments, which are taken out again before the user sees it. What they said, and the text
of the CUDA lines, is appended to the PTX as comments that only the emulator reads. The CUDA code
that is compiled is the same, with and without markers.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import linecache
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warploom.spans import file_of, flat

#: Name of the CUDA source in PTX and in reports; the one that TVM gives it.
SOURCE_NAME = "tvm_kernels.cu"

#: Functions to TIRx, comments to CUDA.
_BEGIN, _END = "// warploom: from", "// warploom: end"
_MARKER = re.compile(rf'\s*(?:{_BEGIN}\("(?P<place>.*)"\)|{_END}\(\));')
_DIRECTIVE = re.compile(r"\s*#\s*(\w+)")
_LOCATION = re.compile(rb"(?:\.loc|inlined_at)\s+\d+\s+(\d+)")
_FILE = re.compile(rb'"[^"\n]*%s"' % re.escape(SOURCE_NAME).encode())
#: Comments that the emulator reads: ``//@cuda 12 text`` and ``//@script 12 kernel.py:3 text``.
_CUDA, _SCRIPT = "//@cuda", "//@script"
#: The function that TVM calls with the source it has generated.
_POSTPROC = "tvm_callback_cuda_postproc"
#: Sources that the current code generation has given -> the places of their lines.
_generated: contextvars.ContextVar[dict[str, dict[int, str]] | None] = contextvars.ContextVar(
    "warploom_generated_sources", default=None
)
#: The scripts whose lines reports may name: paths by the names that reports have for them.
_files: dict[str, str] = {}
#: Reports quote lines up to this many characters.
_LONGEST = 80


@dataclass(frozen=True)
class Source:
    """CUDA source as it is compiled, and the places in a script that its lines come from.

    Attributes
    ----------
    text : str
    places : dict
        Number of a line, from 1 -> ``"path:line"``; lines that come from no script are absent.
    """

    text: str
    places: dict[int, str]


def files() -> dict[str, str]:
    """Paths of the scripts that this process has read, by the names that reports have.

    A kernel that a cache has is not generated again; but its script was read to parse it.
    """
    return {Path(path).name: path for path in linecache.cache} | _files


def keep_call_site(function: Any, call: Any) -> Any:
    """``function``, which a tile primitive was lowered to, with ``call`` as where it comes from."""
    import tvm_ffi
    from tvm import ir, tirx

    if call.span is None:
        return function

    def widen(span: Any) -> Any:
        return call.span if span is None else ir.SequentialSpan([call.span, span])

    def evaluate(statement: Any) -> Any:
        return tirx.Evaluate(statement.value, widen(statement.span))

    def store(statement: Any) -> Any:
        return tirx.BufferStore(
            statement.buffer, statement.value, statement.indices, widen(statement.span)
        )

    return tvm_ffi.structural_map(function, [(tirx.Evaluate, evaluate), (tirx.BufferStore, store)])


def add_markers(module: Any) -> Any:
    """A module of kernels, ready for code generation, with markers around its statements."""
    import tvm_ffi
    from tvm import ir, tirx

    def marker(name: str, *arguments: str) -> Any:
        return tirx.Evaluate(tirx.call_extern("void", name, *arguments))

    def surround(statement: Any) -> Any:
        place = _place(statement.span)
        if place is None:
            return statement
        return tirx.SeqStmt([marker(_BEGIN, place), statement, marker(_END)])

    kinds = (tirx.Evaluate, tirx.BufferStore, tirx.IfThenElse, tirx.For, tirx.While)
    functions = {
        variable: tvm_ffi.structural_map(function, (kinds, surround))
        for variable, function in module.functions.items()
    }
    return ir.IRModule(functions, attrs=module.attrs)


@contextlib.contextmanager
def markers_removed() -> Iterator[None]:
    """Code generation in this block gives source without markers; :func:`source_of` has them."""
    import tvm_ffi

    theirs = tvm_ffi.get_global_func(_POSTPROC, allow_missing=True)

    def remove(code: str, target: Any) -> str:
        text, places = split(str(code))
        if theirs is not None:
            text = str(theirs(text, target))
        generated[text] = places
        return text

    generated: dict[str, dict[int, str]] = {}
    token = _generated.set(generated)
    tvm_ffi.register_global_func(_POSTPROC, remove, override=True)
    try:
        yield
    finally:
        _generated.reset(token)
        if theirs is None:
            tvm_ffi.registry.remove_global_func(_POSTPROC)
        else:
            tvm_ffi.register_global_func(_POSTPROC, theirs, override=True)


def split(code: str) -> tuple[str, dict[int, str]]:
    """Code without its markers, and the place of each of its lines that has one."""
    lines: list[str] = []
    places: dict[int, str] = {}
    open_places: list[str] = []
    for line in code.splitlines(keepends=True):
        marker = _MARKER.fullmatch(line.rstrip())
        if marker is None:
            lines.append(line)
            if open_places:
                places[len(lines)] = open_places[-1]
        elif marker["place"] is not None:
            open_places.append(marker["place"])
        else:
            open_places.pop()
    return "".join(lines), places


def source_of(code: str) -> Source:
    """The source to compile: ``code``, with lines that the compiler numbers as they are."""
    places = (_generated.get() or {}).get(code, {})
    lines = code.splitlines()
    # TVM puts lines in front and leaves out includes; behind the last include nothing changes.
    first = _after_includes(lines)
    lines[first:first] = [f'#line {first + 2} "{SOURCE_NAME}"']
    places = {number + (number > first): place for number, place in places.items()}
    return Source("\n".join(lines) + "\n", places)


def _after_includes(lines: list[str]) -> int:
    """Index of the first line behind all includes that is compiled under no condition."""
    first = depth = 0
    waiting = False
    for index, line in enumerate(lines):
        directive = _DIRECTIVE.match(line)
        word = directive[1] if directive else ""
        depth += word.startswith("if") - (word == "endif")
        waiting = waiting or word == "include"
        if waiting and depth == 0:
            first, waiting = index + 1, False
    return first


def append(ptx: bytes, source: Source) -> bytes:
    """PTX with the source lines that it names behind it, as comments."""
    numbers = sorted({int(number) for number in _LOCATION.findall(ptx)})
    # NVRTC completes the name of the source with the current directory, where no such file is.
    named = _FILE.sub(rf'"{SOURCE_NAME}"'.encode(), ptx.rstrip(b"\0"))
    return named + "".join(_comments(source, numbers)).encode()


def _comments(source: Source, numbers: list[int]) -> Iterator[str]:
    lines = source.text.splitlines()
    for number in numbers:
        if not 0 < number <= len(lines):
            continue
        yield f"\n{_CUDA} {number} {_shorten(lines[number - 1])}"
        if place := source.places.get(number):
            path, _, line = place.rpartition(":")
            text = _shorten(linecache.getline(path, int(line)))
            yield f"\n{_SCRIPT} {number} {Path(path).name}:{line} {text}"
    yield "\n"


def _shorten(line: str) -> str:
    text = " ".join(line.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _place(span: Any) -> str | None:
    """``"path:line"`` of the outermost place that is no part of TVM or of an op schedule."""
    spans = list(flat(span))
    own = [one for one in spans if not _is_library(file_of(one))]
    for outermost in own or spans:
        path = file_of(outermost)
        if outermost.line > 0 and '"' not in path and "\\" not in path:
            _files[Path(path).name] = path
            return f"{path}:{outermost.line}"
    return None


def _is_library(path: str) -> bool:
    return any(folder in Path(path).parents for folder in _library_folders())


@functools.cache
def _library_folders() -> tuple[Path, ...]:
    import tvm

    own = Path(__file__).parents[1]
    return Path(tvm.__file__).parent, own / "ops", own / "intrin"
