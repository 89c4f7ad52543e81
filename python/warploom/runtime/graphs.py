"""Functions of TVM's runtime that are watched while a call of a model becomes a CUDA graph.

``src/graph/`` has the graphs. They need to see the kernels of paged KV caches, and to keep the
memory of a call; so these functions of TVM are put behind functions that can be watched.
"""

from __future__ import annotations

from typing import Any

#: Function of TVM's runtime -> the native one that makes a function of it that can be watched.
WATCHED = {
    "vm.builtin.paged_attention_kv_cache_create": "warploom.graph.watched_create",
    "vm.builtin.alloc_storage": "warploom.graph.watched_allocation",
}
_GRAPHS, _WORKSPACES = "warploom.graph.graphs_of", "warploom.graph.keep_workspaces"


def watched(name: str, stock: Any) -> Any | None:
    """Return a function of :data:`WATCHED` that can be watched.

    Parameters
    ----------
    name : str
        Its name.
    stock : Function
        The one of TVM.

    Returns
    -------
    Function or None
        None if the native library was built before there was this function.

    Raises
    ------
    ToolchainError
        If the native library is missing.
    """
    from warploom.runtime import native

    make = native.function(WATCHED[name])
    return None if make is None else make(stock)


def keep_workspaces() -> bool:
    """Whether workspaces of captured kernels are kept from now on.

    TVM's pool of workspaces frees a block when a larger one is wanted, which a graph may still use.

    Raises
    ------
    ToolchainError
        If the native library is missing.
    """
    from warploom.runtime import native

    keep = native.function(_WORKSPACES)
    return keep is not None and bool(keep())


def graphs_of(function: Any, set_instrument: Any) -> tuple[Any, Any, Any]:
    """A function that calls another by graphs, one that forgets them, and one that counts.

    Parameters
    ----------
    function : Function
        Of a virtual machine.
    set_instrument : Function
        Of the same machine.

    Raises
    ------
    ToolchainError
        If the native library is missing, or has no graphs.
    """

    from warploom.errors import ToolchainError
    from warploom.runtime import native

    make = native.function(_GRAPHS)
    if make is None:
        raise ToolchainError(f"the native library has no {_GRAPHS}; build it again.")
    run, clear, counts = make(function, set_instrument)
    return run, clear, counts
