# %% [markdown]
# # Write a small LLM, build it, and let it generate
#
#     python tutorials/12_small_llm.py
#
# **Time:** 30 minutes.
#
# A decoder in `relax.frontend.nn` with TVM's paged KV cache, as MLC-LLM writes them: prefill of a
# prompt, then one token after the other, which appear as they are computed. At the end a decoder in
# float64 says whether every token was the right one. Nothing in the model knows of warploom.

# %%
import codecs

import numpy as np
import tvm
from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text
from tvm import relax, te, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache, RopeMode, TIRPagedKVCache

from warploom import emulator
from warploom.target import cuda_target

emulator.enable_without_gpu()
target, device = cuda_target("h200"), tvm.cuda(0)
VOCABULARY, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER, LAYERS = 256, 256, 2, 1, 64, 256, 2

# %% [markdown]
# ## The model
#
# Llama's layers: RMS norms, grouped-query attention with rotary embeddings, SwiGLU. The cache is an
# object that each layer gives its queries, keys and values to, and that answers with the attention.


# %%
class Layer(nn.Module):
    def __init__(self):
        self.norm1 = nn.RMSNorm(HIDDEN, -1, bias=False)
        self.norm2 = nn.RMSNorm(HIDDEN, -1, bias=False)
        self.qkv = nn.Linear(HIDDEN, (HEADS + 2 * KV_HEADS) * HEAD_DIM, bias=False)
        self.out = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)
        self.gate_up = nn.Linear(HIDDEN, 2 * INNER, bias=False)
        self.down = nn.Linear(INNER, HIDDEN, bias=False)

    def forward(self, x: nn.Tensor, cache: PagedKVCache, layer: int) -> nn.Tensor:
        batch, tokens, _ = x.shape
        heads = (batch, tokens, HEADS + 2 * KV_HEADS, HEAD_DIM)
        qkv = op.reshape(self.qkv(self.norm1(x)), heads)
        mixed = cache.attention_with_fused_qkv(layer, qkv, HEADS, sm_scale=HEAD_DIM**-0.5)
        x = self.out(op.reshape(mixed, (batch, tokens, HEADS * HEAD_DIM))) + x
        gate, up = op.split(self.gate_up(self.norm2(x)), 2, -1)
        return self.down(op.silu(gate) * up) + x


class Decoder(nn.Module):
    def __init__(self):
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.norm = nn.RMSNorm(HIDDEN, -1, bias=False)
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def hidden(self, ids: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        x = self.embedding(ids)
        for number, layer in enumerate(self.layers):
            x = layer(x, cache, number)
        return self.norm(x)

    def prefill(self, ids: nn.Tensor, cache: PagedKVCache):
        """All tokens of a prompt; the logits behind the last of them."""

        def last(x: te.Tensor):
            batch, tokens, width = x.shape
            return te.compute((batch, 1, width), lambda i, _, k: x[i, tokens - 1, k], name="last")

        x = op.tensor_expr_op(last, "last", [self.hidden(ids, cache)])
        return op.astype(self.head(x), "float32"), cache

    def decode(self, ids: nn.Tensor, cache: PagedKVCache):
        """One more token of each sequence."""
        return op.astype(self.head(self.hidden(ids, cache)), "float32"), cache

    def create_cache(
        self, sequences: tirx.Var, tokens: tirx.Var, chunk: tirx.Var, page: tirx.Var,
        window: tirx.Var,
    ) -> PagedKVCache:  # fmt: skip
        return TIRPagedKVCache(
            attn_kind="mha", max_batch_size=sequences, max_total_seq_len=tokens,
            prefill_chunk_size=chunk, page_size=page, support_sliding_window=window,
            layer_partition=relax.ShapeExpr([0, LAYERS]), num_hidden_layers=LAYERS,
            num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, qk_head_dim=HEAD_DIM,
            v_head_dim=HEAD_DIM, mla_original_qk_head_dim=0, mla_original_v_head_dim=0,
            rope_mode=RopeMode.NORMAL, rope_scale=1, rope_theta=10000, rope_scaling={},
            rope_ext_factors=tirx.IntImm("int64", 0), rotary_dim=HEAD_DIM,
            enable_disaggregation=False, dtype="float16", target=target,
        )  # fmt: skip


# %% [markdown]
# ## Export and build
#
# How many tokens a prompt has, and how many sequences decode at a time, only a call knows: `"n"`
# and `"batch"`. `relax.build` needs no option. `warploom inspect relax` shows what becomes of each
# function of the model.

# %%
model = Decoder()
model.to("float16")
packed = {"param_mode": "packed", "effect_mode": "none"}
cache_type = nn.spec.Object(object_type=PagedKVCache)
sizes = dict.fromkeys(("sequences", "tokens", "chunk", "page", "window"), int)
mod, named = model.export_tvm(
    {
        "prefill": {
            "ids": nn.spec.Tensor([1, "n"], "int32"), "cache": cache_type, "$": packed
        },
        "decode": {
            "ids": nn.spec.Tensor(["batch", 1], "int32"), "cache": cache_type, "$": packed
        },
        "create_cache": {**sizes, "$": {"param_mode": "none", "effect_mode": "none"}},
    }
)  # fmt: skip
machine = relax.VirtualMachine(relax.build(mod, target), device)

# %% [markdown]
# ## Weights, and a tokenizer
#
# Nobody has trained this model. The weights of its layers are random. Its tokens are bytes: an
# embedding is 1 in the place of its byte, and the head holds how often each byte followed each
# other one in a short text. So what it writes looks like words, and means nothing. Weights of a
# checkpoint would take their places by name, in the same way.

# %%
TEXT = """the tile is loaded, then the tensor cores multiply it, and the next tile is on its way.
while the one warp waits for the other, a third one stores what the first two have made of it.
the model reads the tokens, the cache keeps their keys, and the head says what comes next. """

letters = np.frombuffer(TEXT.encode(), "uint8")
counts = np.full((VOCABULARY, VOCABULARY), 1e-4)
np.add.at(counts, (letters[:-1], letters[1:]), 1)
followers = np.log(counts / counts.sum(1, keepdims=True))
rng = np.random.default_rng(0)
weights = {}
for name, parameter in named:
    shape = [int(extent) for extent in parameter.shape]
    if name == "embedding.weight":
        weight = np.eye(VOCABULARY, HIDDEN) * HIDDEN**0.5
    elif name == "head.weight":
        weight = followers.T / HIDDEN**0.5
    elif len(shape) == 1:
        weight = 1 + 0.1 * rng.standard_normal(shape)
    else:
        small = 0.1 if name.endswith(("out.weight", "down.weight")) else 1.0
        weight = small * rng.standard_normal(shape) * shape[-1] ** -0.5
    weights[name] = weight.astype("float16")
parameters = [tvm.runtime.tensor(weight, device) for weight in weights.values()]

# %% [markdown]
# ## Forward passes
#
# The host tells the cache which sequences get how many tokens, calls the model, and tells it that
# this is done. The cache holds pages of 16 tokens.

# %%
state = {
    name: tvm.get_global_func(f"vm.builtin.kv_state_{name}")
    for name in ("add_sequence", "begin_forward", "end_forward", "remove_sequence")
}
numbers = tvm.runtime.ShapeTuple
cache = machine["create_cache"](*(numbers([size]) for size in (4, 512, 128, 16, 0)))


def logits(function, sequence, tokens):
    """The model's numbers for the token that follows ``tokens`` in a sequence of the cache."""
    state["begin_forward"](cache, numbers([sequence]), numbers([len(tokens)]))
    ids = tvm.runtime.tensor(np.array([tokens], "int32"), device)
    found = machine[function](ids, cache, parameters)[0].numpy()
    state["end_forward"](cache)
    return found.reshape(VOCABULARY)


# %% [markdown]
# ## Which token comes next
#
# The likeliest one, or one that is drawn: a temperature below 1 makes likely tokens likelier, and
# `top_p` leaves out the unlikely ones that all together have less than `1 - top_p`.


# %%
def greedy(row):
    return int(np.argmax(row))


def nucleus(temperature, top_p, rng):
    def choose(row):
        weights = np.exp((row - row.max()) / temperature)
        weights /= weights.sum()
        order = np.argsort(-weights)
        kept = order[: np.searchsorted(np.cumsum(weights[order]), top_p) + 1]
        return int(rng.choice(kept, p=weights[kept] / weights[kept].sum()))

    return choose


# %% [markdown]
# ## Generate
#
# A generator: each token is there as soon as it is chosen. The decoder for text keeps bytes back
# until they are a whole character of UTF-8, as tokenizers must.


# %%
def generate(sequence, prompt, count, choose):
    """Yield the next ``count`` tokens, each with the logits that it was chosen from."""
    state["add_sequence"](cache, sequence)
    row = logits("prefill", sequence, prompt)
    for position in range(count):
        token = choose(row)
        yield token, row
        if position + 1 < count:
            row = logits("decode", sequence, [token])
    state["remove_sequence"](cache, sequence)


def stream(title, sequence, prompt, count, choose):
    """Show tokens as they come; return them, and their logits."""
    characters = codecs.getincrementaldecoder("utf-8")("replace")
    text = Text(prompt, style="bold")
    bar = Progress(
        TextColumn(title), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
    )  # fmt: skip
    task = bar.add_task("", total=count, rate="prefill")
    tokens, rows = [], []
    with Live(Group(text, bar)):
        for token, row in generate(sequence, list(prompt.encode()), count, choose):
            tokens.append(token)
            rows.append(row)
            text.append(characters.decode(bytes([token])))
            speed = bar.tasks[0].speed
            bar.update(task, advance=1, rate=f"{speed:.1f} tokens/s" if speed else "decode")
    print()
    return tokens, np.array(rows)


PROMPT = "the tile "
answers = {
    "greedy": stream("greedy", 0, PROMPT, 12, greedy),
    "drawn": stream("temperature 0.8, top-p 0.9", 1, PROMPT, 24, nucleus(0.8, 0.9, rng)),
}

# %% [markdown]
# ## Was that right?
#
# The same decoder in float64, without a cache: it reads prompt and answer at once. Its logits must
# be those that the tokens were chosen from, and each token of the greedy answer must be its
# likeliest one, or as likely within the rounding of float16.


# %%
def reference(ids):
    """The logits behind each token: ``[tokens, VOCABULARY]``."""

    def weight(name):
        return weights[f"{name}.weight"].astype(np.float64)

    def norm(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight(name)

    def rotated(x):
        low, high = np.split(x, 2, -1)
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        return np.concatenate([low * cos - high * sin, high * cos + low * sin], -1)

    count = len(ids)
    angles = np.arange(count)[:, None] * 10000.0 ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    x = weight("embedding")[ids]
    for layer in (f"layers.{number}" for number in range(LAYERS)):
        heads = norm(x, f"{layer}.norm1") @ weight(f"{layer}.qkv").T
        q, k, v = np.split(heads.reshape(count, -1, HEAD_DIM), [HEADS, HEADS + KV_HEADS], 1)
        k, v = (np.repeat(each, HEADS // KV_HEADS, 1) for each in (rotated(k), v))
        scores = np.einsum("ihd,jhd->hij", rotated(q), k) * HEAD_DIM**-0.5
        scores = np.exp(np.where(np.tri(count, dtype=bool), scores, -np.inf))
        scores /= scores.sum(-1, keepdims=True)
        x = x + np.einsum("hij,jhd->ihd", scores, v).reshape(count, -1) @ weight(f"{layer}.out").T
        gate, up = np.split(norm(x, f"{layer}.norm2") @ weight(f"{layer}.gate_up").T, 2, -1)
        x = x + (gate / (1 + np.exp(-gate)) * up) @ weight(f"{layer}.down").T
    return norm(x, "norm") @ weight("head").T


for title, (tokens, rows) in answers.items():
    expected = reference([*PROMPT.encode(), *tokens])[len(PROMPT) - 1 : -1]
    error = np.abs(rows - expected).max() / np.abs(expected).max()
    print(f"{title}: {len(tokens)} tokens, largest error of a logit {error:.1e} of the largest")
    assert error < 5e-3
    if title == "greedy":
        behind = expected.max(-1) - expected[np.arange(len(tokens)), tokens]
        assert behind.max() <= 5e-3 * np.abs(expected).max()
