# %% [markdown]
# # Tune a model in Relax: GEMMs get configs, everything else keeps TVM's own schedules
#
#     python tutorials/10_tune_relax.py
#
# **Time:** 20 minutes.
#
# Without a GPU, times are what the analytic model says, and the model runs on the emulator.

# %%
import math
import tempfile

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend import nn
from tvm.s_tir import meta_schedule as ms

from warploom import emulator
from warploom import meta_schedule as wms
from warploom.gemm.annotations import config_of, has_decisions
from warploom.target.tvm_target import default_target

ROWS, WIDTH, HIDDEN = 128, 256, 512

# %% [markdown]
# ## A model as any other
#
# Nothing in it knows of tensor cores.


# %%
class Block(nn.Module):
    def __init__(self):
        self.up = nn.Linear(WIDTH, HIDDEN, bias=True)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return nn.op.softmax(self.down(nn.op.gelu(self.up(x))) + x, axis=-1)


def fused_functions(mod, target):
    """The model as functions in S-TIR, each with a GEMM and what comes before and after it."""
    passes = [
        relax.transform.FuseTransposeMatmul(),
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
    ]
    with target:
        return tvm.transform.Sequential(passes)(mod)


def model(target):
    block = Block()
    block.to("float16")
    spec = {"forward": {"x": nn.spec.Tensor([ROWS, WIDTH], "float16")}}
    return fused_functions(block.export_tvm(spec)[0], target)


# %% [markdown]
# ## The search
#
# Each function is a task. `wms.Space` would leave the softmax to TVM's own rules, in the same
# search; nothing estimates it, though, so that `op_names` leaves it out.


# %%
def tune(mod, target, work_dir, emulated):
    tuned_for = wms.estimate_target(target) if emulated else target
    builder = wms.EstimateBuilder() if emulated else wms.Builder()
    runner = wms.EstimateRunner() if emulated else wms.Runner()
    ms.relax_integration.tune_relax(
        mod,
        {},
        tuned_for,
        work_dir,
        max_trials_global=48,
        max_trials_per_task=16,
        num_trials_per_iter=16,
        op_names=["matmul"],
        builder=builder,
        runner=runner,
        space=wms.Space(),
        cost_model=wms.CostModel(),
        strategy=ms.search_strategy.EvolutionarySearch(population_size=128),
    )


# %% [markdown]
# ## Build with what was found
#
# TVM puts the best schedules into the module; here they are annotations. Then it is built as ever:
# functions that were not tuned get what the analytic model chooses, or TVM's own schedules.


# %%
def build(mod, target, work_dir):
    with target, wms.open_database(work_dir):
        mod = relax.transform.MetaScheduleApplyDatabase()(mod)
    for variable, function in mod.functions.items():
        if has_decisions(function):
            print(variable.name_hint, config_of(function))

    return relax.build(mod, target, relax_pipeline="warploom")


# %%
def check(executable):
    rng = np.random.default_rng(0)
    shapes = (ROWS, WIDTH), (HIDDEN, WIDTH), (HIDDEN,), (WIDTH, HIDDEN)
    arrays = [(0.2 * rng.standard_normal(shape)).astype("float16") for shape in shapes]
    machine = relax.VirtualMachine(executable, tvm.cuda(0))
    found = machine["forward"](*(tvm.runtime.tensor(one, tvm.cuda(0)) for one in arrays)).numpy()

    x, up, bias, down = (one.astype("float64") for one in arrays)
    h = x @ up.T + bias
    h *= 0.5 + 0.5 * np.vectorize(math.erf)(h / math.sqrt(2))
    expected = np.exp(h @ down.T + x)
    expected /= expected.sum(axis=-1, keepdims=True)
    error = np.abs(found - expected).max() / expected.max()
    print(f"largest error {error:.1e} of the largest probability")
    assert error < 0.01


# %% [markdown]
# Processes that measure import this file, which therefore does nothing unless it is run.

# %%
if __name__ == "__main__":
    emulated = emulator.enable_without_gpu()
    target, _ = default_target()
    mod = model(target)
    mod = wms.estimate_module(mod) if emulated else mod  # no real device ever finds estimates
    work_dir = tempfile.mkdtemp()
    tune(mod, target, work_dir, emulated)
    check(build(mod, target, work_dir))
