"""A kernel of :func:`warploom.jit` whose static parameters are tuned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm.target import Target
from tvm.tirx import PrimFunc

from warploom.errors import ArgumentError
from warploom.language.calls.arguments import Argument, read_argument, read_spec
from warploom.language.calls.compiled import pass_options, typed
from warploom.language.calls.kernel import JitKernel
from warploom.language.calls.placement import host_array
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

#: Calls whose config is remembered, at most.
_MOST_CALLS = 4096


class TunedKernel:
    """A :class:`~warploom.language.calls.kernel.JitKernel` whose configs are measured.

    Attributes
    ----------
    kernel : JitKernel
        The kernel without tuning: its calls name all static parameters.
    """

    def __init__(self, kernel: JitKernel, options: Options) -> None:
        signature = kernel.signature
        self.kernel, self._tuner = kernel, Tuner(signature.name, options)
        self.__name__, self.__doc__ = signature.name, kernel.__doc__
        if signature.is_program:
            raise ArgumentError(
                f"{signature.name} is a finished program, which has no parameter to tune; give "
                "warploom.autotune a factory."
            )
        if not signature.open_ended:
            names = tuple(signature.static)
            require_parameters(signature.name, options.space.names, names, "configs")
        sizes = {size for one in signature.dynamic.values() for size in one.values()}
        known = (*signature.inputs, *signature.static, *sorted(sizes))
        require_parameters(signature.name, options.key or (), known, "key")
        #: The tuner's key, and the config, by all that calls may differ in.
        self._calls: dict[Any, tuple[Any, Config]] = {}
        self._key_sizes = tuple(name for name in options.key or () if name in sizes)

    def __repr__(self) -> str:
        return f"<warploom.autotune kernel {self.__name__}>"

    def __call__(self, *args: Any, **static: Any) -> Any:
        """Run the kernel with the best config for these arguments; search it if none is known.

        Parameters
        ----------
        *args
            As of :func:`warploom.jit`.
        **static
            Static parameters that are not tuned.

        Raises
        ------
        ArgumentError
            If an argument does not fit.
        WarploomError
            If no config has a kernel that is right.
        """
        given = self.kernel.read(args, read_argument)
        kinds = tuple([None if one is None else one.kind for one in given])
        key = (kinds, typed(static), pass_options())
        try:
            known = self._calls.get(key)
        except TypeError:  # a static value that no key can have: :meth:`_key` says which
            known = None
        if known is None:
            config = self._best(given, static).config
            if len(self._calls) >= _MOST_CALLS:  # of dynamic sizes
                self._calls.clear()
            self._calls[key] = known = self._tuner.latest_key, config
        else:
            self._tuner.hit(known[0])
        return self.kernel.run(given, {**static, **known[1]})

    def tune(self, *args: Any, target: Target | None = None, **options: Any) -> Best:
        """Search now, or go on with a search, until ``trials`` configs are measured.

        Parameters
        ----------
        *args
            Tensors and numbers as of a call, or of each input a ``TensorSpec`` or
            ``(shape, dtype)``.
        target : Target, optional
            By default that of a call.
        **options
            ``trials``, ``work_dir``, ``devices``, ``max_workers``, ``seed`` and ``verbose`` as of
            :func:`warploom.autotune`; all others are static parameters.
        """
        own = {name: options.pop(name) for name in OPTIONS if name in options}
        given = self.kernel.read(args, read_spec)
        target = target or self._target(given)
        key = self._key(given, options, target_text(target))
        self._calls.clear()
        return self._tuner.search(
            key, self._task(given, options, target), self._tuner.options.changed(**own)
        )

    def compile(
        self, *args: Any, target: Target | None = None, **static: Any
    ) -> tvm.runtime.Executable:
        """As ``compile`` of :func:`warploom.jit`, with the best config."""
        config = self._best_of_specs(args, target, static).config
        return self.kernel.compile(*args, target=target, **static, **config)

    def program(self, *args: Any, **static: Any) -> PrimFunc:
        """The tile program of the best config for these inputs."""
        config = self._best_of_specs(args, None, static).config
        return self.kernel.program(*args, **static, **config)

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
        """Forget configs, compiled kernels and counts; the records on disk stay."""
        self._tuner.clear()
        self._calls.clear()
        self.kernel.cache_clear()

    def _best(self, given: Sequence[Argument | None], static: Mapping[str, Any]) -> Best:
        target = self._target(given)
        key = self._key(given, static, target_text(target))
        return self._tuner.known(key) or self._tuner.find(
            key, lambda: self._task(given, static, target)
        )

    def _best_of_specs(
        self, args: Sequence[Any], target: Target | None, static: Mapping[str, Any]
    ) -> Best:
        given = self.kernel.read(args, read_spec)
        target = target or self._target(given)
        key = self._key(given, static, target_text(target))
        return self._tuner.known(key) or self._tuner.find(
            key, lambda: self._task(given, static, target)
        )

    def _target(self, given: Sequence[Argument | None]) -> Target:
        """The target of a call; without tensors that of this machine."""
        if all(one is None or one.value is None for one in given):
            return self.kernel.target or default_target()[0]
        return self.kernel.target_of(given)

    def _key(
        self, given: Sequence[Argument | None], static: Mapping[str, Any], target: str
    ) -> tuple[Any, ...]:
        sizes = self._sizes(given)
        chosen = tuple(sizes[name] for name in self._key_sizes)
        statics = typed(static)
        try:
            hash(statics)
        except TypeError:
            self.kernel.signature.static_values(static)  # says which cannot be part of a key
            raise
        return (self.kernel.masked(given), statics, chosen, target, pass_options())

    def _sizes(self, given: Sequence[Argument | None]) -> dict[str, int]:
        """The dynamic sizes by name."""
        signature = self.kernel.signature
        found: dict[str, int] = {}
        for at, name in enumerate(signature.names):
            one = given[at]
            if one is not None and one.shape is not None:
                for dimension, size in signature.dynamic.get(name, {}).items():
                    found[size] = one.shape[dimension]
        return found

    def _task(
        self, given: Sequence[Argument | None], static: Mapping[str, Any], target: Target
    ) -> Task:
        signature, options = self.kernel.signature, self._tuner.options
        tuned = options.space.names
        for name in tuned:
            if name in static:
                raise ArgumentError(
                    f"{self.__name__}: {name} is tuned; leave it out, or call .kernel, which is "
                    "not tuned, with all static parameters."
                )
        first = options.space.at(0)
        values = dict(signature.static_values({**first, **static}))
        fixed = {name: value for name, value in values.items() if name not in tuned}
        masked, sizes = self.kernel.masked(given), self._sizes(given)
        inputs = [one for at, one in enumerate(given) if at not in signature.results]
        words = {name: _words(one, self._dynamic(name)) for name, one in
                 zip(signature.inputs, inputs, strict=True)}  # fmt: skip
        words |= {name: str(sizes[name]) for name in self._key_sizes}
        words |= {name: repr(value) for name, value in fixed.items()}
        config = dict(tvm.transform.PassContext.current().config)
        if config:
            words["options"] = repr(sorted((str(k), str(v)) for k, v in config.items()))

        def make(chosen: Config) -> PrimFunc:
            return signature.program(masked, signature.static_values({**fixed, **chosen}))

        return Task(
            self.__name__, words, make, options.space, target,
            arguments={**fixed, **sizes, **dict(zip(signature.inputs, inputs, strict=True))},
            sizes=sizes,
            numbers={at: one.value for at, one in enumerate(given)
                     if one is not None and not one.is_tensor},
            given={at: host_array(one) for at, one in enumerate(given)
                   if one is not None and at not in signature.results and _matters(one)},
            reference=options.reference, results=signature.results, rank=options.rank,
            inputs=options.inputs, options=config,
        )  # fmt: skip

    def _dynamic(self, name: str) -> Mapping[int, str]:
        return self.kernel.signature.dynamic.get(name, {})




def _matters(argument: Argument) -> bool:
    """Whether a tensor's contents may be indices or counts, which no random data replace."""
    whole = argument.dtype.startswith(("int", "uint", "bool"))
    return argument.is_tensor and whole and argument.value is not None


def _words(argument: Argument, dynamic: Mapping[int, str]) -> str:
    if argument.shape is None:
        return argument.dtype
    sizes = (dynamic.get(at, str(size)) for at, size in enumerate(argument.shape))
    return f"{argument.dtype}[{', '.join(sizes)}]"


