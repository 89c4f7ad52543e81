"""``warploom.jit``: a tile program that is compiled when it is called with tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm.target import Target
from tvm.tirx import PrimFunc, Var

from warploom.errors import ArgumentError
from warploom.language.calls.arguments import Argument, read_argument, read_spec
from warploom.language.calls.compiled import (
    CacheInfo,
    Compiled,
    KernelCache,
    pass_options,
    typed,
)
from warploom.language.calls.parameters import check_arguments, parameters_of
from warploom.language.calls.placement import (
    device_of,
    result_like,
    run_on_copies,
    target_of_device,
)
from warploom.language.calls.signature import Masked, Signature, signature_of
from warploom.target.tvm_target import default_target

#: Calls whose plans are remembered, at most.
_MOST_PLANS = 4096
#: What :meth:`JitKernel.source` shows.
SOURCES = ("tile", "cuda", "ptx")


@dataclass(frozen=True)
class _Plan:
    """How to run a call: the kernel, sizes of its variables, the device, whether on copies."""

    compiled: Compiled
    sizes: Mapping[Var, int]
    device: int
    on_copies: bool


class JitKernel:
    """A tile program, or a factory of them, to be called with tensors; made by :func:`jit`.

    Everything may be called by several threads at once.

    Attributes
    ----------
    signature : Signature
    target : Target or None
        What it is compiled for, if not for the device that the tensors are on.
    """

    def __init__(self, signature: Signature, target: Target | None) -> None:
        self.signature, self.target = signature, target
        self._plans: dict[Any, _Plan] = {}
        self._cache = KernelCache(signature.name)
        if not signature.is_program:
            functools.update_wrapper(self, signature.function)
        self.__name__ = signature.name

    def __repr__(self) -> str:
        return f"<warploom.jit kernel {self.signature.name}>"

    def __call__(self, *args: Any, **static: Any) -> Any:
        """Run the kernel; compile it first if there is none for these dtypes and sizes.

        Parameters
        ----------
        *args
            Tensors and numbers, in the order of the program's parameters; those of ``out_idx``
            all together or none. Tensors of PyTorch, TVM and of anything with ``__dlpack__`` must
            lie on one CUDA device, and be contiguous. The kernel runs on the current stream of
            PyTorch if a tensor of PyTorch is among them, otherwise on TVM's. On the emulator
            tensors may also be numpy arrays, or others on the CPU: they are written in place.
        **static
            Static values.

        Returns
        -------
        None, tensor or tuple of tensors
            The results of ``out_idx``.

        Raises
        ------
        ArgumentError
            If an argument does not fit; before anything is compiled.
        """
        return self.run(self.read(args, read_argument), static)

    def run(self, given: list[Argument | None], static: Mapping[str, Any]) -> Any:
        """As a call, with arguments that :meth:`read` has read."""
        signature = self.signature
        plan = self._plan(given, static)
        for at in signature.results:
            if given[at] is None:
                parameter = plan.compiled.parameters[at]
                given[at] = result_like(given, parameter, plan.sizes, plan.device)
        if plan.on_copies:
            run_on_copies(signature.name, plan.compiled.function, given, plan.device)
        else:
            plan.compiled.function(*[each.value for each in given])
        results = tuple(given[at].value for at in signature.results)
        return results[0] if len(results) == 1 else results or None

    def compile(
        self, *args: Any, target: Target | None = None, **static: Any
    ) -> tvm.runtime.Executable:
        """Compile without running, for instance to export a library.

        Parameters
        ----------
        *args
            For each input a tensor, ``TensorSpec(shape, dtype)``, ``(shape, dtype)``, or anything
            with a shape and a dtype. A finished program needs none.
        target : Target, optional
            By default that of :func:`jit`, or of this machine's GPU; without one, an H200.
        **static
            Static values.

        Returns
        -------
        tvm.runtime.Executable
            Its function ``main`` takes all tensors, and results as well.
        """
        return self._of_specs(args, target, static).executable

    def program(self, *args: Any, **static: Any) -> PrimFunc:
        """The tile program for these inputs, which ``wl.interpret`` and ``lower_trace`` take.

        Arguments are those of :meth:`compile`; nothing is compiled.
        """
        signature = self.signature
        masked = () if signature.is_program else self.masked(self.read(args, read_spec))
        return signature.program(masked, signature.static_values(static))

    def source(self, kind: str = "cuda", /, *args: Any, **options: Any) -> str:
        """The source of a kernel.

        Parameters
        ----------
        kind : str
            ``"tile"``: the tile program in TVMScript; ``"cuda"``; ``"ptx"``.
        *args, **options
            As for :meth:`compile`. They may be left out when one kernel has been compiled.

        Raises
        ------
        ArgumentError
            For another kind, or if it is not clear which kernel is meant.
        """
        if kind not in SOURCES:
            raise ArgumentError(f"source has no {kind!r}; allowed are {', '.join(SOURCES)}.")
        if args or options or (self.signature.is_program and self._cache.is_empty):
            compiled = self._of_specs(args, options.pop("target", None), options)
        else:
            compiled = self._cache.only_one()
        return compiled.source(kind)

    def cache_info(self) -> CacheInfo:
        """Counts of calls, kept programs and compilations."""
        return self._cache.info()

    def cache_clear(self) -> None:
        """Forget all programs and counts; the cache on disk stays."""
        self._plans.clear()
        self._cache.clear()

    def read(
        self, args: Sequence[Any], read: Callable[[str, Any], Argument]
    ) -> list[Argument | None]:
        """An argument for each parameter of the program; None for results that are left out."""
        signature = self.signature
        signature.check_count(len(args))
        left_out = () if len(args) == signature.count else signature.results
        values = iter(args)
        return [
            None if at in left_out else read(name, next(values))
            for at, name in enumerate(signature.names)
        ]

    def _plan(self, given: Sequence[Argument | None], static: Mapping[str, Any]) -> _Plan:
        """How to run a call; remembered for calls with equal shapes and values."""
        kinds = tuple([None if one is None else one.kind for one in given])
        key = (kinds, typed(static), pass_options())
        try:
            plan = self._plans.get(key)
        except TypeError:  # a static value that no key can have
            plan = None
        if plan is not None:
            self._cache.hit()
            return plan
        signature = self.signature
        present = [one for one in given if one is not None]
        values = signature.static_values(static)
        device, target = self._placed(given)
        compiled = self._compiled(given, values, device, target)
        sizes = check_arguments(signature.name, compiled.parameters, given)
        on_copies = any(one.is_tensor and one.device is None for one in present)
        plan = _Plan(compiled, sizes, device, on_copies)
        if len(self._plans) >= _MOST_PLANS:  # of dynamic sizes
            self._plans.clear()
        self._plans[key] = plan
        return plan

    def masked(self, given: Sequence[Argument | None]) -> tuple[Masked, ...]:
        """What the program depends on of the inputs."""
        signature = self.signature
        inputs = (one for at, one in enumerate(given) if at not in signature.results)
        if signature.is_program:
            return ()
        return tuple(
            signature.masked(number, one.shape, one.dtype) for number, one in enumerate(inputs)
        )

    def target_of(self, given: Sequence[Argument | None]) -> Target:
        """The target of a call.

        Raises
        ------
        ArgumentError
            If the tensors are on several devices, or on one that the target is not for.
        """
        return self._placed(given)[1]

    def _placed(self, given: Sequence[Argument | None]) -> tuple[int, Target]:
        present = [one for one in given if one is not None]
        device = device_of(self.signature.name, present, self.target)
        return device, self.target or target_of_device(device)

    def _of_specs(
        self, args: Sequence[Any], target: Target | None, static: Mapping[str, Any]
    ) -> Compiled:
        given = None
        if args or not self.signature.is_program:
            given = self.read(args, read_spec)
        target = target or self.target or default_target()[0]
        values = self.signature.static_values(static)
        return self._compiled(given, values, str(target), target)

    def _compiled(
        self,
        given: Sequence[Argument | None] | None,
        static: tuple[tuple[str, Any], ...],
        place: int | str,
        target: Target,
    ) -> Compiled:
        """The kernel for some arguments; None for them stands for those of a finished program."""
        masked = () if given is None else self.masked(given)
        key = (masked, typed(dict(static)), place, pass_options())

        def make() -> PrimFunc:
            program = self.signature.program(masked, static)
            if given is not None:
                check_arguments(self.signature.name, parameters_of(program), given)
            return program

        return self._cache.get(key, make, target)


def jit(
    function: PrimFunc | Callable[..., PrimFunc] | None = None,
    *,
    out_idx: int | Sequence[int] = (),
    dynamic: Mapping[str, Mapping[int, str]] | None = None,
    target: Target | None = None,
) -> Any:
    """Decorator: a tile program that is compiled when it is called with tensors.

    Parameters
    ----------
    function : PrimFunc or callable
        A finished tile program or kernel by hand, or a factory that returns one. What a factory
        takes by position are tensors: it gets a :class:`TensorSpec` of each, with ``.shape`` and
        ``.dtype``. What stands behind ``*`` is static: sizes of tiles, hints, flags. Calls give
        it by name.
    out_idx : int or sequence of int
        Positions of results among the parameters of the program, from the end if negative. A
        factory has no parameters for them. Calls may leave them out: they are allocated as the
        first tensor is, and returned.
    dynamic : mapping, optional
        Sizes that are no constants of the kernel: ``{"A": {0: "m"}}`` makes dimension 0 of A the
        variable m. One name stands for one size. A finished program has its own variables.
    target : Target, optional
        By default that of the device that the tensors are on.

    Returns
    -------
    JitKernel
        Call it with tensors. It compiles once for dtypes, sizes that are not dynamic, static
        values, target and options of the PassContext. ``WARPLOOM_CACHE_DIR`` keeps compiled
        kernels for later processes.

    Raises
    ------
    ArgumentError
        If ``function`` is neither, or ``out_idx`` or ``dynamic`` do not fit it.

    Examples
    --------
    >>> @warploom.jit(out_idx=-1, dynamic={"A": {0: "m"}})
    ... def linear(A, B, *, BM=128, BN=128, BK=64, stages=4):
    ...     (M, K), N = A.shape, B.shape[0]
    ...     @T.prim_func
    ...     def program(a: T.Buffer((M, K), A.dtype), b: T.Buffer((N, K), B.dtype),
    ...                 c: T.Buffer((M, N), "float32")):
    ...         ...
    ...     return program
    >>> c = linear(a, b, BM=64)  # doctest: +SKIP
    """
    if function is None:
        return functools.partial(jit, out_idx=out_idx, dynamic=dynamic, target=target)
    return JitKernel(signature_of(function, out_idx, dynamic), target)
