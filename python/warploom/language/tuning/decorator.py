"""``warploom.autotune``: a factory of tile programs whose parameters are chosen by measurements."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tvm.tirx import PrimFunc

from warploom.errors import ArgumentError
from warploom.language.calls.kernel import JitKernel
from warploom.language.tuning.factory import TunedFactory
from warploom.language.tuning.kernel import TunedKernel
from warploom.language.tuning.space import Space
from warploom.language.tuning.task import Rank
from warploom.language.tuning.tuner import Options


def autotune(
    function: JitKernel | Callable[..., PrimFunc] | None = None,
    *,
    configs: Space | Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Any]],
    key: Sequence[str] | None = None,
    trials: int = 32,
    reference: Callable[..., Any] | None = None,
    inputs: Callable[..., Mapping[str, Any]] | None = None,
    rank: Rank | None = None,
    out_idx: int | Sequence[int] = (),
    work_dir: str | os.PathLike[str] | None = None,
    devices: Sequence[int] = (0,),
    max_workers: int | None = None,
    seed: int = 0,
    verbose: bool = False,
) -> Any:
    """Decorator: a factory of tile programs whose parameters are chosen by measurements.

    The first call for a key searches: a model ranks the configs, the best are compiled in processes
    of their own, their results are compared with a reference, and those that are right are timed.
    The fastest is recorded. Later calls, in this process and in others, use the record.

    Parameters
    ----------
    function : JitKernel or callable
        A kernel of :func:`warploom.jit` made of a factory: the result is called with tensors. Or
        the factory itself, whose parameters are numbers: the result is called with all of them but
        the tuned ones, and returns the kernel.
    configs : Space, sequence of dict, or mapping
        Values of the tuned parameters: of ``wl.space(...)``, a list of configs, or ``{name:
        values}``. Illegal ones are left out.
    key : sequence of str, optional
        Parameters whose values have a search each. Of a factory: by default all but the tuned
        ones. Of a kernel: shapes, dtypes and static parameters always are; ``key`` adds names of
        sizes of ``dynamic=``, which otherwise are those of the first call.
    trials : int
        Configs that are measured for a key, at most.
    reference : callable, optional
        Computes the right results. It gets an array of numpy or a number for each parameter of the
        program but those of ``out_idx``, and returns the results, arrays of numpy or tensors of
        PyTorch, or writes them into its arrays. Without it, ``wl.interpret`` executes the program
        of the first legal config.
    inputs : callable, optional
        ``inputs(specs, rng)`` gets a :class:`TensorSpec` for each parameter of the program by its
        name and a ``numpy.random.Generator``, and returns arrays or numbers by name for those whose
        contents matter. Others are random. Integer tensors of a call are taken as they are.
    rank : callable, optional
        ``rank(program, target)`` returns the seconds that are expected, or None; the configs with
        the fewest are measured first. By default the model of tile programs.
    out_idx : int or sequence of int
        As of :func:`warploom.jit`, for a factory.
    work_dir : path, optional
        Folder of the records, a database of MetaSchedule; by default one in
        ``WARPLOOM_CACHE_DIR``. A search that was killed goes on there.
    devices : sequence of int
        GPUs that measure side by side.
    max_workers : int, optional
        Processes that compile; by default one for each CPU.
    seed : int
        Of random configs.
    verbose : bool
        Whether to print the result of each search and the configs that were left out.

    Returns
    -------
    TunedKernel or TunedFactory

    Raises
    ------
    ArgumentError
        If ``configs`` or ``key`` do not fit the factory.

    Warns
    -----
    EmulatedTimeWarning
        If a search runs on the emulator: its results are checked, its times mean nothing.
    WrongCandidateWarning
        If a config computes another result than the reference.

    Examples
    --------
    >>> @warploom.autotune(configs=wl.space("stages", BM=(64, 128), BN=(64, 128, 256)))
    ... @warploom.jit(out_idx=-1)
    ... def linear(A, B, *, BM, BN, stages):
    ...     ...
    >>> c = linear(a, b)  # doctest: +SKIP
    >>> linear.best_config  # doctest: +SKIP
    {'BM': 128, 'BN': 256, 'stages': 4}
    """
    options = Options(
        Space.of(configs), None if key is None else tuple(key), trials, reference, inputs, rank,
        None if work_dir is None else Path(work_dir), tuple(devices), max_workers, seed, verbose,
    )  # fmt: skip
    if isinstance(key, str):
        raise ArgumentError(f"key is {key!r}; give a list of names, such as ({key!r},).")
    if isinstance(trials, bool) or not isinstance(trials, int) or trials < 1:
        raise ArgumentError(f"trials is {trials!r}; it must be an integer of at least 1.")

    def decorate(function: Any) -> TunedKernel | TunedFactory:
        if isinstance(function, JitKernel):
            if out_idx != ():
                raise ArgumentError("out_idx belongs to warploom.jit, which has made this kernel.")
            return TunedKernel(function, options)
        if isinstance(function, PrimFunc) or not callable(function):
            raise ArgumentError(
                f"warploom.autotune takes a factory of tile programs, or a kernel of warploom.jit "
                f"made of one; {type(function).__name__} is neither."
            )
        return TunedFactory(function, options, out_idx)

    return decorate if function is None else decorate(function)


