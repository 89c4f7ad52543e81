# %% [markdown]
# # From a PyTorch model to a served token
#
#     python tutorials/13_torch_to_token.py
#
# **Time:** 30 minutes.
#
# `torch.export`, TVM's frontend, two of TVM's passes, `relax.build`, and a server that streams
# tokens over HTTP: one process, one page. Without a KV cache, so that each token computes the whole
# window again; `12_small_llm.py` has the cache. Where PyTorch is not installed, the same model in
# `relax.frontend.nn` takes its place, with the same weights by the same names.

# %%
import http.client
import http.server
import importlib.util
import itertools
import json
import math
import threading

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend import nn

from warploom import emulator
from warploom.relax.inspect import inspect, share_on_tensor_cores
from warploom.target import cuda_target

emulator.enable_without_gpu()
target, device = cuda_target("h200"), tvm.cuda(0)
LETTERS = "abcdefghijklmnopqrstuvwxyz .,!?-"
WINDOW, HIDDEN, HEADS, INNER = 32, 128, 2, 256

# %% [markdown]
# ## Weights, by the names of a checkpoint
#
# Nobody has trained this model. Its weights are random, but for the head: there the row of a letter
# is the sum of the embeddings of those letters that it follows in one word. In float32, as most
# checkpoints of PyTorch are.

# %%
shapes = {
    "token.weight": (len(LETTERS), HIDDEN), "place.weight": (WINDOW, HIDDEN),
    "norm1.weight": (HIDDEN,), "norm1.bias": (HIDDEN,),
    "qkv.weight": (3 * HIDDEN, HIDDEN), "qkv.bias": (3 * HIDDEN,),
    "out.weight": (HIDDEN, HIDDEN), "out.bias": (HIDDEN,),
    "norm2.weight": (HIDDEN,), "norm2.bias": (HIDDEN,),
    "up.weight": (INNER, HIDDEN), "up.bias": (INNER,),
    "down.weight": (HIDDEN, INNER), "down.bias": (HIDDEN,),
    "norm.weight": (HIDDEN,), "norm.bias": (HIDDEN,), "head.weight": (len(LETTERS), HIDDEN),
}  # fmt: skip
rng = np.random.default_rng(0)
weights = {}
for name, shape in shapes.items():
    scale = shape[1] ** -0.5 if len(shape) == 2 else 0.1
    weight = scale * rng.standard_normal(shape) + (len(shape) == 1 and name.endswith("weight"))
    weights[name] = weight.astype("float32")
weights["token.weight"] *= 4
weights["head.weight"][:] = 0
for before, letter in itertools.pairwise("tokens, t"):
    row = weights["token.weight"][LETTERS.index(before)]
    weights["head.weight"][LETTERS.index(letter)] += row

# %% [markdown]
# ## The model in PyTorch
#
# `torch.export` records the operators; `from_exported_program` makes a Relax function of them,
# whose parameters are the inputs and then the weights. Leave the model in float32 here: the
# frontend refuses 16-bit layers with biases, and a pass of TVM lowers the precision below.


# %%
def exported():
    import torch
    from torch.nn import Embedding, LayerNorm, Linear, functional
    from tvm.relax.frontend.torch import from_exported_program

    class Decoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.place = Embedding(len(LETTERS), HIDDEN), Embedding(WINDOW, HIDDEN)
            self.norm1, self.norm2, self.norm = (LayerNorm(HIDDEN) for _ in range(3))
            self.qkv, self.out = Linear(HIDDEN, 3 * HIDDEN), Linear(HIDDEN, HIDDEN)
            self.up, self.down = Linear(HIDDEN, INNER), Linear(INNER, HIDDEN)
            self.head = Linear(HIDDEN, len(LETTERS), bias=False)

        def forward(self, ids):
            x = self.token(ids) + self.place.weight
            q, k, v = self.qkv(self.norm1(x)).view(1, WINDOW, 3 * HEADS, -1).chunk(3, dim=2)
            q, k, v = (each.transpose(1, 2) for each in (q, k, v))
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(1, WINDOW, HIDDEN))
            x = x + self.down(functional.gelu(self.up(self.norm2(x))))
            return self.head(self.norm(x))

    model = Decoder().eval()
    model.load_state_dict({name: torch.from_numpy(weight) for name, weight in weights.items()})
    with torch.no_grad():
        program = torch.export.export(model, (torch.zeros(1, WINDOW, dtype=torch.int32),))
    mod = from_exported_program(
        program, keep_params_as_input=True, unwrap_unit_return_tuple=True
    )
    mod, parameters = relax.frontend.detach_params(mod)
    return mod, parameters["main"]


# %% [markdown]
# ## The same model without PyTorch
#
# Attention is written out, as `torch.export` writes it: TVM 0.27's `ToMixedPrecision`, which comes
# below, would drop the causal mask of `nn.op.scaled_dot_product_attention`.


# %%
class Decoder(nn.Module):
    def __init__(self):
        self.token, self.place = nn.Embedding(len(LETTERS), HIDDEN), nn.Embedding(WINDOW, HIDDEN)
        self.norm1, self.norm2, self.norm = (nn.LayerNorm(HIDDEN) for _ in range(3))
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, INNER), nn.Linear(INNER, HIDDEN)
        self.head = nn.Linear(HIDDEN, len(LETTERS), bias=False)

    def main(self, ids: nn.Tensor) -> nn.Tensor:
        x = self.token(ids) + self.place.weight
        heads = nn.op.reshape(self.qkv(self.norm1(x)), (1, WINDOW, 3 * HEADS, HIDDEN // HEADS))
        q, k, v = nn.op.split(nn.op.permute_dims(heads, (0, 2, 1, 3)), 3, axis=1)
        mask = nn.Tensor.from_const(np.triu(np.full((WINDOW, WINDOW), -np.inf, "float32"), 1))
        scores = nn.op.matmul(q, nn.op.permute_dims(k, (0, 1, 3, 2))) * (HIDDEN // HEADS) ** -0.5
        mixed = nn.op.matmul(nn.op.softmax(scores + mask), v)
        mixed = nn.op.reshape(nn.op.permute_dims(mixed, (0, 2, 1, 3)), (1, WINDOW, HIDDEN))
        x = x + self.out(mixed)
        x = x + self.down(nn.op.gelu(self.up(self.norm2(x))))
        return self.head(self.norm(x))


def written():
    spec = {"main": {"ids": nn.spec.Tensor([1, WINDOW], "int32"), "$": {"effect_mode": "none"}}}
    mod, named = Decoder().export_tvm(spec)
    return mod, [weights[name] for name, _ in named]


has_torch = importlib.util.find_spec("torch") is not None
mod, parameters = exported() if has_torch else written()
print("the model comes from", "torch.export" if has_torch else "relax.frontend.nn: no PyTorch here")

# %% [markdown]
# ## Passes, and the build
#
# `BindParams` makes constants of the weights, so that what is computed of them alone is computed
# once, while the model is built. `ToMixedPrecision` gives matmuls operands of float16, which tensor
# cores take, and leaves norms and softmax in float32. The rest is `relax.build`.

# %%
names = mod["main"].params[1:]
mod = relax.transform.BindParams("main", dict(zip(names, parameters, strict=True)))(mod)
mod = relax.transform.ToMixedPrecision(out_dtype="float16")(mod)
share = share_on_tensor_cores(inspect(mod))
print(f"{share:.0%} of the FLOPs of matmuls are for tensor cores")
assert share == 1
machine = relax.VirtualMachine(relax.build(mod, target), device)


# %% [markdown]
# ## From text to the next token


# %%
def logits(text):
    """The model's numbers for the letter that follows the text."""
    text = text[-WINDOW:]
    ids = np.zeros((1, WINDOW), "int32")
    ids[0, : len(text)] = [LETTERS.index(letter) for letter in text]
    # Attention is causal: what stands behind the text changes nothing before it.
    return machine["main"](tvm.runtime.tensor(ids, device)).numpy()[0, len(text) - 1]


def generate(prompt, count):
    text = prompt
    for _ in range(count):
        text += LETTERS[int(np.argmax(logits(text)))]
        yield text[-1]


# %% [markdown]
# ## The server
#
# `POST /generate` answers with server-sent events, one for each token, as the APIs of large models
# do. The lock is there because the model computes for one request at a time.


# %%
class Service(http.server.BaseHTTPRequestHandler):
    busy = threading.Lock()

    def do_POST(self):
        if self.path != "/generate":
            self.send_error(404)
            return
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        with self.busy:
            for token in generate(request["prompt"], request["tokens"]):
                self.wfile.write(f"data: {json.dumps({'token': token})}\n\n".encode())
                self.wfile.flush()
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_):
        pass


# %% [markdown]
# ## A client
#
# It reads the answer line by line while the server still computes.


# %%
def ask(port, prompt, tokens):
    """Yield the tokens of an answer as they arrive."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/generate", json.dumps({"prompt": prompt, "tokens": tokens}))
    for line in connection.getresponse():
        event = line.decode().strip().removeprefix("data: ")
        if event == "[DONE]":
            return
        if event:
            yield json.loads(event)["token"]


PROMPT, COUNT = "it serves t", 12
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(PROMPT, end="", flush=True)
answer = ""
for token in ask(server.server_port, PROMPT, COUNT):
    print(token, end="", flush=True)
    answer += token
print()
server.shutdown()
server.server_close()

# %% [markdown]
# ## Was that right?
#
# The model in float64. Each token that came over the wire is the likeliest one, or as likely within
# the rounding of float16.


# %%
def reference(text):
    """The logits behind each letter: ``[letters, LETTERS]``."""

    def linear(x, name):
        return x @ weights[f"{name}.weight"].T.astype("f8") + weights.get(f"{name}.bias", 0)

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
        return x * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    count = len(text)
    x = weights["token.weight"][[LETTERS.index(letter) for letter in text]].astype("f8")
    x = x + weights["place.weight"][:count]
    heads = linear(norm(x, "norm1"), "qkv").reshape(count, 3, HEADS, HIDDEN // HEADS)
    q, k, v = heads.transpose(1, 2, 0, 3)
    scores = q @ k.transpose(0, 2, 1) * (HIDDEN // HEADS) ** -0.5
    scores = np.exp(np.where(np.tri(count, dtype=bool), scores, -np.inf))
    mixed = scores / scores.sum(-1, keepdims=True) @ v
    x = x + linear(mixed.transpose(1, 0, 2).reshape(count, HIDDEN), "out")
    h = linear(norm(x, "norm2"), "up")
    h = 0.5 * h * (1 + np.vectorize(math.erf)(h / math.sqrt(2)))
    return linear(norm(x + linear(h, "down"), "norm"), "head")


expected = reference(PROMPT + answer)[len(PROMPT) - 1 : -1]
chosen = [LETTERS.index(letter) for letter in answer]
error = np.abs(logits(PROMPT) - expected[0]).max() / np.abs(expected).max()
behind = (expected.max(-1) - expected[np.arange(COUNT), chosen]).max() / np.abs(expected).max()
print(f"largest error of a logit {error:.1e} of the largest; tokens at most {behind:.1e} behind")
assert len(answer) == COUNT and error < 5e-3 and behind < 5e-3
