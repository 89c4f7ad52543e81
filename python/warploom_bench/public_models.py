"""The GEMM layers of widely used public models, derived from their published configs.

A row has the numbers of a model's ``config.json`` (on its model card) and nothing that follows from
them: :meth:`~Decoder.layers` says what its layers multiply. Layers are those that a compiled model
has: Q, K and V are one GEMM, and so are gate and up, as ``relax.transform.CombineParallelMatmul``
and MLC-LLM make them. A router, a convolution and an embedding are no layers here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Protocol

from warploom.errors import WarploomError


@dataclass(frozen=True)
class Layer:
    """``C[M, n] = A[M, k] W[n, k]^T``, for any number of rows M.

    Attributes
    ----------
    name : str
        What the layer is: ``"qkv"``, ``"down"``, ``"head"``, ...
    n, k : int
        Features that come out and go in.
    """

    name: str
    n: int
    k: int

    def __post_init__(self) -> None:
        if not self.name or min(self.n, self.k) < 1:
            raise WarploomError(f"A layer has a name and positive extents, got {self}.")


class Model(Protocol):
    """A row of :data:`MODELS`."""

    name: str
    same: tuple[str, ...]

    def layers(self) -> tuple[Layer, ...]:
        """The GEMMs of the model, each once."""


def _check(row: Model) -> None:
    """Sizes are positive, or 0 where an optional part is absent; heads of Q are shared evenly."""
    for field in fields(row):
        value = getattr(row, field.name)
        if isinstance(value, int) and value < (0 if field.default == 0 else 1):
            raise WarploomError(f"{row.name}: {field.name} = {value} is no size.")
    heads, kv_heads = getattr(row, "heads", 1), getattr(row, "kv_heads", 1)
    if heads % kv_heads:
        raise WarploomError(f"{row.name}: {heads} heads cannot share {kv_heads} of K and V evenly.")


@dataclass(frozen=True)
class Decoder:
    """A decoder with grouped-query attention and a gated MLP, or experts that are such.

    Attributes
    ----------
    name : str
    hidden, heads, kv_heads, head_dim, intermediate, vocabulary : int
        ``hidden_size``, ``num_attention_heads``, ``num_key_value_heads``, ``head_dim``,
        ``intermediate_size`` (of an expert, where there are experts), ``vocab_size``.
    same : tuple of str
        Models with the same layers.
    """

    name: str
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    same: tuple[str, ...] = ()

    __post_init__ = _check

    def layers(self) -> tuple[Layer, ...]:
        return (
            Layer("qkv", (self.heads + 2 * self.kv_heads) * self.head_dim, self.hidden),
            Layer("o", self.hidden, self.heads * self.head_dim),
            *_gated(self.hidden, self.intermediate),
            Layer("head", self.vocabulary, self.hidden),
        )


@dataclass(frozen=True)
class LatentDecoder:
    """A decoder with multi-head latent attention and shared and routed experts, as DeepSeek has it.

    Attributes
    ----------
    name : str
    hidden, heads, vocabulary : int
    q_rank, kv_rank : int
        ``q_lora_rank`` (0: Q is not compressed) and ``kv_lora_rank``.
    nope, rope, value : int
        ``qk_nope_head_dim``, ``qk_rope_head_dim``, ``v_head_dim``.
    intermediate, expert, shared : int
        ``intermediate_size`` of the dense layers, ``moe_intermediate_size``, ``n_shared_experts``.
    same : tuple of str
        Models with the same layers.
    """

    name: str
    hidden: int
    heads: int
    kv_rank: int
    nope: int
    rope: int
    value: int
    intermediate: int
    expert: int
    shared: int
    vocabulary: int
    q_rank: int = 0
    same: tuple[str, ...] = ()

    __post_init__ = _check

    def layers(self) -> tuple[Layer, ...]:
        q, latent = self.heads * (self.nope + self.rope), self.kv_rank + self.rope
        first = (
            (Layer("q_a kv_a", self.q_rank + latent, self.hidden), Layer("q_b", q, self.q_rank))
            if self.q_rank
            else (Layer("q kv_a", q + latent, self.hidden),)
        )
        return (
            *first,
            Layer("kv_b", self.heads * (self.nope + self.value), self.kv_rank),
            Layer("o", self.hidden, self.heads * self.value),
            *_gated(self.hidden, self.intermediate),
            *_gated(self.hidden, self.expert, "expert "),
            *(_gated(self.hidden, self.shared * self.expert, "shared ") if self.shared > 1 else ()),
            Layer("head", self.vocabulary, self.hidden),
        )


@dataclass(frozen=True)
class Encoder:
    """A transformer with plain attention and a plain MLP: BERT, ViT and the halves of Whisper.

    Attributes
    ----------
    name : str
    hidden, intermediate : int
    outputs : int
        Classes of the head, or the vocabulary; 0 where there is none.
    pooled : bool
        Whether a layer of ``hidden`` features goes before the head, as in BERT.
    crossed : bool
        Whether there is attention to other states of the same size, as in Whisper's decoder.
    same : tuple of str
        Models with the same layers.
    """

    name: str
    hidden: int
    intermediate: int
    outputs: int = 0
    pooled: bool = False
    crossed: bool = False
    same: tuple[str, ...] = ()

    __post_init__ = _check

    def layers(self) -> tuple[Layer, ...]:
        hidden = self.hidden
        square = ["o", *["cross q"] * self.crossed, *["transform"] * self.pooled]
        return (
            Layer("qkv", 3 * hidden, hidden),
            Layer(" / ".join(square), hidden, hidden),
            *((Layer("cross kv", 2 * hidden, hidden),) if self.crossed else ()),
            Layer("up", self.intermediate, hidden),
            Layer("down", hidden, self.intermediate),
            *((Layer("head", self.outputs, hidden),) if self.outputs else ()),
        )


@dataclass(frozen=True)
class UNet:
    """The linear layers of Stable Diffusion's U-Net.

    Attributes
    ----------
    name : str
    widths : tuple of int
        ``block_out_channels`` of the blocks that have attention.
    first : int
        ``block_out_channels[0]``; the embedding of time has four times as many features.
    context : int
        ``cross_attention_dim``.
    same : tuple of str
        Models with the same layers.
    """

    name: str
    widths: tuple[int, ...]
    first: int
    context: int
    same: tuple[str, ...] = ()

    __post_init__ = _check

    def layers(self) -> tuple[Layer, ...]:
        time = 4 * self.first
        return (
            *(layer for width in self.widths for layer in self._block(width)),
            Layer("time in", time, self.first),
            Layer("time out", time, time),
        )

    def _block(self, width: int) -> Iterator[Layer]:
        yield Layer(f"qkv {width}", 3 * width, width)
        yield Layer(f"o / cross q {width}", width, width)
        yield Layer(f"cross kv {width}", 2 * width, self.context)
        yield Layer(f"geglu {width}", 8 * width, width)
        yield Layer(f"down {width}", width, 4 * width)


def _gated(hidden: int, intermediate: int, prefix: str = "") -> tuple[Layer, Layer]:
    return (
        Layer(f"{prefix}gate up", 2 * intermediate, hidden),
        Layer(f"{prefix}down", hidden, intermediate),
    )


#: Source of each row: ``config.json`` of the model of that name on its publisher's model card.
MODELS: tuple[Model, ...] = (
    Decoder("Llama-2-7B", 4096, 32, 32, 128, 11008, 32000),
    Decoder("Llama-2-13B", 5120, 40, 40, 128, 13824, 32000),
    Decoder("Llama-2-70B", 8192, 64, 8, 128, 28672, 32000),
    Decoder("Llama-3.1-8B", 4096, 32, 8, 128, 14336, 128256,
            same=("Llama-3-8B", "DeepSeek-R1-Distill-Llama-8B")),
    Decoder("Llama-3.1-70B", 8192, 64, 8, 128, 28672, 128256,
            same=("Llama-3-70B", "Llama-3.3-70B", "DeepSeek-R1-Distill-Llama-70B")),
    Decoder("Llama-3.1-405B", 16384, 128, 8, 128, 53248, 128256),
    Decoder("Llama-3.2-1B", 2048, 32, 8, 64, 8192, 128256),
    Decoder("Llama-3.2-3B", 3072, 24, 8, 128, 8192, 128256),
    Decoder("Qwen2.5-0.5B", 896, 14, 2, 64, 4864, 151936),
    Decoder("Qwen2.5-1.5B", 1536, 12, 2, 128, 8960, 151936,
            same=("DeepSeek-R1-Distill-Qwen-1.5B",)),
    Decoder("Qwen2.5-3B", 2048, 16, 2, 128, 11008, 151936),
    Decoder("Qwen2.5-7B", 3584, 28, 4, 128, 18944, 152064, same=("DeepSeek-R1-Distill-Qwen-7B",)),
    Decoder("Qwen2.5-14B", 5120, 40, 8, 128, 13824, 152064,
            same=("DeepSeek-R1-Distill-Qwen-14B",)),
    Decoder("Qwen2.5-32B", 5120, 40, 8, 128, 27648, 152064,
            same=("QwQ-32B", "DeepSeek-R1-Distill-Qwen-32B")),
    Decoder("Qwen2.5-72B", 8192, 64, 8, 128, 29568, 152064),
    Decoder("Qwen3-0.6B", 1024, 16, 8, 128, 3072, 151936),
    Decoder("Qwen3-1.7B", 2048, 16, 8, 128, 6144, 151936),
    Decoder("Qwen3-4B", 2560, 32, 8, 128, 9728, 151936),
    Decoder("Qwen3-8B", 4096, 32, 8, 128, 12288, 151936),
    Decoder("Qwen3-14B", 5120, 40, 8, 128, 17408, 151936),
    Decoder("Qwen3-32B", 5120, 64, 8, 128, 25600, 151936),
    Decoder("Qwen3-30B-A3B", 2048, 32, 4, 128, 768, 151936),
    Decoder("Qwen3-235B-A22B", 4096, 64, 4, 128, 1536, 151936),
    Decoder("Mistral-7B-v0.3", 4096, 32, 8, 128, 14336, 32768, same=("Mistral-7B-v0.2",)),
    Decoder("Mistral-Nemo-12B", 5120, 32, 8, 128, 14336, 131072),
    Decoder("Mistral-Small-22B", 6144, 48, 8, 128, 16384, 32768),
    Decoder("Mistral-Small-3-24B", 5120, 32, 8, 128, 32768, 131072),
    Decoder("Mixtral-8x7B", 4096, 32, 8, 128, 14336, 32000),
    Decoder("Mixtral-8x22B", 6144, 48, 8, 128, 16384, 32768),
    Decoder("Gemma-2-2B", 2304, 8, 4, 256, 9216, 256000),
    Decoder("Gemma-2-9B", 3584, 16, 8, 256, 14336, 256000),
    Decoder("Gemma-2-27B", 4608, 32, 16, 128, 36864, 256000),
    Decoder("Gemma-3-1B", 1152, 4, 1, 256, 6912, 262144),
    Decoder("Gemma-3-4B", 2560, 8, 4, 256, 10240, 262208),
    Decoder("Gemma-3-12B", 3840, 16, 8, 256, 15360, 262208),
    Decoder("Gemma-3-27B", 5376, 32, 16, 128, 21504, 262208),
    Decoder("Phi-3-mini", 3072, 32, 32, 96, 8192, 32064, same=("Phi-3.5-mini",)),
    Decoder("Phi-3-medium", 5120, 40, 10, 128, 17920, 32064),
    Decoder("Phi-4", 5120, 40, 10, 128, 17920, 100352),
    Decoder("Phi-4-mini", 3072, 24, 8, 128, 8192, 200064),
    LatentDecoder("DeepSeek-V2-Lite", 2048, 16, 512, 128, 64, 128, 10944, 1408, 2, 102400),
    LatentDecoder("DeepSeek-V3", 7168, 128, 512, 128, 64, 128, 18432, 2048, 1, 129280, q_rank=1536,
                  same=("DeepSeek-R1",)),
    Decoder("gpt-oss-20b", 2880, 64, 8, 64, 2880, 201088, same=("gpt-oss-120b",)),
    Encoder("ViT-B", 768, 3072, 1000),
    Encoder("ViT-L", 1024, 4096, 1000),
    Encoder("ViT-H", 1280, 5120, 1000),
    Encoder("BERT-base", 768, 3072, 30522, pooled=True),
    Encoder("BERT-large", 1024, 4096, 30522, pooled=True),
    Encoder("Whisper-small", 768, 3072, 51865, crossed=True),
    Encoder("Whisper-medium", 1024, 4096, 51865, crossed=True),
    Encoder("Whisper-large", 1280, 5120, 51865, crossed=True, same=("Whisper-large-v2",)),
    Encoder("Whisper-large-v3", 1280, 5120, 51866, crossed=True, same=("Whisper-large-v3-turbo",)),
    UNet("SD-1.5", (320, 640, 1280), 320, 768),
    UNet("SD-XL", (640, 1280), 320, 2048),
)  # fmt: skip

_names = [name for model in MODELS for name in (model.name, *model.same)]
assert len(set(_names)) == len(_names)
