"""What the checker finds in tensor memory: each rule kept once and broken once."""

from __future__ import annotations

import re

import numpy as np
import pytest

from emulator_checks import changed, run_checked
from emulator_tcgen05 import (
    DECLARATIONS,
    address,
    await_barrier,
    commit,
    init_barrier,
    random_words,
    with_memory,
)

SEEDS = (1, 2, 3)
BEFORE = "tcgen05.fence::before_thread_sync;"
AFTER = "tcgen05.fence::after_thread_sync;"

# Warps 0 to 3 store a column; thread 0 copies a matrix beside it, shifts both and commits; warps 0
# to 3 wait, load the columns and store them again.
BODY = f"""
{init_barrier()}
{address("%p0", 4)}
ld.global.b32 %v0, [%x];
tcgen05.st.sync.aligned.32x32b.x1.b32 [%a], %v0;
tcgen05.st.sync.aligned.32x32b.x4.b32 [%a+4], {{%v0, %v0, %v0, %v0}};
tcgen05.wait::st.sync.aligned; // stored
{BEFORE} // sends
mov.u32 %r4, tile; mad.lo.u32 %r4, %t, 16, %r4;
st.shared.v4.b32 [%r4], {{%v0, %v0, %v0, %v0}};
fence.proxy.async;
bar.sync 1; // all have stored
{AFTER} // receives
mov.u32 %r5, tile; shr.u32 %r5, %r5, 4; cvt.u64.u32 %d1, %r5;
or.b64 %d1, %d1, {128 // 16 << 32 | 1 << 46};
@%q6 tcgen05.cp.cta_group::1.128x128b [%a], %d1;
@%q6 tcgen05.shift.cta_group::1.down [%a];
@%q6 {commit()}
{await_barrier("WAIT")}
tcgen05.ld.sync.aligned.32x32b.x2.b32 {{%v1, %v2}}, [%a+3];
tcgen05.wait::ld.sync.aligned; // loaded
st.global.b32 [%x], %v1;
tcgen05.st.sync.aligned.32x32b.x1.b32 [%a+4], %v2;
tcgen05.wait::st.sync.aligned; // stored again
"""
TILE = ".shared .align 1024 .b8 tile[2048];"


def run(body: str, seed: int):
    rng = np.random.default_rng(seed)
    array = random_words(rng, 128)
    results, reports, _ = run_checked(
        with_memory(body, 32),
        DECLARATIONS + TILE,
        [array],
        seed=seed,
        block=(128, 1, 1),
        arch="sm_100a",
    )
    return array, results, reports


@pytest.mark.parametrize("seed", range(12))
def test_a_correct_kernel_is_silent(seed):
    array, results, reports = run(BODY, seed)
    assert reports == []
    (got,) = results
    quarters = array.reshape(4, 32)
    np.testing.assert_array_equal(got.reshape(4, 32), quarters[:, [*range(1, 32), 31]])


MUTANTS = {
    "store is not waited for": (
        "tcgen05.wait::st.sync.aligned; // stored\n",
        "",
        "tcgen05.wait::st is missing after the earlier one",
    ),
    "no fence before": (
        f"{BEFORE} // sends",
        "",
        "before_thread_sync is missing after the earlier one",
    ),
    "no fence after": (f"{AFTER} // receives", "", "after_thread_sync is missing before this one"),
    "no synchronisation": ("bar.sync 1; // all have stored", "", "nothing orders the two"),
    "completion is not awaited": (
        await_barrier("WAIT"),
        AFTER,
        "nothing has waited for the completion of the earlier one|nothing orders the two",
    ),
    "no fence after the completion": (
        await_barrier("WAIT"),
        await_barrier("WAIT").replace(AFTER, ""),
        "after_thread_sync is missing before this one",
    ),
    "load is not waited for": (
        "tcgen05.wait::ld.sync.aligned; // loaded",
        "",
        "tcgen05.wait::ld is missing after the earlier one",
    ),
    "store is not waited for before dealloc": (
        "tcgen05.wait::st.sync.aligned; // stored again",
        "",
        "tcgen05.wait::st is missing after the earlier one",
    ),
    "column that nobody has written": (
        "tcgen05.st.sync.aligned.32x32b.x4.b32 [%a+4], {%v0, %v0, %v0, %v0};",
        "",
        "which nothing has written since",
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_synchronisation_is_missed(mutant):
    old, new, message = MUTANTS[mutant]
    body = changed(BODY, old, new)
    texts = [report["text"] for seed in SEEDS for report in run(body, seed)[2]]
    assert re.search(message, "\n".join(texts)), texts


def test_a_report_names_both_sides():
    body = changed(BODY, "tcgen05.wait::st.sync.aligned; // stored\n", "")
    text = run(body, 1)[2][0]["text"]
    assert "tensor memory in kernel kernel: PTX line" in text
    assert "tcgen05.cp.cta_group::1.128x128b of CTA (0, 0, 0) warp 0 lane 0 writes lane" in text
    assert "tcgen05.st.sync.aligned.32x32b.x1.b32 of CTA (0, 0, 0) warp" in text
