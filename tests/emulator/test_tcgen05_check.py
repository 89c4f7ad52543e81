"""What the checker finds in tensor memory: each rule kept once and broken once."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.emulator.checks import changed, run_checked
from tests.emulator.tcgen05 import (
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
    "completion is awaited without order": (
        await_barrier("WAIT"),
        changed(await_barrier("WAIT"), "try_wait.parity", "try_wait.parity.relaxed.cta"),
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


# A register of tcgen05.ld, and what is done with it before the wait.
LOADING = f"""
{address("%p0", 4)}
ld.global.b32 %v0, [%x];
tcgen05.st.sync.aligned.32x32b.x2.b32 [%a], {{%v0, %v0}};
tcgen05.wait::st.sync.aligned;
tcgen05.ld.sync.aligned.32x32b.x2.b32 {{%v1, %v2}}, [%a];
// early
tcgen05.wait::ld.sync.aligned;
// late
st.global.b32 [%x], %v3;
"""
#: Copies are renamings: the assembler gives both the same register.
COPIES = {
    "a copy": ("mov.b32 %v4, %v1;", "add.u32 %v3, %v4, 1;"),
    "a pair": ("mov.b64 %y, {%v1, %v2};", "cvt.u32.u64 %v3, %y; add.u32 %v3, %v3, 1;"),
    "a copy, and the register gets another use": (
        "mov.b32 %v4, %v1; add.u32 %v1, %v0, 1;",
        "add.u32 %v3, %v4, 1;",
    ),
    "nothing": ("", "add.u32 %v3, %v1, 1;"),
}
EARLY = {
    "the register": ("add.u32 %v3, %v1, 1;", "reads"),
    "a copy": ("mov.b32 %v4, %v2; mov.b32 %v5, %v4; add.u32 %v3, %v5, 1;", "reads"),
    "a pair": ("mov.b64 %y, {%v0, %v1}; add.u64 %y, %y, 1; cvt.u32.u64 %v3, %y;", "reads"),
    "a store": ("st.global.b32 [%x], %v1; mov.b32 %v3, %v0;", "reads"),
    "another value": ("add.u32 %v1, %v0, 1; mov.b32 %v3, %v1;", "overwrites"),
}


@pytest.mark.parametrize("case", COPIES)
def test_what_is_loaded_may_be_copied_before_the_wait(case):
    early, late = COPIES[case]
    array, (got,), reports = run(changed(changed(LOADING, "// early", early), "// late", late), 1)
    assert reports == []
    np.testing.assert_array_equal(got, array + np.uint32(1))


@pytest.mark.parametrize("case", EARLY)
def test_what_is_loaded_may_not_be_used_before_the_wait(case):
    early, verb = EARLY[case]
    reports = run(changed(LOADING, "// early", early), 1)[2]
    assert [report["kind"] for report in reports] == ["tensor memory"]
    text = reports[0]["text"]
    assert f"{verb} a register that PTX line" in text
    assert "loads, and tcgen05.wait::ld is missing between the two" in text
    assert "tcgen05.ld.sync.aligned.32x32b.x2.b32" in text


def test_a_wait_covers_the_loads_before_it_only():
    again = "tcgen05.ld.sync.aligned.32x32b.x2.b32 {%v4, %v5}, [%a]; add.u32 %v3, %v1, %v4;"
    again += "tcgen05.wait::ld.sync.aligned;"
    reports = run(changed(LOADING, "// late", again), 1)[2]
    assert len(reports) == 1 and "add.u32" in reports[0]["text"]
