"""Calls of a function of a compiled model as CUDA graphs, one graph a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from warploom.runtime import graphs


@dataclass(frozen=True)
class GraphCounts:
    """What calls of a :class:`GraphFunction` were.

    Attributes
    ----------
    captures, replays : int
        Graphs made, and calls that were one.
    plain : int
        Calls without a graph.
    declined : str
        Why the last call had no graph, if no call like it will have one; otherwise empty.
    """

    captures: int
    replays: int
    plain: int
    declined: str


class GraphFunction:
    """A function of a virtual machine whose calls are CUDA graphs; :func:`cuda_graph` makes it.

    Called as the function itself. Results lie in memory of the graphs: the next call overwrites
    them, so copy what you keep. For one thread at a time.

    Examples
    --------
    >>> machine = relax.VirtualMachine(executable, tvm.cuda(0))  # doctest: +SKIP
    >>> decode = warploom.relax.cuda_graph(machine, "decode")  # doctest: +SKIP
    >>> logits = decode(token, cache, params)  # doctest: +SKIP
    """

    def __init__(self, machine: Any, name: str) -> None:
        self._machine = machine  # which the function needs
        self._run, self._clear, self._counts = graphs.graphs_of(
            machine[name], machine.module["set_instrument"]
        )

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""
        return self._run(*arguments)

    @property
    def counts(self) -> GraphCounts:
        """How many calls were graphs, and why others were not."""
        captures, replays, plain, declined = self._counts()
        return GraphCounts(int(captures), int(replays), int(plain), str(declined))

    def clear(self) -> None:
        """Forget all graphs and give their memory back; the next call begins anew."""
        self._clear()


def cuda_graph(machine: Any, name: str) -> GraphFunction:
    """A function of a compiled model, each call of which is one CUDA graph.

    The host launches a graph instead of every kernel, so that it is not in the way of a model of
    many short kernels. The work of TVM's paged KV cache is in the graph, too: a decode step is one
    graph, whatever the lengths of the sequences are.

    Parameters
    ----------
    machine : tvm.relax.VirtualMachine
        On a GPU, of a model that was built without ``relax.backend.use_cuda_graph``.
    name : str
        Of the function: ``"main"``, or ``"decode"`` of a language model.

    Returns
    -------
    GraphFunction
        For the same arguments as the function. Two or three calls with arguments of the same form
        run as they are; then there is a graph for them. A graph is captured anew when anything
        changes that a kernel is launched with: shapes, the number of sequences, which sequences
        share pages, and the number of pages by about a quarter. Tensors whose address changes are
        copied to where the graph reads them. What cannot be a graph runs as it is, and
        ``counts.declined`` says why.

    Raises
    ------
    ToolchainError
        If the native library is missing, or has no graphs.

    Notes
    -----
    - Results are overwritten by the next call.
    - Weights and caches among the arguments are not kept alive.
    - The first call with arguments of a new form sets the instrument of the machine, then none.
    - A cache writes its index arrays in a stream of its own, without waiting for kernels that read
      them. A call by graph waits until they have been read, so that the host may run ahead.

    Examples
    --------
    ::

        machine = relax.VirtualMachine(executable, tvm.cuda(0))
        decode = warploom.relax.cuda_graph(machine, "decode")
        begin_forward(cache, sequences, lengths)
        logits, _ = decode(ids, cache, parameters)
        end_forward(cache)
    """
    return GraphFunction(machine, name)
