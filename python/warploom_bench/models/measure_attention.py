"""Measures decode attention over the paged cache alone, beside PyTorch's over plain tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import tvm
from tvm import relax

from warploom_bench.check import deviation
from warploom_bench.kernels import Kernels
from warploom_bench.models import rivals
from warploom_bench.models.clocks import alternate, profiled
from warploom_bench.models.language_kernels import language_kernel
from warploom_bench.models.results import LEFT_OUT, Result
from warploom_bench.models.roofline import attention
from warploom_bench.models.rows import Row
from warploom_bench.models.session import PagedCache
from warploom_bench.models.sizes import LanguageSizes
from warploom_bench.models.torch_language import TorchLanguage
from warploom_bench.models.torch_memory import viewed

#: Layers that take turns, so that none stays in the L2 cache; and calls of a sample.
LAYERS, _CALLS = 2, 10
_ALLOWED, _ROUNDS, _STEPS = 2e-3, 5, 4


def alone(sizes: LanguageSizes) -> LanguageSizes:
    """The sizes whose cache is measured: few layers, weights as they are not there."""
    return replace(sizes, layers=LAYERS, weights="float16", experts=0, choices=0)


@dataclass
class AttentionBench:
    """Decode attention of a model.

    Attributes
    ----------
    torch : module
    sizes : LanguageSizes
    kernels : Kernels
        With the library of the cache.
    gpu : str
        The GPU that it is compiled for.
    rival : bool
        Whether PyTorch's attention is measured.
    """

    torch: Any
    sizes: LanguageSizes
    kernels: Kernels
    gpu: str
    rival: bool = True

    def measure(self, row: Row, result: Result) -> Iterator[None]:
        """Fill the result; it is worth saving at each ``yield``.

        Ours rotates queries and keys and appends to the cache, too: a call of TVM's cache does all
        of it. The profile has each kernel by itself.
        """
        torch, one, batch = self.torch, alone(self.sizes), row.batch
        memory = torch.cuda.mem_get_info()[1]
        # Two layers of ours, as many of PyTorch's, and the prompts.
        needed = 2.5 * LAYERS * batch * row.tokens * one.cached * 2
        if needed > 0.9 * memory:
            result.status = LEFT_OUT
            result.reason = f"it needs {needed / 1e9:.0f} GB, and the GPU has {memory / 1e9:.0f} GB"
            return
        result.work, result.allowed = asdict(attention(one, batch, 1, row.tokens)), _ALLOWED
        module = self.kernels.module(language_kernel(one, self.gpu, cache_only=True))
        cache = PagedCache(relax.VirtualMachine(module, tvm.cuda(0)), tvm.cuda(0))
        cache.open(batch, row.tokens + 1, row.tokens)
        scale, first = one.head_dim**-0.5, self._normal(row.tokens)
        given = torch.empty(row.tokens, one.heads, one.head_dim, device="cuda").half()
        prompt, unused = viewed(torch, first), viewed(torch, given)
        for s in range(batch):
            cache.add(s)
            cache.begin((s,), row.tokens)
            for layer in range(LAYERS):
                cache.attend(layer, scale, prompt, unused)
            cache.end()
            # TVM copies the cache's tables of the next pass beside the stream, over those in use.
            torch.cuda.synchronize()
        newest = self._normal(batch)
        out = torch.full((batch, *given.shape[1:]), torch.nan, device="cuda").half()
        new, into = viewed(torch, newest), viewed(torch, out)
        cache.begin(tuple(range(batch)), 1)
        cache.attend(0, scale, new, into)
        torch.cuda.synchronize()
        wanted = self._reference(first, newest[:1])
        found = out[:1].double()
        result.ours.error = deviation(found.flatten()[None], wanted.flatten()[None]).relative

        def ours() -> None:
            for call in range(_CALLS):
                cache.attend(call % LAYERS, scale, new, into)

        runners = {"ours": (ours, result.ours)}
        if self.rival:
            runners["rival"] = self._rival(row, one, result), result.rival
        alternate(runners, torch.cuda.synchronize, _ROUNDS, _STEPS)
        for _, runner in runners.values():
            runner.wall = [sample / _CALLS for sample in runner.wall]
            runner.host = [sample / _CALLS for sample in runner.host]
        yield
        for step, runner in runners.values():
            times = profiled(torch, step, 1)
            each = {name: (ms / _CALLS, count / _CALLS) for name, (ms, count) in times.items()}
            runner.read_kernels(each)
            yield
        cache.end()
        if result.ours.kernels:
            longest, (ms, _) = next(iter(result.ours.kernels.items()))
            speed = result.work["bytes"] / ms / 1e6
            result.notes.append(
                f"the longest kernel, {longest[:60]}, reads {speed:.0f} GB/s, "
                f"{speed * 1e9 / result.bandwidth:.0%} of a copy"
            )

    def _normal(self, tokens: int) -> Any:
        one, torch = self.sizes, self.torch
        shape = (tokens, one.heads + 2 * one.kv_heads, one.head_dim)
        return torch.empty(shape, device="cuda", dtype=torch.float16).normal_()

    def _reference(self, prompt: Any, newest: Any) -> Any:
        """The first sequence's attention in float32, by PyTorch's rotation and softmax."""
        torch, one = self.torch, alone(self.sizes)
        model = TorchLanguage(torch, one, {}, torch.float32, rivals.exact_attention(torch))
        every = torch.cat([prompt, newest]).transpose(0, 1)[None]
        cos, sin = model.rotations(torch.arange(every.shape[2], device="cuda"))
        q, k, v = every.split([one.heads, one.kv_heads, one.kv_heads], 1)
        q = model.rotated(q[:, :, -1:], cos[:, :, -1:], sin[:, :, -1:]).float()
        k = model.rotated(k, cos, sin).float()
        return model.attention(q, k, v.float(), False).double()

    def _rival(self, row: Row, one: LanguageSizes, result: Result) -> Any:
        """As many attentions of PyTorch, over caches in one piece."""
        torch = self.torch
        model = TorchLanguage(torch, one, {}, torch.float16, rivals.exact_attention(torch))
        caches = model.caches(row.batch, row.tokens + 1)
        backend = model.use_fastest_attention(caches, row.tokens + 1, True)
        q = caches[0][0].new_empty(row.batch, one.heads, 1, one.head_dim).normal_()

        def attend() -> list[Any]:
            return [model.attention(q, *caches[n % LAYERS], False) for n in range(_CALLS)]

        result.rival_name = f"PyTorch's attention by {backend}, without rotation, in a CUDA graph"
        return rivals.captured(torch, attend)[0]
