"""A record of a GEMM as a line of JSON: differences from what is usual, and verified when read.

A line begins with N and K, so that the records of a layer are found without reading the others:

    {"n":4096,"k":14336,"m":16,"as":"float8_e4m3fn","config":{"tile_m":64},"us":12.3}

``as`` names the operands (:data:`KINDS`); ``config`` has what differs from the default config.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any

from warploom.decide.old_records import read_config, with_new_key
from warploom.decide.pixels import PixelAxis
from warploom.decide.problem import GemmProblem
from warploom.errors import IllegalCombination
from warploom.meta_schedule.records import Record
from warploom.target.dtypes import bits_of

_LAYOUTS = ("NT", "NN", "TN", "TT")


def _values(problem: GemmProblem) -> dict[str, Any]:
    """What tells a problem from others."""
    compared = {field.name for field in fields(GemmProblem) if field.compare}
    return {name: value for name, value in asdict(problem).items() if name in compared}


_FLOAT16 = _values(
    GemmProblem(
        m=None, n=None, k=None, batch=1, a_dtype="float16", b_dtype="float16", layout="NT",
        accumulator="float32", products=1, a_bits=16, b_bits=16, inputs=(), outputs=("float16",),
    )
)  # fmt: skip
_BFLOAT16 = {"a_dtype": "bfloat16", "b_dtype": "bfloat16", "outputs": ("bfloat16",)}
_FLOAT8 = {
    "a_dtype": "float8_e4m3fn", "b_dtype": "float8_e4m3fn", "a_bits": 8, "b_bits": 8,
    "inputs": (("float32", "scalar"),), "outputs": ("bfloat16",),
}  # fmt: skip
#: 4-bit weights, of which 32 have a scale of 16 bits.
_INT4 = {"b_bits": 4.5, "computed": (False, True)}
#: The problem of a line, but for what the line says itself, by the name of its operands.
KINDS: dict[str, dict[str, Any]] = {
    "float16": _FLOAT16,
    "bfloat16": _FLOAT16 | _BFLOAT16,
    "float8_e4m3fn": _FLOAT16 | _FLOAT8,
    "int4": _FLOAT16 | _INT4,
}
#: The kind that a line need not name.
_USUAL = "float16"
#: The beginning of a line, and how many GEMMs share A.
_SIZES = re.compile(r'\{"n":(\d+),"k":(\d+),')
_PRODUCTS = re.compile(r'"products":(\d+)')


def order(record: Record) -> tuple[Any, ...]:
    """The place of a record in a file: those of a layer lie together, in the order of rows."""
    problem = record.problem
    columns = (problem.n or 0) * problem.products
    return columns, problem.k or 0, kind_of(problem), problem.m or math.inf, str(problem)


def columns_of(line: str) -> tuple[int, int] | None:
    """Columns of all GEMMs together, and K, of a line; None if they do not stand where they should.

    Examples
    --------
    >>> columns_of('{"n":2048,"k":4096,"m":16,"products":2,"config":{},"us":1.0}')
    (4096, 4096)
    """
    sizes = _SIZES.match(line)
    if sizes is None:
        return None
    n, k = map(int, sizes.groups())
    if "products" not in line:
        return n, k
    products = _PRODUCTS.search(line)
    return n * (int(products[1]) if products else 1), k


def kind_of(problem: GemmProblem) -> str:
    """The kind that a problem differs least from."""
    values = _values(problem)
    return min(KINDS, key=lambda kind: sum(values[name] != KINDS[kind][name] for name in values))


def problem_line(problem: GemmProblem) -> dict[str, Any]:
    """A problem as a line has it."""
    kind = kind_of(problem)
    sizes = {"n": problem.n, "k": problem.k, "m": problem.m}
    changed = {name: _plain(value) for name, value in _values(problem).items()
               if name not in sizes and value != KINDS[kind][name]}  # fmt: skip
    return {**sizes, **({"as": kind} if kind != _USUAL else {}), **changed}


def record_line(record: Record) -> dict[str, Any]:
    """A record as a line has it."""
    numbers = record.config.values()
    config = {name: numbers[name] for name in record.config.changed()}
    return {**problem_line(record.problem), "config": config, "us": round(record.seconds * 1e6, 2)}


def as_text(line: Mapping[str, Any]) -> str:
    """The line itself, without the line break."""
    return json.dumps(line, separators=(",", ":"))


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def record_of(line: Mapping[str, Any], arch: str, gpu: str) -> Record:
    """The record of a line.

    Raises
    ------
    ValueError, TypeError, KeyError, AttributeError
        If it is no record, or no kernel can have its config.
    """
    values = dict(with_new_key(line))
    config, us = read_config(values.pop("config")), values.pop("us")
    if not (isinstance(us, int | float) and math.isfinite(us) and us > 0):
        raise ValueError(f"us = {us}: a time must be positive")
    problem = problem_of_line(values)
    reason = config.why_not(problem)
    if reason is not None:
        raise ValueError(f"{problem}: {reason}")
    return Record(problem, config, us / 1e6, arch, False, None, gpu)


def problem_of_line(line: Mapping[str, Any]) -> GemmProblem:
    """The problem of a line that has nothing else.

    Raises
    ------
    ValueError
        If it is none; the message names the part.
    """
    kind = line.get("as", _USUAL)
    if kind not in KINDS:
        raise ValueError(f"as = {kind!r}: allowed are {', '.join(KINDS)}")
    values = {**KINDS[kind], **{name: value for name, value in line.items() if name != "as"}}
    unknown = set(values) - set(_FLOAT16)
    if unknown:
        raise ValueError(f"a GEMM has no {min(unknown)!r}")
    for name, text in _mistakes(values):
        raise ValueError(f"{name} = {values[name]!r}: {text}")
    try:
        for dtype in (values["a_dtype"], values["b_dtype"], *values["outputs"]):
            bits_of(dtype)
    except IllegalCombination as error:
        raise ValueError(str(error)) from None
    frozen = {name: _frozen(value) for name, value in values.items()}
    frozen["pixels"] = tuple(PixelAxis(*axis) for axis in frozen["pixels"])
    return GemmProblem(**frozen)


def _mistakes(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("m", "n", "k", "batch"):
        value = values[name]
        if value is not None and not (type(value) is int and value > 0):
            yield name, "an extent must be a positive integer or null"
    if values["layout"] not in _LAYOUTS:
        yield "layout", f"allowed are {', '.join(_LAYOUTS)}"
    if values["accumulator"] not in ("float32", "int32"):
        yield "accumulator", "allowed are float32 and int32"
    if not (type(values["products"]) is int and values["products"] > 0):
        yield "products", "it must be a positive integer"
    if not values["outputs"]:
        yield "outputs", "there must be one"


def _frozen(value: Any) -> Any:
    return tuple(_frozen(part) for part in value) if isinstance(value, list | tuple) else value
