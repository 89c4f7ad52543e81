"""A language model and its cache on a device: what a server holds for as long as it runs."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from warploom.relax import cuda_graph
from warploom_bench.models.language import PAGE

_STATE = ("add_sequence", "remove_sequence", "popn", "begin_forward", "end_forward")

#: Steps that run as they are before there is a graph, at most.
_UNTIL_GRAPH = 2
#: Steps by which graphs and launches are compared.
_COMPARED = 7


class PagedCache:
    """TVM's paged KV cache.

    Parameters
    ----------
    machine : VirtualMachine
        Whose function ``create_cache`` makes it.
    device : tvm.runtime.Device
    """

    def __init__(self, machine: Any, device: Any) -> None:
        self._create, self._device = machine["create_cache"], device
        self._calls = {name: tvm.get_global_func(f"vm.builtin.kv_state_{name}") for name in _STATE}
        self._attend = tvm.get_global_func("vm.builtin.attention_kv_cache_attention_with_fused_qkv")
        self.state: Any = None

    def open(self, sequences: int, tokens: int, chunk: int) -> None:
        """An empty cache, in the place of the one before.

        Parameters
        ----------
        sequences : int
            At most, at a time.
        tokens : int
            Of each sequence at most.
        chunk : int
            Tokens of a prefill at most.
        """
        pages = -(-tokens // PAGE) + 1
        self.close()
        sizes = (sequences, sequences * pages * PAGE, max(chunk, sequences), PAGE, 0)
        self.state = self._create(*(tvm.runtime.ShapeTuple([size]) for size in sizes))

    def close(self) -> None:
        """Give its memory back, when the device is done with it."""
        self._device.sync()
        self.state = None

    def add(self, sequence: int) -> None:
        """Begin a sequence."""
        self._calls["add_sequence"](self.state, sequence)

    def forget(self, sequence: int) -> None:
        """End a sequence; its pages are free."""
        self._calls["remove_sequence"](self.state, sequence)

    def pop(self, sequence: int, tokens: int) -> None:
        """Forget the last tokens of a sequence."""
        self._calls["popn"](self.state, sequence, tokens)

    def begin(self, sequences: Sequence[int], tokens: int) -> None:
        """Begin a forward pass of so many new tokens of each sequence."""
        lengths = _shape((tokens,) * len(sequences))
        self._calls["begin_forward"](self.state, _shape(tuple(sequences)), lengths)

    def attend(self, layer: int, scale: float, qkv: Any, out: Any) -> None:
        """Append keys and values ``qkv[n, heads, d]`` of a layer, and attend all into ``out``."""
        self._attend(self.state, layer, scale, qkv, out)

    def end(self) -> None:
        """End the forward pass."""
        self._calls["end_forward"](self.state)


@functools.lru_cache(maxsize=64)
def _shape(values: tuple[int, ...]) -> Any:
    """Kept: a number costs microseconds, and the sequences of steps are mostly the same."""
    return tvm.runtime.ShapeTuple(values)


class Session:
    """Prefill and decode through a paged KV cache.

    Parameters
    ----------
    executable : Executable or Module
        What ``relax.build`` made of :func:`language.language_module`, or its library loaded again.
    parameters : Mapping of str to tvm.runtime.Tensor
        In the order of :func:`language.parameter_shapes`. The session holds them.
    device : tvm.runtime.Device
    held : object, optional
        What the memory of the parameters belongs to, if not to them.
    graphs : bool
        Whether a decode step is a CUDA graph, unless :meth:`take_faster` finds launches faster.
    """

    def __init__(
        self, executable: Any, parameters: Mapping[str, Any], device: Any, held: Any = None,
        graphs: bool = True,
    ) -> None:  # fmt: skip
        self._executable, self._held = executable, held
        self._machine = relax.VirtualMachine(executable, device)
        # An array of TVM's, so that a call does not convert hundreds of tensors.
        self._parameters = tvm_ffi.convert(list(parameters.values()))
        self._prefill, decode = (self._machine[name] for name in ("prefill", "decode"))
        self._graphs = cuda_graph(self._machine, "decode") if graphs else None
        self._launches = decode
        self._decode = self._graphs or decode
        self._device = device
        self.cache = PagedCache(self._machine, device)

    def prefill(self, sequence: int, ids: Any) -> Any:
        """Logits ``[1, 1, vocabulary]`` behind the tokens ``[1, n]`` of a new sequence."""
        self.cache.add(sequence)
        return self._forward(self._prefill, (sequence,), ids.shape[1], ids)

    def decode(self, sequences: Sequence[int], ids: Any) -> Any:
        """Logits ``[b, 1, vocabulary]`` behind a token ``[b, 1]`` of each sequence.

        The next step overwrites them.
        """
        return self._forward(self._decode, sequences, 1, ids)

    def warm_up(self, sequences: Sequence[int], ids: Any) -> None:
        """Decode steps until there is a graph for them, of which the cache forgets the tokens."""
        for _ in range(_UNTIL_GRAPH if self._graphs else 0):
            self.decode(sequences, ids)
            for each in sequences:
                self.cache.pop(each, 1)

    def take_faster(
        self, sequences: Sequence[int], ids: Any, clock: Callable[[], float] = time.perf_counter
    ) -> dict[str, float]:
        """Decode by graphs or by launches from now on, whichever takes less.

        A graph begins when the host has compared all that it passes to kernels, and launches begin
        at once: which is faster depends on how long the GPU computes. To be called behind
        :meth:`warm_up`; the cache forgets the tokens.

        Returns
        -------
        dict
            Milliseconds of a step, the median of a few, by ``"graphs"`` and by ``"launches"``;
            empty without graphs.
        """
        if self._graphs is None or self.declined:
            return {}
        times = {}
        ways = {"graphs": self._graphs, "launches": self._launches}
        for name, self._decode in ways.items():
            samples = []
            for _ in range(_COMPARED):
                self._device.sync()
                start = clock()
                self.decode(sequences, ids)
                self._device.sync()
                samples.append(1e3 * (clock() - start))
                for each in sequences:
                    self.cache.pop(each, 1)
            times[name] = statistics.median(samples)
        self._decode = ways[min(times, key=times.__getitem__)]
        return times

    @property
    def declined(self) -> str:
        """Why the last decode step was no graph; empty if it was, or was not meant to be."""
        return self._graphs.counts.declined if self._graphs else ""

    def _forward(self, function: Any, sequences: Sequence[int], tokens: int, ids: Any) -> Any:
        self.cache.begin(sequences, tokens)
        logits = function(ids, self.cache.state, self._parameters)[0]
        self.cache.end()
        return logits
