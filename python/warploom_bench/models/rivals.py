"""PyTorch at its best: torch.compile's longest search, the fastest attention, CUDA graphs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

#: By the names that a report has for them.
_BACKENDS = {
    "cuDNN": "CUDNN_ATTENTION", "FlashAttention 2": "FLASH_ATTENTION",
    "memory-efficient": "EFFICIENT_ATTENTION", "math": "MATH",
}  # fmt: skip


def compiler(torch: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """torch.compile for fixed sizes; graphs are captured around whole steps instead."""
    return lambda function: torch.compile(
        function, dynamic=False, mode="max-autotune-no-cudagraphs"
    )


def attention_by(torch: Any, backend: str) -> Callable[..., Any]:
    """Attention ``(q, k, v, causal, scale) -> mixed`` of heads ``[b, heads, n, d]`` by one backend.

    Heads of queries may share those of keys and values.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kind = getattr(SDPBackend, _BACKENDS[backend])

    def attend(q: Any, k: Any, v: Any, causal: bool, scale: float | None = None) -> Any:
        with sdpa_kernel(kind):
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=causal, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
            )

    return attend


def exact_attention(torch: Any) -> Callable[..., Any]:
    """The same for any dtype, float32 too: heads of keys and values are repeated."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kinds = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]

    def attend(q: Any, k: Any, v: Any, causal: bool, scale: float | None = None) -> Any:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        with sdpa_kernel(kinds):
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=causal, scale=scale
            )

    return attend


def fastest_attention(torch: Any, q: Any, k: Any, v: Any, causal: bool) -> str:
    """The backend that takes least time for these operands; those that refuse them are left out.

    Raises
    ------
    RuntimeError
        If none takes them.
    """
    times = {}
    for backend in _BACKENDS:
        attend = attention_by(torch, backend)
        try:
            times[backend] = seconds(torch, lambda attend=attend: attend(q, k, v, causal))
        except (RuntimeError, AttributeError):  # not for these sizes, or not in this PyTorch
            torch.cuda.synchronize()
    if not times:
        raise RuntimeError(f"no attention of PyTorch takes heads of {q.shape[-1]}")
    return min(times, key=times.__getitem__)


def seconds(torch: Any, run: Callable[[], Any], launches: int = 10) -> float:
    """Wall time of one of several calls."""
    for _ in range(2):
        run()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(launches):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / launches


def captured(torch: Any, run: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
    """A CUDA graph of a step as a function that replays it, and the result that it writes.

    Libraries set up what they need for each stream, which no capture survives: so the first runs
    are on a stream that is not the default one, as those of a capture. A graph reads and writes
    the memory of its capture: the function that replays it holds what ``run`` holds.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        result = run()
    torch.cuda.synchronize()

    def replay(held: Callable[[], Any] = run) -> None:
        graph.replay()

    return replay, result
