"""Advice for mistakes that TVM's parser and its functions find: code to write instead.

The parser's message stays as it is. The fix is put behind the carets that underline the mistake,
and is found from the message and from the expression that the carets underline.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

#: Parts of TVM's diagnostics: message, place, and numbered lines with carets below each.
_DIAGNOSTIC = re.compile(r"error: (?P<message>.*?)\n --> (?P<place>.*?)(?:\n(?P<lines>.*))?", re.S)
_CARETS = re.compile(r" *\|  (?P<before> *)(?P<carets>\^+) *")

#: Python's functions -> the functions that do the same to values of a kernel.
_FUNCTIONS = {
    "max": "T.max(a, b)",
    "min": "T.min(a, b)",
    "abs": "T.abs(x)",
    "round": "T.round(x)",
    "pow": "T.pow(x, y)",
    "divmod": "x // y and x % y",
    "float": 'T.cast(x, "float32")',
    "int": 'T.cast(x, "int32")',
    "complex": 'T.cast(x, "float32")',
    "bool": "a comparison such as x != 0",
    "sum": "Tx.cta.sum(row, tile, axes=1)",
    "any": "Tx.cta.max(row, tile, axes=1)",
    "all": "Tx.cta.min(row, tile, axes=1)",
    "sorted": "Tx.cta.sort(tile, tile, axis=1)",
    "len": "tile.shape[0]",
    "print": "the value into an output",
    **dict.fromkeys(
        ("list", "tuple", "set", "iter", "next", "enumerate", "zip", "reversed", "map", "filter"),
        "for y, x in T.grid(rows, columns): tile[y, x]",
    ),
    **dict.fromkeys(("str", "repr", "format", "hash", "chr", "bin", "hex"), "no text in a kernel"),
}
_JOINED = {ast.And: "T.And(a, b)", ast.Or: "T.Or(a, b)", ast.Not: "T.Not(a)"}
#: Modules whose functions authors call in a kernel; of two functions of a name the first is meant.
#: Parts of the package that add to TVMScript put themselves in front.
SCRIPT_MODULES = ["tvm.tirx.script.tile", "tvm.tirx.script"]
#: Modules whose functions work on numbers of the host.
_HOST = ("math", "cmath", "np", "numpy", "torch", "operator", "statistics")
#: Words of messages that say that a value of the kernel was used as a value of Python.
_VALUES = ("Expr", "TensorLoad", "TensorRegion", "PrimExpr", "Buffer", "Var'", "Type ir.",
           "Cannot use and / or", "kDLBool", "not iterable", "subscript")  # fmt: skip

#: Difference from the signature of a kernel -> the fix.
_ARGUMENTS = {
    "strides": "give {} that shape, contiguous",
    "shape": "give {} that shape",
    "ndim": "give {} that rank",
    "dtype": "convert {} before the call",
    "device_type": "copy it there: tvm.runtime.tensor({}, tvm.cuda(0))",
    "device_id": "copy it there: tvm.runtime.tensor({}, tvm.cuda(0))",
}

_DTYPES = (
    "float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn",
    "int4", "int8", "int16", "int32", "int64", "uint4", "uint8", "uint16", "uint32", "uint64",
    "bool", "handle",
)  # fmt: skip
_ALIASES = {"half": "float16", "fp16": "float16", "f16": "float16", "bf16": "bfloat16",
            "float": "float32", "fp32": "float32", "f32": "float32", "single": "float32",
            "double": "float64", "fp64": "float64", "f64": "float64", "int": "int32",
            "tf32": "float32", "fp8": "float8_e4m3fn", "e4m3": "float8_e4m3fn",
            "float8": "float8_e4m3fn", "e5m2": "float8_e5m2", "long": "int64", "byte": "uint8",
            "char": "int8", "short": "int16", "i8": "int8", "u8": "uint8", "i32": "int32",
            "u32": "uint32", "boolean": "bool"}  # fmt: skip


def with_advice(diagnostic: str) -> str:
    """A diagnostic of TVM's parser in four lines: message, place, the line, carets and the fix.

    Of a statement of several lines, the first is shown. A text of another form is left alone.
    """
    match = _DIAGNOSTIC.fullmatch(diagnostic)
    if match is None:
        return diagnostic
    message, place = match["message"], match["place"]
    shown = [f"error: {' '.join(message.split())}", f" --> {place}"]
    lines = (match["lines"] or "").splitlines()[1:]  # the first is empty
    if len(lines) < 2:
        return "\n".join(shown)
    line, carets = lines[0].rstrip(), lines[1].rstrip()
    marked = _CARETS.fullmatch(carets)
    text = line.partition("|  ")[2]
    start, length = (len(marked["before"]), len(marked["carets"])) if marked else (0, len(text))
    fix = advice(message, text[start : start + length], place.rpartition(":")[0].rpartition(":")[0])
    return "\n".join([*shown, line, carets + (f" {fix}" if fix else "")])


def advice(message: str, code: str, file: str = "") -> str:
    """Return the fix as a short sentence without a full stop; empty if none is known.

    Parameters
    ----------
    message : str
        TVM's message.
    code : str
        The expression or statement that it is about.
    file : str
        The file it is in, whose names are proposed for a misspelt name.

    Examples
    --------
    >>> advice("unknown dtype `flaot16`", "")
    'did you mean float16?'
    """
    for find in (_dtype, _attribute, _keyword, _name, _indices, _argument, _host_function):
        if fix := find(message, code, file):
            return fix
    return ""


def closest(word: str, known: Iterable[str]) -> str:
    """``"did you mean ...?"``, with at most three known words; empty if none is close."""
    matches = difflib.get_close_matches(word, sorted(set(known)), n=3, cutoff=0.6)
    return f"did you mean {' or '.join(matches)}?" if matches else ""


def closest_dtype(word: str) -> str:
    """The dtype that a word probably stands for, or those that there are."""
    if word.lower() in _ALIASES:
        return f"did you mean {_ALIASES[word.lower()]}?"
    return closest(word, _DTYPES) or f"allowed are {', '.join(_DTYPES)}"


def _dtype(message: str, code: str, file: str) -> str:
    match = re.search(r"unknown dtype `(\w*)`", message)
    return closest_dtype(match[1]) if match else ""


def _attribute(message: str, code: str, file: str) -> str:
    match = re.search(r"(?:module|type object) '([\w.]+)' has no attribute '(\w+)'", message)
    if match is None:
        return ""
    module = sys.modules.get(match[1])
    if module is None:
        return ""
    return closest(match[2], (name for name in dir(module) if not name.startswith("_")))


def _keyword(message: str, code: str, file: str) -> str:
    match = re.search(r"(\w+)\(\) got an unexpected keyword argument '(\w+)'", message)
    function = _function(match[1]) if match else None
    if match is None or function is None:
        return ""
    names = list(inspect.signature(function).parameters)
    return closest(match[2], names) or f"allowed are {', '.join(names)}"


def _function(name: str) -> Any:
    for module in SCRIPT_MODULES:
        function = getattr(sys.modules.get(module), name, None)
        if callable(function):
            return getattr(function, "_fn", function)
    return None


def _name(message: str, code: str, file: str) -> str:
    match = re.search(r"Undefined variable: (\w+)", message)
    if match is None:
        return ""
    try:
        with open(file, encoding="utf-8") as source:
            names = set(re.findall(r"[A-Za-z_]\w*", source.read()))
    except OSError:
        names = set(re.findall(r"[A-Za-z_]\w*", code))
    return closest(match[1], names - {match[1]})


def _indices(message: str, code: str, file: str) -> str:
    match = re.search(r"\((\d+) vs\. (\d+)\) : Too many indices", message)
    return f"{match[1]} indices; write {match[2]}" if match else ""


def _argument(message: str, code: str, file: str) -> str:
    """For arguments of a kernel that are not as its signature has them."""
    match = re.match(r"Mismatched (?P<name>\w+)\.(?P<what>\w+)", message)
    return _ARGUMENTS.get(match["what"], "").format(match["name"]) if match else ""


def _host_function(message: str, code: str, file: str) -> str:
    """For Python's operations on values that only the kernel has."""
    if not any(word in message for word in _VALUES) and "()" not in message:
        return ""
    for node in _nodes(code):
        if isinstance(node, ast.BoolOp):
            return f"Python decides this before the kernel runs; write {_JOINED[type(node.op)]}"
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return f"Python decides this before the kernel runs; write {_JOINED[ast.Not]}"
        if isinstance(node, ast.Compare) and len(node.ops) > 1:
            return "Python splits a < b < c; write T.And(a < b, b < c)"
        if isinstance(node, ast.For):
            return "a tile is no sequence; write for y, x in T.grid(rows, columns): tile[y, x]"
        if isinstance(node, ast.Call):
            name, owner = node.func, None
            if isinstance(name, ast.Attribute) and isinstance(name.value, ast.Name):
                name, owner = name.attr, name.value.id
            elif isinstance(name, ast.Name):
                name = name.id
            if owner in _HOST:
                return f"{owner}.{name} is for values of the host; write {_in_kernel(name)}"
            if owner is None and name in _FUNCTIONS:
                return f"{name}() is for values of the host; write {_FUNCTIONS[name]}"
    return ""


def _in_kernel(name: str) -> str:
    """The function of TVMScript with the name, or the names that there are."""
    script = sys.modules.get("tvm.script.tirx")
    name = {"absolute": "abs", "fabs": "abs", "maximum": "max", "minimum": "min",
            "power": "pow", "rint": "round"}.get(name, name)  # fmt: skip
    if hasattr(script, name):
        return f"T.{name}"
    return "it with functions of T such as T.exp, T.sqrt or T.max"


def _nodes(code: str) -> Iterator[ast.AST]:
    """Parts of a piece of code, the outermost first; nothing if it is no whole piece."""
    text = code.strip()
    for whole in (text, f"{text}\n    pass", f"{text}: pass"):
        try:
            yield from ast.walk(ast.parse(whole))
            return
        except SyntaxError:
            continue
