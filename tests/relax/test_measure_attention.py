"""``WARPLOOM_AUTOTUNE`` and attentions: measured once, right, and never in place of an error."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.frontend import nn

import warploom
from warploom.decide import choose
from warploom.decide.families.attention import AttentionProblem, attention_configs
from warploom.decide.machine import H200
from warploom.errors import NotMeasuredWarning, WarploomError
from warploom.fallback import without_original
from warploom.language.tuning.task import Best
from warploom.meta_schedule.best_few import MANY_ROWS
from warploom.relax import measure_attention as module
from warploom.relax.passes import operator_passes
from warploom.relax.tile_programs import is_tirx

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore::warploom.errors.EmulatedTimeWarning"),
]
TARGET = warploom.cuda_target("h200")


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """A cache of its own."""
    monkeypatch.setenv("WARPLOOM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("WARPLOOM_CACHE", raising=False)


def _model(tokens: int | str) -> tvm.IRModule:
    class Attention(nn.Module):
        def forward(self, q: nn.Tensor, k: nn.Tensor, v: nn.Tensor) -> nn.Tensor:
            made = relax.op.nn.attention(q._expr, k._expr, v._expr)
            return nn.wrap_nested(made, "attention")

    tensor = nn.spec.Tensor([1, tokens, 2, 64], "float16")
    mod, _ = Attention().export_tvm({"forward": {"q": tensor, "k": tensor, "v": tensor}})
    return mod


def _legalised(mod: tvm.IRModule) -> list[str]:
    """The scripts of the tile programs of a model."""
    with TARGET:
        mod = tvm.transform.Sequential(operator_passes())(mod)
    return [without_original(f).script() for f in mod.functions.values() if is_tirx(f)]


@pytest.mark.parametrize("tokens", [None, 1, 77, 1024, 5000])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("causal", [False, True])
def test_the_first_candidate_is_the_choice(tokens, head_dim, causal):
    problem = AttentionProblem(tokens, head_dim, 8, 2, 1, causal)
    configs = attention_configs(problem, H200)
    assert configs[0] == choose(problem, H200)
    assert len({*configs}) == len(configs)
    assert len(configs) >= 2 or (tokens or 100) < 64, "a small problem has one tile"


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("tokens", [70, "n"])
def test_a_build_measures_an_attention_once(tokens, rng, monkeypatch):
    """The very program of the model, whose sizes only the launch may know."""
    monkeypatch.setattr(module, "_OF_LAUNCH", {"tokens": 65, "keys": 65, "batch": 1})
    monkeypatch.setenv("WARPLOOM_AUTOTUNE", "2")
    found, search = [], module.find

    def noted(*args, **named):
        found.append(search(*args, **named))
        return found[-1]

    monkeypatch.setattr(module, "find", noted)
    q, k, v = (rng.standard_normal((1, 70, 2, 64)).astype("float16") for _ in "qkv")
    device = tvm.cuda(0)
    results = []
    for _ in range(2):
        executable = relax.build(_model(tokens), TARGET)
        machine = relax.VirtualMachine(executable, device)
        results.append(machine["forward"](*(tvm.runtime.tensor(x, device) for x in (q, k, v))))
    assert [one.searched for one in found] == [True, False] and found[0].measured == 2
    expected = _attention(*(x.astype("float64") for x in (q, k, v)))
    for one in results:
        np.testing.assert_allclose(one.numpy(), expected, rtol=0, atol=4e-3)


def _attention(q, k, v):
    logits = np.einsum("bihd,bjhd->bhij", q, k) / np.sqrt(q.shape[-1])
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return np.einsum("bhij,bjhd->bihd", weights / weights.sum(-1, keepdims=True), v)


@pytest.mark.parametrize("tokens", [256, "n"])
def test_the_fastest_is_taken(tokens, monkeypatch):
    """Times are made up: the last config is the fastest. Tokens of a call are measured for 2048."""
    asked = []

    def last(task, options, go_on):
        asked.append(task)
        return Best(task.space.at(len(task.space) - 1), 1e-6)

    monkeypatch.setenv("WARPLOOM_AUTOTUNE", "3")
    monkeypatch.setattr(module, "find", last)
    monkeypatch.setattr(module, "EMULATED_OPERATIONS", np.inf)
    (script,) = _legalised(_model(tokens))
    (task,) = asked
    size = MANY_ROWS if tokens == "n" else tokens
    assert task.sizes == {"tokens": size, "keys": size, "batch": 1}
    known = None if tokens == "n" else tokens
    third = attention_configs(AttentionProblem(known, 64, 2, 2, keys=known), H200)[2]
    loads = f"copy_async(K_s[0:{third.tile_n}, 0:64]"
    assert loads in script, script
    assert len(task.space) == 3


def test_without_the_variable_and_where_it_takes_too_long_the_model_chooses(monkeypatch):
    monkeypatch.setattr(module, "find", lambda *_, **__: pytest.fail("measured"))
    monkeypatch.delenv("WARPLOOM_AUTOTUNE", raising=False)
    (usual,) = _legalised(_model(256))
    monkeypatch.setenv("WARPLOOM_AUTOTUNE", "1")
    monkeypatch.setattr(module.emulator, "is_enabled", lambda: True)
    monkeypatch.setattr(module, "EMULATED_OPERATIONS", 1.0)
    assert _legalised(_model(256)) == [usual]


def test_a_search_that_fails_leaves_the_choice_to_the_model(monkeypatch):
    def fails(*_, **__):
        raise WarploomError("no config has a kernel that is right.")

    monkeypatch.setattr(module, "find", fails)
    monkeypatch.delenv("WARPLOOM_AUTOTUNE", raising=False)
    usual = _legalised(_model(64))
    monkeypatch.setenv("WARPLOOM_AUTOTUNE", "2")
    with pytest.warns(NotMeasuredWarning, match="the model chooses: no config has"):
        assert _legalised(_model(64)) == usual
