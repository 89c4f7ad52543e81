# %% [markdown]
# # Compile a model with the database that comes with the package
#
#     python tutorials/11_shipped_database.py
#
# **Time:** 15 minutes.
#
# warploom brings configurations of GEMMs that were measured side by side on a GPU. A model
# that is compiled uses them without a word from you. For each of its GEMMs the order is:
# databases of your own, what is shipped, the analytic model, and TVM's own schedules for what is
# no GEMM.

# %%
import tempfile

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend import nn

from warploom import emulator
from warploom import meta_schedule as wms
from warploom.meta_schedule.workloads import matmul
from warploom.relax.inspect import inspect
from warploom.target.tvm_target import default_target

# %% [markdown]
# ## What there is
#
# Every record is verified when it is read: the versions of warploom and TVM that it was made with,
# and that a kernel for the GEMM can have its config. What does not pass is left out, with a
# reason. `warploom tune db inspect` prints the same as a table.

# %%
found = wms.shipped()
for record in found.records:
    print(f"{record.problem}: {record.seconds * 1e6:.1f} us")
for reason in found.skipped:
    print("left out:", reason)
record = min(found.records, key=lambda one: one.problem.m * one.problem.n * one.problem.k)
rows, columns, depth = record.problem.m, record.problem.n, record.problem.k


# %% [markdown]
# ## A model with such a GEMM
#
# A record also serves the same GEMM with an epilogue of another kind, here a bias, and with up
# to twice as many or half as many rows.


# %%
class Layer(nn.Module):
    def __init__(self):
        self.linear = nn.Linear(depth, columns, bias=True)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return nn.op.relu(self.linear(x))


def model():
    layer = Layer()
    layer.to("float16")
    spec = {"forward": {"x": nn.spec.Tensor([rows, depth], "float16")}}
    return layer.export_tvm(spec)[0]


for report in inspect(model()):
    print(report)

# %% [markdown]
# ## Compile it
#
# `relax.build(mod, target)` alone does the same, through TVM's default pipeline. The pipeline by
# its name takes arguments: `shipped=False` leaves out what is shipped, and `databases` puts records
# of your own searches before it. `WARPLOOM_SHIPPED=0` in the environment turns off what is shipped
# everywhere. Without a GPU there is nothing to measure, and so no search here; estimates of the
# analytic model in a database are used only if `estimates=True` asks for them.

# %%
emulated = emulator.enable_without_gpu()
target, _ = default_target()
pipelines = {
    "shipped": relax.get_pipeline("warploom"),
    "model": relax.get_pipeline("warploom", shipped=False),
}
if not emulated:
    work_dir = tempfile.mkdtemp()
    wms.tune_tir(matmul(rows, columns, depth), target, work_dir, 32)
    pipelines["tuned"] = relax.get_pipeline("warploom", databases=[work_dir])

rng = np.random.default_rng(0)
arrays = [
    rng.standard_normal(shape).astype("float16")
    for shape in ((rows, depth), (columns, depth), (columns,))
]
x, weight, bias = (one.astype("float64") for one in arrays)
expected = np.maximum(x @ weight.T + bias, 0)
tensors = [tvm.runtime.tensor(one, tvm.cuda(0)) for one in arrays]
for name, pipeline in pipelines.items():
    executable = relax.build(model(), target, relax_pipeline=pipeline)
    if emulated and rows * columns * depth > 5e7:
        print(name, "is compiled; it is too large to be emulated here")
        continue
    result = relax.VirtualMachine(executable, tvm.cuda(0))["forward"](*tensors).numpy()
    error = np.abs(result - expected).max() / expected.max()
    print(f"{name}: largest error {error:.1e} of the largest result")
    assert error < 0.01

# %% [markdown]
# ## How much it covers, and how it is made
#
# `warploom bench hit-rate` prints, for 70 public models, the share of layers and rows for which
# there is a record. A record also serves other GPUs with as many multiprocessors: one of an H200
# serves an H100 SXM.
#
#     warploom bench records --minutes 8 --out records-judged.jsonl
#     warploom tune db ship records-judged.jsonl --before h200.jsonl --out h200.jsonl
#
# The first command measures, on a GPU, the model's best configurations of the layers that raise
# this share most. The fastest gets the record if it beats the default by more than the noise, and
# else the default. With `--before` what was shipped already is kept, but for GEMMs that were
# measured again. `warploom tune db verify h200.jsonl` checks a file.
#
# `ship` also takes databases of searches, and results of `warploom bench tuning`, which measures
# defaults, short searches and many candidates side by side; of these it keeps the GEMMs for which
# something beats the default by more than 1 %.
#
#     warploom bench tuning --suite public --group llama --epilogue swiglu --minutes 0
#
# only searches, here for fused GEMMs, and measures what it has found beside the default.
