"""Runs a tile program on arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm.tirx import PrimFunc, Var, is_buffer_var

from warploom.errors import TileProgramError
from warploom.language.exits import without_exits
from warploom.language.interpreter.running import Running
from warploom.language.interpreter.statements import Runner
from warploom.language.interpreter.storage import Storage
from warploom.language.interpreter.tiles import with_scopes
from warploom.language.interpreter.waits import run_ctas
from warploom.language.interpreter.warpgroups import has_warpgroups, run_in_step
from warploom.language.lints import warn_of_mistakes
from warploom.language.rules import Known, check_program
from warploom.language.single_stores import with_single_stores
from warploom.language.values.dtypes import convert, numpy_dtype
from warploom.tile.state import read_state
from warploom.warn import deferred


def interpret(
    func: PrimFunc, args: Sequence[Any], *, poison: bool = True, ctas: int | None = None
) -> bool:
    """Execute a tile program on the CPU: one CTA after the other, one statement after the other.

    This defines the meaning of a tile program; kernels that the passes make of it give the same
    results, but for the order in which sums are rounded. Programs between passes are executed too,
    until roles part: then warpgroups go statement by statement, and a CTA that waits for another
    goes on when others have run.

    Parameters
    ----------
    func : PrimFunc
        The tile program.
    args : sequence
        For each parameter an array of its dtype (those of ``ml_dtypes`` for ``bfloat16`` and
        ``float8_*``) and shape, or a number. Arrays are written where the program writes them.
    poison : bool
        Whether tiles hold NaN (integers: a pattern) until they are written, so that reading what
        was never written shows; otherwise they hold zeros.
    ctas : int, optional
        Execute at most so many CTAs of a grid, at least 2: the first, the last, and others that are
        drawn always alike. What the others write stays as it was. For large programs whose CTAs do
        not wait for each other; programs whose roles have parted are executed in whole.

    Returns
    -------
    bool
        Whether all CTAs were executed.

    Raises
    ------
    TileProgramError
        If an argument does not fit its parameter, or a statement is no part of the language or
        breaks one of its rules; compilation refuses it with the same sentence, where that does
        not take the data. If CTAs wait for each other and none goes on.

    Warns
    -----
    TileProgramWarning
        For a statement that is legal and probably a mistake: :mod:`warploom.language.lints`.

    Examples
    --------
    >>> a, b = (np.ones((128, 64), "float16") for _ in "AB")
    >>> c = np.full((128, 128), np.nan, "float16")
    >>> wl.interpret(programs.gemm(Config(tile_n=128), 128, 64, 128), [a, b, c])
    True
    >>> float(c.min())
    64.0
    """
    watched = read_state(func) is None
    if not watched:
        func = with_scopes(func)
    if has_warpgroups(func):
        run_in_step(func, bind_parameters(func, args, Known()), poison)
        return True
    if watched:
        func = with_single_stores(func)
    known = check_program(func)
    with deferred():
        warn_of_mistakes(func)
    func = without_exits(func)
    runner = Runner(bind_parameters(func, args, known), poison, ctas, watched=watched)
    run_ctas([("the host", runner.run(func.body))])
    return runner.is_whole


def bind_parameters(func: PrimFunc, args: Sequence[Any], known: Known) -> Running:
    """Parameters, and the variables in their shapes, with the values that arguments give them."""
    if len(args) != len(func.params):
        names = ", ".join(p.name for p in func.params)
        raise TileProgramError(f"{len(args)} arguments for {len(func.params)} parameters: {names}.")
    variables: dict[Var, np.ndarray] = {}
    buffers: dict[Var, Storage] = {}
    for parameter, value in zip(func.params, args, strict=True):
        if not is_buffer_var(parameter):
            dtype = numpy_dtype(str(parameter.ty.dtype))
            variables[parameter] = convert(np.asarray(value), dtype)
            continue
        dtype = numpy_dtype(str(parameter.ty.dtype))
        rank = len(parameter.ty.shape)
        if not isinstance(value, np.ndarray) or value.dtype != dtype or value.ndim != rank:
            got = (
                f"{value.dtype} array of rank {value.ndim}"
                if isinstance(value, np.ndarray)
                else type(value).__name__
            )
            raise TileProgramError(
                f"argument {parameter.name} is a {got}; it must be a {dtype} array of rank {rank}."
            )
        buffers[parameter] = Storage(parameter.name, "global", value)
        for extent, size in zip(parameter.ty.shape, value.shape, strict=True):
            if isinstance(extent, Var):
                variables.setdefault(extent, np.asarray(size, str(extent.ty.dtype)))
    evaluate = Running(variables, buffers=buffers, known=known)
    for parameter, storage in buffers.items():
        shape = tuple(evaluate.integer(extent) for extent in parameter.ty.shape)
        if shape != storage.array.shape:
            raise TileProgramError(
                f"argument {parameter.name} has shape {storage.array.shape}; it must be {shape}."
            )
    return evaluate
