"""``add``, ``sub`` and ``fma`` of f32 with halves, and smaller instructions of the ISA."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.run_ptx import EmulatorError, elementwise, kernel, launch

COUNT = 512


def halves(rng: np.random.Generator, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Random bits, and the numbers they stand for."""
    bits = rng.integers(0, 1 << 16, COUNT, dtype=np.uint16)
    if kind == "f16":
        with np.errstate(invalid="ignore"):
            return bits, bits.view(np.float16).astype(np.float64)
    with np.errstate(invalid="ignore"):
        wide = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    return bits, wide


def rounded(exact: np.ndarray, mode: str) -> np.ndarray:
    """float64 to float32, in a rounding mode."""
    with np.errstate(over="ignore", invalid="ignore"):
        near = exact.astype(np.float32)
    wide = near.astype(np.float64)
    down, up = np.float32(-np.inf), np.float32(np.inf)
    towards_zero = np.where(exact > 0, wide > exact, wide < exact)
    move = {"rn": exact != exact, "rz": towards_zero, "rm": wide > exact, "rp": wide < exact}[mode]
    target = {"rn": near, "rz": np.zeros_like(near), "rm": down, "rp": up}[mode]
    return np.where(move, np.nextafter(near, target), near).astype(np.float32)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["add", "sub", "fma"])
@np.errstate(invalid="ignore", over="ignore")
def test_halves_are_operands_of_f32(rng, name, kind, mode):
    (a_bits, a), (b_bits, b) = halves(rng, kind), halves(rng, kind)
    # Within 2^20 of each other sums and products are exact in float64.
    scale = rng.integers(-8, 8, COUNT)
    c = (rng.standard_normal(COUNT) * 2.0**scale).astype(np.float32)
    limit = {"add": np.abs(a), "sub": np.abs(a), "fma": np.abs(a * b)}[name]
    near = (limit > 2.0**-12) & (limit < 2.0**12)
    assert near.sum() > 20
    if name == "fma":
        got = elementwise(f"fma.{mode}.f32.{kind} {{d}}, {{0}}, {{1}}, {{2}}", np.float32,
                          a_bits, b_bits, c, arch="sm_100a")  # fmt: skip
        exact = a * b + c
    else:
        got = elementwise(
            f"{name}.{mode}.f32.{kind} {{d}}, {{0}}, {{1}}", np.float32, a_bits, c, arch="sm_100a"
        )
        exact = a + c if name == "add" else a - c
    np.testing.assert_array_equal(got[near], rounded(exact[near], mode))
    assert (got.view(np.uint32)[np.isnan(exact)] == 0x7FFFFFFF).all()


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_saturation(rng, kind):
    a_bits, a = halves(rng, kind)
    c = rng.uniform(-1, 1, COUNT).astype(np.float32)
    text = f"add.sat.f32.{kind} {{d}}, {{0}}, {{1}}"
    got = elementwise(text, np.float32, a_bits, c, arch="sm_100a")
    with np.errstate(over="ignore", invalid="ignore"):
        total = (a + c).astype(np.float32)
    np.testing.assert_array_equal(got, np.where(np.isnan(total), 0, np.clip(total, 0, 1)))


@pytest.mark.parametrize(
    "text",
    [
        "add.f16.f32 {d}, {0}, {1}",
        "add.ftz.f32.f16 {d}, {0}, {1}",
        "mul.f32.f16 {d}, {0}, {1}",
        "fma.rn.f32.f16x2 {d}, {0}, {0}, {1}",
    ],
)
def test_mixtures_that_do_not_exist(text):
    with pytest.raises(EmulatorError, match=f"{text.split()[0]}'"):
        elementwise(text, np.float32, np.zeros(32, np.uint16), np.zeros(32, np.float32))


def test_asynchronous_stores_to_global_memory(rng):
    values = rng.integers(0, 1 << 32, 32, dtype=np.uint32)
    body = """mul.wide.u32 %d1, %t, 4; add.u64 %d2, %d1, %p0; add.u64 %d3, %d1, %p1;
    add.u64 %d4, %d1, %p2;
    ld.global.b32 %r1, [%d2];
    st.async.mmio.release.sys.global.u32 [%d3], %r1;
    red.async.mmio.release.gpu.global.add.u32 [%d4], %r1;
    red.async.release.gpu.global.add.u32 [%d4], 5;"""
    start = rng.integers(0, 1 << 32, 32, dtype=np.uint32)
    arrays = [values, np.full(32, 0xA5, np.uint32), start]
    _, stored, added = launch(kernel(3, body), arrays, arch="sm_100a")
    np.testing.assert_array_equal(stored, values)
    np.testing.assert_array_equal(added, start + values + np.uint32(5))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("st.async.mmio.sys.global.u32 [%d1], %r1;", "or is .release"),
        ("st.async.mmio.release.sys.shared.u32 [%r1], %r1;", "global memory"),
        ("red.async.mmio.release.sys.global.add.f32 [%d1], %r1;", "integers"),
        ("pmevent 16;", "0 to 15"),
        ("pmevent.mask 0x10000;", "0 to 65535"),
        ("pmevent %r1;", "not an integer literal"),
    ],
)
def test_wrong_forms(text, reason):
    with pytest.raises(EmulatorError, match=reason):
        launch(kernel(0, text), [], arch="sm_100a")


def test_performance_events_do_nothing(rng):
    values = rng.integers(0, 1 << 32, 32, dtype=np.uint32)
    got = elementwise("pmevent 3; pmevent.mask 0x8001; not.b32 {d}, {0}", np.uint32, values)
    np.testing.assert_array_equal(got, ~values)


def drop(start: int, count: int) -> str:
    return f""".shared .align 8 .b64 bar; mov.u32 %r1, bar;
    setp.eq.u32 %q1, %t, 0; @!%q1 bra OUT;
    mbarrier.init.shared::cta.b64 [%r1], {start};
    mbarrier.arrive_drop.noComplete.release.cta.shared::cta.b64 %d1, [%r1], {count};
    mbarrier.pending_count.b64 %r2, %d1;
    mbarrier.arrive.shared::cta.b64 %d2, [%r1], {max(start - count, 1)};
    mbarrier.test_wait.shared::cta.b64 %q2, [%r1], %d1; selp.u32 %r3, 1, 0, %q2;
    mbarrier.arrive.shared::cta.b64 %d2, [%r1];
    mbarrier.pending_count.b64 %r4, %d2;
    st.global.v4.b32 [%p0], {{%r2, %r3, %r4, %r1}};
    OUT:"""


@pytest.mark.parametrize(("start", "count"), [(5, 1), (9, 4), (1000, 998)])
def test_arrivals_that_drop_and_do_not_complete(start, count):
    """Later phases wait for fewer threads, this one still for the others."""
    (got,) = launch(kernel(1, drop(start, count)), [np.zeros(4, np.uint32)])
    assert got[:3].tolist() == [start, 1, start - count]


def test_an_arrival_that_would_complete_the_phase():
    with pytest.raises(EmulatorError, match=r"arrive_drop.noComplete with count 3 would complete"):
        launch(kernel(1, drop(3, 3)), [np.zeros(4, np.uint32)])
