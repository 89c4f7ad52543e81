"""Scans, positions of extremes, sorts and atomic updates, on whole regions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from warploom.language.interpreter.region import Region
from warploom.language.interpreter.running import Running
from warploom.language.rules.order import (
    require_atomic,
    require_position,
    require_scan,
    require_sort,
)
from warploom.language.values.dtypes import convert


def _exact(values: np.ndarray) -> np.ndarray:
    return values.astype(np.int64 if values.dtype.kind in "iu" else np.float64)


def _scan(name: str, accumulate: Callable, evaluate: Running, args: list[Any]) -> None:
    dst, src = (Region.of(evaluate, argument) for argument in args[:2])
    axis = require_scan(name, dst.operand, src.operand, int(args[2]))
    values = _exact(src.read())
    backwards = bool(args[3])
    values = np.flip(values, axis) if backwards else values
    result = accumulate(values, axis=axis)
    dst.write(np.flip(result, axis) if backwards else result)


def _position(name: str, function: Callable, evaluate: Running, args: list[Any]) -> None:
    dst, src = (Region.of(evaluate, argument) for argument in args[:2])
    axis = require_position(name, dst.operand, src.operand, int(args[2]))
    dst.write(function(_exact(src.read()), axis=axis))


def _sort(evaluate: Running, args: list[Any]) -> None:
    regions = [Region.of(evaluate, argument) for argument in (*args[:2], *args[4:])]
    axis = require_sort([region.operand for region in regions], int(args[2]))
    dst, src, *indices = regions
    values = src.read().copy()
    keys = _exact(values)
    order = np.argsort(-keys if args[3] else keys, axis=axis, kind="stable")
    dst.write(np.take_along_axis(values, order, axis))
    for places in indices:
        places.write(order)


def _atomic(name: str, join: Callable, evaluate: Running, args: list[Any]) -> None:
    """One CTA after the other, so that it is a plain update."""
    dst, src = (Region.of(evaluate, argument) for argument in args)
    require_atomic(name, dst.operand, src.operand)
    dst = replace(dst, storage=replace(dst.storage, writers=None))
    old, value = dst.read(), src.read().reshape(dst.extent)
    if old.dtype.kind not in "iu":
        old, value = _exact(old), _exact(value)
    dst.write(convert(join(old, value), dst.dtype))


ORDERED: dict[str, Callable[[Running, list[Any]], None]] = {
    "cumsum": partial(_scan, "cumsum", np.cumsum),
    "cumprod": partial(_scan, "cumprod", np.cumprod),
    "cummax": partial(_scan, "cummax", np.maximum.accumulate),
    "cummin": partial(_scan, "cummin", np.minimum.accumulate),
    "argmax": partial(_position, "argmax", np.argmax),
    "argmin": partial(_position, "argmin", np.argmin),
    "sort": _sort,
    "atomic_add": partial(_atomic, "atomic_add", np.add),
    "atomic_max": partial(_atomic, "atomic_max", np.maximum),
    "atomic_min": partial(_atomic, "atomic_min", np.minimum),
}
