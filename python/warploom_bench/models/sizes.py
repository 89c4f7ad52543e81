"""Sizes of the language models; a table, without TVM or PyTorch."""

from __future__ import annotations

from dataclasses import dataclass, replace

#: How weights of linear layers are stored.
WEIGHTS = ("float16", "int4", "fp8")


@dataclass(frozen=True)
class LanguageSizes:
    """A decoder-only language model.

    Attributes
    ----------
    layers, hidden, intermediate, vocabulary : int
        ``intermediate`` is the width of the SwiGLU, of each expert's where there are experts.
    heads, kv_heads, head_dim : int
        Of attention with grouped queries; of latent attention, ``head_dim`` is the part of queries
        and keys that is not rotated, and that of values.
    theta : float
        Base of the rotary embedding.
    bias : bool
        Whether the QKV projection has a bias.
    experts, choices : int
        Experts of each layer, and how many of them a token takes; 0 for a dense model.
    latent, rotated : int
        Elements of the latent vector and of the rotated key beside it (MLA); 0 for grouped queries.
    weights : str
        One of :data:`WEIGHTS`. ``int4`` is MLC-LLM's q4f16_1: words of eight along K, a float16
        scale for 32. ``fp8`` multiplies float8_e4m3fn by float8_e4m3fn, with a float32 scale for a
        whole weight and a fixed scale for activations. The embedding stays float16, and so do the
        weights of experts and of latent vectors' expansion.
    """

    layers: int
    hidden: int
    intermediate: int
    vocabulary: int
    heads: int
    kv_heads: int
    head_dim: int = 128
    theta: float = 10000.0
    bias: bool = False
    experts: int = 0
    choices: int = 0
    latent: int = 0
    rotated: int = 0
    weights: str = "float16"

    def __post_init__(self) -> None:
        assert self.weights in WEIGHTS and self.heads % self.kv_heads == 0
        assert (self.experts > 0) == (self.choices > 0) and self.choices <= self.experts
        assert (self.latent > 0) == (self.rotated > 0) and self.head_dim % 2 == 0
        assert not (self.latent and (self.bias or self.experts))

    @property
    def query_dim(self) -> int:
        """Elements of a head of queries."""
        return self.head_dim + self.rotated

    @property
    def cached(self) -> int:
        """Elements that the cache keeps for a token in a layer."""
        if self.latent:
            return self.latent + self.rotated
        return 2 * self.kv_heads * self.head_dim

    @property
    def projections(self) -> dict[str, tuple[int, int]]:
        """Name -> (outputs, inputs) of the linear layers of a layer, experts left out."""
        hidden, width = self.hidden, self.heads * self.head_dim
        if self.latent:
            linears = {
                "query": (self.heads * self.query_dim, hidden),
                "compress": (self.latent + self.rotated, hidden),
                "expand": (2 * width, self.latent),
            }
        else:
            linears = {"qkv": (width + 2 * self.kv_heads * self.head_dim, hidden)}
        linears["out"] = hidden, width
        if not self.experts:
            linears |= {
                "gate_up": (2 * self.intermediate, hidden), "down": (hidden, self.intermediate)
            }  # fmt: skip
        return linears

    def tiny(self) -> LanguageSizes:
        """Sizes that the emulator runs in seconds, of the same kind."""
        return replace(
            self, layers=1 if self.experts else 2, hidden=128, intermediate=128, vocabulary=256,
            heads=4, kv_heads=4 if self.latent else 2, head_dim=128 if self.latent else 64,
            experts=min(self.experts, 4), choices=min(self.choices, 2),
        )  # fmt: skip


#: By name. The layers of models with fewer layers than 32 are those that are measured by default.
LANGUAGE: dict[str, LanguageSizes] = {
    "llama-3-8b": LanguageSizes(32, 4096, 14336, 128256, 32, 8, theta=500000.0),
    "qwen-2.5-7b": LanguageSizes(28, 3584, 18944, 152064, 28, 4, theta=1000000.0, bias=True),
    "mixtral-moe": LanguageSizes(
        4, 4096, 14336, 32000, 32, 8, theta=1000000.0, experts=8, choices=2
    ),
    # The SwiGLU is that of the model's first layer, which has no experts.
    "deepseek-v2-lite-mla": LanguageSizes(4, 2048, 10944, 102400, 16, 16, latent=512, rotated=64),
}  # fmt: skip
