"""A factory of tile programs whose parameters are sizes, and tile sizes that are tuned."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm.target import Target
from tvm.tirx import PrimFunc

from warploom.errors import ArgumentError
from warploom.language.calls.compiled import pass_options, typed
from warploom.language.calls.kernel import JitKernel, jit
from warploom.language.tuning.space import Config
from warploom.language.tuning.task import Best, Task
from warploom.language.tuning.tuner import (
    OPTIONS,
    Options,
    Tuner,
    TuningInfo,
    require_parameters,
    target_text,
)
from warploom.target.tvm_target import default_target


class TunedFactory:
    """A factory of tile programs that chooses its tuned parameters itself.

    Attributes
    ----------
    factory : callable
        The factory without tuning.
    """

    def __init__(
        self, factory: Callable[..., PrimFunc], options: Options, out_idx: int | Sequence[int] = ()
    ) -> None:
        functools.update_wrapper(self, factory)
        self.factory, self._out_idx = factory, out_idx
        self._signature = inspect.signature(factory)
        parameters = self._signature.parameters
        if not any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
            require_parameters(self.__name__, options.space.names, tuple(parameters), "configs")
        names = tuple(
            name for name, one in parameters.items()
            if name not in options.space.names and one.kind is not one.VAR_KEYWORD
        )  # fmt: skip
        require_parameters(self.__name__, options.key or (), names, "key")
        self._tuner = Tuner(self.__name__, options)
        self._kernels: dict[Any, JitKernel] = {}

    def __repr__(self) -> str:
        return f"<warploom.autotune factory {self.__name__}>"

    def __call__(self, *args: Any, **named: Any) -> JitKernel:
        """The kernel for these arguments with the best config; it is searched if none is known.

        Parameters
        ----------
        *args, **named
            All parameters of the factory but the tuned ones.

        Returns
        -------
        JitKernel
            To be called with tensors.

        Raises
        ------
        ArgumentError
            If an argument is missing, or a tuned one is given.
        WarploomError
            If no config has a kernel that is right.
        """
        given = self._bind(args, named)
        target = default_target()[0]
        best = self._best(given, target)
        key = (typed(given), typed(best.config), pass_options())
        if key not in self._kernels:
            self._kernels[key] = jit(self.factory(**given, **best.config), out_idx=self._out_idx)
        return self._kernels[key]

    def tune(self, *args: Any, target: Target | None = None, **named: Any) -> Best:
        """Search now, or go on with a search, until ``trials`` configs are measured.

        Parameters
        ----------
        *args, **named
            Parameters of the factory but the tuned ones; and ``trials``, ``work_dir``,
            ``devices``, ``max_workers``, ``seed`` and ``verbose`` as of :func:`warploom.autotune`.
        target : Target, optional
            By default that of this machine.
        """
        taken = self._signature.parameters
        own = {name: named.pop(name) for name in OPTIONS if name in named and name not in taken}
        given = self._bind(args, named)
        target = target or default_target()[0]
        return self._tuner.search(
            self._key_of(given, target), self._task(given, target),
            self._tuner.options.changed(**own),
        )  # fmt: skip

    def compile(
        self, *args: Any, target: Target | None = None, **named: Any
    ) -> tvm.runtime.Executable:
        """Compile the program of the best config, for instance to export a library."""
        given = self._bind(args, named)
        target = target or default_target()[0]
        program = self.factory(**given, **self._best(given, target).config)
        return jit(program, out_idx=self._out_idx, target=target).compile(target=target)

    def program(self, *args: Any, **named: Any) -> PrimFunc:
        """The tile program of the best config for these arguments."""
        given = self._bind(args, named)
        return self.factory(**given, **self._best(given, default_target()[0]).config)

    @property
    def best_config(self) -> Config:
        """The config of the last call.

        Raises
        ------
        ArgumentError
            If there was none.
        """
        return dict(self._tuner.latest.config)

    @property
    def best_configs(self) -> dict[str, Config]:
        """The best configs of this process by key, in words."""
        return self._tuner.all

    def cache_info(self) -> TuningInfo:
        """Counts of calls, known keys and searches."""
        return self._tuner.info()

    def cache_clear(self) -> None:
        """Forget configs, kernels and counts; the records on disk stay."""
        self._tuner.clear()
        self._kernels.clear()

    def _bind(self, args: Sequence[Any], named: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name, with defaults."""
        space = self._tuner.options.space
        for name in space.names:
            if name in named:
                raise ArgumentError(
                    f"{self.__name__}: {name} is tuned; leave it out, or call .factory, which is "
                    "not tuned."
                )
        try:
            bound = self._signature.bind(*args, **named, **space.at(0))
        except TypeError as error:
            names = ", ".join(n for n in self._signature.parameters if n not in space.names)
            raise ArgumentError(f"{self.__name__} takes {names}: {error}.") from None
        bound.apply_defaults()
        given: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            if self._signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                given |= value
            else:
                given[name] = value
        given = {name: value for name, value in given.items() if name not in space.names}
        try:
            hash(typed(given))
        except TypeError:
            raise ArgumentError(
                f"{self.__name__}: all arguments must be hashable; give tuples in the place of "
                "lists."
            ) from None
        return given

    def _best(self, given: dict[str, Any], target: Target) -> Best:
        key = self._key_of(given, target)
        return self._tuner.known(key) or self._tuner.find(key, lambda: self._task(given, target))

    def _key_of(self, given: dict[str, Any], target: Target) -> tuple[Any, ...]:
        return (typed(self._chosen(given)), target_text(target), pass_options())

    def _chosen(self, given: dict[str, Any]) -> dict[str, Any]:
        """The arguments whose values make a search of their own: those of ``key``, or all."""
        key = self._tuner.options.key
        return given if key is None else {name: given[name] for name in key}

    def _task(self, given: dict[str, Any], target: Target) -> Task:
        options = self._tuner.options
        words = {name: repr(value) for name, value in self._chosen(given).items()}
        config = dict(tvm.transform.PassContext.current().config)
        if config:
            words["options"] = repr(sorted((str(k), str(v)) for k, v in config.items()))
        first = self.factory(**given, **options.space.at(0)) if self._out_idx != () else None
        results: tuple[int, ...] = ()
        if first is not None:
            results = jit(first, out_idx=self._out_idx).signature.results

        return Task(
            self.__name__, words, lambda config: self.factory(**given, **config), options.space,
            target, arguments=given, reference=options.reference, results=results,
            rank=options.rank, inputs=options.inputs, options=config,
        )  # fmt: skip
