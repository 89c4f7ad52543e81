# %% [markdown]
# # Tune a GEMM with TVM's MetaSchedule, then compile it with what was found
#
#     python tutorials/09_tune_matmul.py
#
# **Time:** 20 minutes.
#
# With a GPU, candidates are compiled in parallel, checked and measured. Without one, their times
# are what the analytic model says, and the chosen kernel runs on the emulator.

# %%
import tempfile

import numpy as np
import tvm
from tvm import te
from tvm.s_tir import meta_schedule as ms

from warploom import emulator
from warploom import meta_schedule as wms
from warploom.gemm.annotations import config_of
from warploom.target.tvm_target import default_target

M, N, K = 256, 192, 320

# %% [markdown]
# ## A function as TVM users write it
#
# C = leaky relu of A B^T + bias. Nothing in it knows of tensor cores.


# %%
def linear():
    a = te.placeholder((M, K), "float16", name="A")
    b = te.placeholder((N, K), "float16", name="B")
    bias = te.placeholder((N,), "float32", name="bias")
    k = te.reduce_axis((0, K), name="k")
    total = te.compute(
        (M, N),
        lambda i, j: te.sum(a[i, k].astype("float32") * b[j, k].astype("float32"), k),
        name="matmul",
    )
    summed = te.compute((M, N), lambda i, j: total[i, j] + bias[j], name="summed")
    c = te.compute(
        (M, N), lambda i, j: te.max(summed[i, j], 0.1 * summed[i, j]).astype("float16"), name="C"
    )
    return te.create_prim_func([a, b, bias, c])


# %% [markdown]
# ## The search
#
# `wms.Space` makes traces of choices (tiles, stages, clusters, ...) for GEMMs, and is TVM's own
# space for all other functions. What is recorded for an estimate target is never mixed with
# measured times.


# %%
def tune(mod, target, work_dir, estimated):
    if estimated:
        builder, runner = wms.EstimateBuilder(), wms.EstimateRunner()
    else:
        builder, runner = wms.Builder(), wms.Runner()
    ms.tune_tir(
        mod,
        target,
        work_dir,
        max_trials_global=16 if estimated else 32,
        num_trials_per_iter=16,
        builder=builder,
        runner=runner,
        space=wms.Space(),
        cost_model=wms.CostModel(),
        num_tuning_cores=1,
    )


# %% [markdown]
# ## The best schedule
#
# The database is TVM's, and so is what finds the best schedule in it. `tvm.compile` makes a kernel
# of a function with such annotations.


# %%
def compile_best(mod, target, work_dir):
    database = wms.open_database(work_dir)
    schedule = database.query_schedule(mod, target, "main")
    print("best:", config_of(schedule.mod["main"]))
    return tvm.compile(schedule.mod, default_target()[0])


def check(executable):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((rows, K)).astype("float16") for rows in (M, N))
    bias = rng.standard_normal(N).astype("float32")
    arrays = (a, b, bias, np.full((M, N), np.nan, "float16"))
    tensors = [tvm.runtime.tensor(one, tvm.cuda(0)) for one in arrays]
    executable["main"](*tensors)
    summed = a.astype("float64") @ b.astype("float64").T + bias
    error = np.abs(tensors[-1].numpy() - np.maximum(summed, 0.1 * summed)).max()
    print(f"largest error {error:.3f}, of {np.abs(summed).max():.1f}")
    assert error < 0.05


# %% [markdown]
# Processes that measure import this file, which therefore does nothing unless it is run.

# %%
if __name__ == "__main__":
    emulated = emulator.enable_without_gpu()
    target, _ = default_target()
    target = wms.estimate_target(target) if emulated else target
    mod = tvm.IRModule({"main": linear().with_attr("global_symbol", "main")})
    mod = wms.estimate_module(mod) if emulated else mod  # no real device ever finds estimates
    work_dir = tempfile.mkdtemp()
    tune(mod, target, work_dir, emulated)
    check(compile_best(mod, target, work_dir))
