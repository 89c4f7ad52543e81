"""The least time of a model: bytes that must move over the bandwidth, FLOPs over the peak.

Counted are weights once, the keys and values that attention reads and writes, the tokens that come
in, and the logits or images that go out. Activations between kernels are left out: a perfect kernel
would keep them on the chip. So a share of 1 is out of reach.
"""

from __future__ import annotations

from dataclasses import dataclass

from warploom_bench.models.sizes import LanguageSizes

#: Bits of a stored weight, scales included, and FLOPs a second relative to float16's.
_BITS = {"float16": 16.0, "int4": 4.5, "fp8": 8.0}
_SPEED = {"float16": 1.0, "int4": 1.0, "fp8": 2.0}
_HALF = 2  # bytes


@dataclass(frozen=True)
class Work:
    """What a step of a model needs at least.

    Attributes
    ----------
    bytes : float
        Read and written.
    flops : float
        Multiplications and additions, at float16's speed: those of fp8 count half.

    Examples
    --------
    >>> Work(4e12, 1e15).seconds(4e12, 1e15)
    1.0
    """

    bytes: float
    flops: float

    def __add__(self, other: Work) -> Work:
        return Work(self.bytes + other.bytes, self.flops + other.flops)

    def times(self, count: float) -> Work:
        """So many of it."""
        return Work(self.bytes * count, self.flops * count)

    def seconds(self, bandwidth: float, peak: float) -> float:
        """The least time, of bytes and FLOPs side by side.

        Parameters
        ----------
        bandwidth, peak : float
            Bytes and float16 FLOPs a second.
        """
        return max(self.bytes / bandwidth, self.flops / peak)


def linear(rows: int, outputs: int, inputs: int, weights: str = "float16") -> Work:
    """A linear layer: its weight is read once, for any number of rows."""
    work = 2.0 * rows * outputs * inputs
    return Work(outputs * inputs * _BITS[weights] / 8, work / _SPEED[weights])


def attention(
    sizes: LanguageSizes, sequences: int, new: int, context: int, absorbed: bool = False
) -> Work:
    """Causal attention of a layer over a cache.

    Parameters
    ----------
    sizes : LanguageSizes
    sequences : int
    new : int
        Tokens that come in, of each sequence.
    context : int
        Tokens in the cache before them.
    absorbed : bool
        Whether latent vectors are attended as they are (decode of MLA), or else expanded to heads.
    """
    pairs = sequences * (new * context + new * (new + 1) / 2)
    of_heads, of_vectors = sizes.query_dim + sizes.head_dim, 2 * sizes.latent + sizes.rotated
    deep = of_vectors if absorbed else of_heads
    tokens = sequences * (context + new)
    return Work(tokens * sizes.cached * _HALF, 2 * pairs * sizes.heads * deep)


def experts(sizes: LanguageSizes, tokens: int) -> Work:
    """Router and experts of a layer, with tokens that choose at random.

    The expected number of experts that at least one token takes is read.
    """
    share = 1 - (1 - sizes.choices / sizes.experts) ** tokens
    each = linear(0, 3 * sizes.intermediate, sizes.hidden, sizes.weights)
    products = linear(tokens * sizes.choices, 3 * sizes.intermediate, sizes.hidden, sizes.weights)
    router = linear(tokens, sizes.experts, sizes.hidden)
    return router + Work(each.bytes * sizes.experts * share, products.flops)


def language_step(sizes: LanguageSizes, sequences: int, new: int, context: int) -> Work:
    """One forward pass: logits behind the last new token of each sequence.

    Parameters
    ----------
    sizes : LanguageSizes
    sequences, new, context : int
        As of :func:`attention`. A pass of one new token of each is a decode step.
    """
    tokens, decodes = sequences * new, new == 1
    layer = attention(sizes, sequences, new, context, bool(sizes.latent) and decodes)
    for outputs, inputs in sizes.projections.values():
        layer += linear(tokens, outputs, inputs, sizes.weights)
    if sizes.experts:
        layer += experts(sizes, tokens)
    head = linear(sequences, sizes.vocabulary, sizes.hidden, sizes.weights)
    ends = tokens * sizes.hidden * _HALF + sequences * sizes.vocabulary * 4
    return layer.times(sizes.layers) + head + Work(ends, 0.0)


def language_memory(sizes: LanguageSizes, sequences: int, context: int, chunk: int) -> float:
    """Bytes of the model, of one cache, and of the activations of a prefill of ``chunk`` tokens."""
    weights = language_step(sizes, 1, 1, 0).bytes - sizes.cached * _HALF * sizes.layers
    if sizes.experts:
        one = experts(sizes, 1).bytes
        weights += sizes.layers * (experts(sizes, 10**6).bytes - one)
    embedding = sizes.vocabulary * sizes.hidden * _HALF
    cache = sequences * context * sizes.cached * _HALF * sizes.layers
    wide = max(outputs for outputs, _ in sizes.projections.values())
    activations = chunk * (4 * sizes.hidden + 2 * wide * max(1, sizes.choices)) * _HALF
    return weights + embedding + cache + activations
