"""``tcgen05.cp``, ``tcgen05.shift`` and ``tcgen05.commit``."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.options import options
from tests.emulator.run_ptx import EmulatorError, kernel, launch
from tests.emulator.tcgen05 import (
    DECLARATIONS,
    address,
    await_barrier,
    commit,
    init_barrier,
    random_words,
    read_all,
    with_memory,
    write_all,
)

TILE_BYTES = 16384
TILE = f".shared .align 1024 .b8 tile[{TILE_BYTES}];"
COLUMNS = 32
#: Rows, chunks of 16 bytes in a row, and the lanes that a row goes to.
SHAPES = {
    "128x256b": (128, 2, lambda row: [row]),
    "4x256b": (4, 2, lambda row: [32 * row]),
    "128x128b": (128, 1, lambda row: [row]),
    "64x128b.warpx2::02_13": (64, 1, lambda row: [row, row + 64]),
    "64x128b.warpx2::01_23": (64, 1, lambda row: [row % 32 + row // 32 * 64 + i for i in (0, 32)]),
    "32x128b.warpx4": (32, 1, lambda row: [row + 32 * i for i in range(4)]),
}
FORMATS = ["", ".b8x16.b4x16_p64", ".b8x16.b6x16_p32"]
#: Code of the swizzle in a descriptor by the bytes of its rows.
SWIZZLES = {16: 0, 128: 2, 64: 4, 32: 6}


def place(swizzle: int, row: int, chunk: int, leading: int, stride: int) -> int:
    """Byte of the tile where a chunk of a K-major matrix lies."""
    if swizzle == 16:
        return row // 8 * stride + row % 8 * 16 + chunk * leading
    linear = row // 8 * stride + row % 8 * swizzle + chunk * 16
    return linear ^ ((linear >> 7 & (swizzle // 16 - 1)) << 4)


def decompress(chunk: np.ndarray, conversion: str) -> np.ndarray:
    bits = np.unpackbits(chunk, bitorder="little")
    if not conversion:
        return chunk
    width = 4 if "b4x16" in conversion else 6
    codes = bits[: 16 * width].reshape(16, width) @ (1 << np.arange(width))
    return (codes << (6 - width)).astype(np.uint8)


def fill_tile(pointer: str) -> str:
    """128 threads of a CTA copy its bytes of an array to ``tile``."""
    words = TILE_BYTES // 512
    lines = [
        f"mov.u32 %r0, %cluster_ctarank; mul.wide.u32 %y, %r0, {TILE_BYTES};",
        f"add.u64 %y, %y, {pointer}; mul.wide.u32 %x, %t, 4; add.u64 %y, %y, %x;",
        "mov.u32 %r4, tile; mad.lo.u32 %r4, %t, 4, %r4;",
    ]
    for i in range(words):
        lines.append(f"ld.global.b32 %r3, [%y+{512 * i}]; st.shared.b32 [%r4+{512 * i}], %r3;")
    lines.append("fence.proxy.async; bar.sync 0;")
    return "\n".join(lines)


def descriptor(swizzle: int, leading: int, stride: int) -> str:
    """``%d1`` describes a matrix that begins at ``tile``."""
    fixed = leading // 16 << 16 | stride // 16 << 32 | 1 << 46 | SWIZZLES[swizzle] << 61
    return f"""mov.u32 %r5, tile; shr.u32 %r5, %r5, 4; cvt.u64.u32 %d1, %r5;
    or.b64 %d1, %d1, {fixed - (1 << 64) if fixed >> 63 else fixed};"""


def run(arrays: list[np.ndarray], body: str, *, group: int = 1, **options: object):
    source = kernel(len(arrays), with_memory(body, COLUMNS, group=group), DECLARATIONS + TILE)
    if group == 2:
        options |= {"grid": (2, 1, 1), "cluster": (2, 1, 1)}
    return launch(source, arrays, arch="sm_100a", **{"block": (128, 1, 1), **options})


@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize("conversion", FORMATS, ids=["bytes", "b4", "b6"])
@pytest.mark.parametrize("shape", SHAPES)
def test_copy_moves_rows_to_the_lanes_of_the_shape(shape, conversion, swizzle, rng):
    rows, chunks, lanes = SHAPES[shape]
    leading, stride = (int(128 * rng.integers(16, 48)), 128) if swizzle == 16 else (16, 8 * swizzle)
    tile = rng.integers(0, 256, TILE_BYTES, dtype=np.uint8)
    before = random_words(rng, 128, COLUMNS)
    body = f"""{write_all("%p0", COLUMNS)}{fill_tile("%p1")}{init_barrier()}
    {descriptor(swizzle, leading, stride)}
    add.u32 %r6, %a, 8;
    @%q6 tcgen05.cp.cta_group::1.{shape}{conversion} [%r6], %d1;
    @%q6 {commit()}
    {await_barrier("WAIT")}
    {read_all("%p2", COLUMNS)}"""
    got = run([before, tile, np.zeros_like(before)], body, seed=int(rng.integers(1 << 30)))[-1]
    expected = before.copy()
    for row in range(rows):
        for chunk in range(chunks):
            at = place(swizzle, row, chunk, leading, stride)
            words = decompress(tile[at : at + 16], conversion).view(np.uint32)
            for lane in lanes(row):
                expected[lane, 8 + 4 * chunk : 12 + 4 * chunk] = words
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("seed", range(3))
def test_a_pair_copies_in_both_from_the_shared_memory_of_each(seed, rng):
    tile = rng.integers(0, 256, (2, TILE_BYTES), dtype=np.uint8)
    before = random_words(rng, 256, COLUMNS)
    body = f"""{write_all("%p0", COLUMNS)}{fill_tile("%p1")}{init_barrier()}
    {descriptor(16, 2048, 128)}
    mov.u32 %r5, %cluster_ctarank; setp.eq.and.u32 %q4, %r5, 1, %q6;
    tcgen05.fence::after_thread_sync;
    @%q4 tcgen05.cp.cta_group::2.128x128b [%a], %d1;
    @%q4 {commit(group=2, mask=3)}
    {await_barrier("WAIT")}
    {read_all("%p2", COLUMNS)}"""
    got = run([before, tile, np.zeros_like(before)], body, group=2, seed=seed)[-1]
    expected = before.copy()
    expected[:, :4] = tile[:, :2048].reshape(256, 16).view(np.uint32)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("seed", range(3))
def test_what_a_thread_issues_is_executed_in_that_order(seed, rng):
    tile = rng.integers(0, 256, TILE_BYTES, dtype=np.uint8)
    body = f"""{write_all("%p0", COLUMNS)}{fill_tile("%p1")}{init_barrier()}
    {descriptor(16, 2048, 128)}
    @%q6 tcgen05.cp.cta_group::1.128x128b [%a], %d1;
    @%q6 tcgen05.shift.cta_group::1.down [%a];
    add.u64 %d1, %d1, 128;
    add.u32 %r6, %a, 4;
    @%q6 tcgen05.cp.cta_group::1.128x128b [%r6], %d1;
    @%q6 tcgen05.shift.cta_group::1.down [%a];
    @%q6 {commit()}
    {await_barrier("WAIT")}
    {read_all("%p2", COLUMNS)}"""
    before = random_words(rng, 128, COLUMNS)
    got = run([before, tile, np.zeros_like(before)], body, seed=seed)[-1]
    expected = before.reshape(4, 32, COLUMNS).copy()

    def shift() -> None:
        expected[:, :31, :8] = expected[:, 1:, :8].copy()

    words = tile[:4096].reshape(2, 4, 32, 16).view(np.uint32)
    expected[..., :4] = words[0]
    shift()
    expected[..., 4:8] = words[1]
    shift()
    np.testing.assert_array_equal(got, expected.reshape(128, COLUMNS))


def test_nothing_happens_before_someone_waits_at_the_latest():
    """Under some seed, a load that does not wait for the copy misses it."""
    tile = np.full(TILE_BYTES, 7, np.uint8)
    before = np.full((128, COLUMNS), 1, np.uint32)
    body = f"""{write_all("%p0", COLUMNS)}{fill_tile("%p1")}{init_barrier()}
    {descriptor(16, 2048, 128)}
    @%q6 tcgen05.cp.cta_group::1.128x128b [%a], %d1;
    @%q6 {commit()}
    {read_all("%p2", COLUMNS)}
    {await_barrier("WAIT")}"""
    with options(checks=False):
        results = [
            run([before, tile, np.zeros_like(before)], body, seed=seed)[-1] for seed in range(9)
        ]
    assert any((got == before).all() for got in results)


@pytest.mark.parametrize("mask", [1, 2, 3])
def test_commit_arrives_in_the_ctas_of_its_mask(mask):
    body = f"""{init_barrier()}
    mov.u32 %r5, %cluster_ctarank; setp.eq.and.u32 %q4, %r5, 0, %q6;
    @%q4 {commit(group=2, mask=mask)}
    shr.u32 %r6, {mask}, %r5; and.b32 %r6, %r6, 1; setp.eq.u32 %q3, %r6, 0;
    @%q3 bra AFTER;
    {await_barrier("WAIT")}
AFTER:
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    mbarrier.test_wait.parity.shared::cta.b64 %q5, [barrier], 0;
    selp.u32 %v0, 1, 0, %q5;
    {address("%p0", 4)}
    st.global.b32 [%x], %v0;"""
    (got,) = run([np.full(256, 9, np.uint32)], body, group=2)
    np.testing.assert_array_equal(got, np.repeat([mask & 1, mask >> 1], 128))


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        ("tcgen05.cp.cta_group::1.64x128b [%a], %d1;", r"needs .warpx2::02_13 or .warpx2::01_23"),
        ("tcgen05.cp.cta_group::1.32x128b [%a], %d1;", r".32x128b needs .warpx4"),
        ("tcgen05.cp.cta_group::1.128x256b.warpx4 [%a], %d1;", "'.warpx4'"),
        ("tcgen05.cp.cta_group::1.128x256b.b8x16 [%a], %d1;", "it needs both formats"),
        ("tcgen05.cp.128x256b [%a], %d1;", "needs .cta_group::1 or .cta_group::2"),
        ("tcgen05.shift.cta_group::1 [%a];", "it needs .down"),
        ("tcgen05.commit.cta_group::1.b64 [%d1];", "it needs .mbarrier::arrive::one"),
    ],
)
def test_what_is_no_instruction_is_refused_when_it_is_loaded(instruction, message):
    with pytest.raises(EmulatorError, match=message):
        launch(kernel(0, instruction, DECLARATIONS), [], arch="sm_100a")


@pytest.mark.parametrize(
    ("instructions", "message"),
    [
        ("mov.b64 %d1, 0;@%q6 tcgen05.cp.cta_group::1.128x128b [%a], %d1;", "matrix descriptor"),
        ("add.u32 %r6, %a, 29;@%q6 tcgen05.cp.cta_group::1.128x128b [%r6], %d1;", "not all alloc"),
        ("add.u32 %r6, %a, 0x10000;@%q6 tcgen05.cp.cta_group::1.128x128b [%r6], %d1;", "lane 128"),
        ("add.u32 %r6, %a, 0x10000;@%q6 tcgen05.shift.cta_group::1.down [%r6];", "multiple of 32"),
        ("@%q6 tcgen05.shift.cta_group::2.down [%a];", "it has no peer"),
        ("@%q6 " + commit(mask=4), "no CTA of rank 2"),
        ("@%q6 " + commit(mask=0), "mask is zero"),
    ],
)
def test_misuse(instructions, message):
    body = f"""{init_barrier()}{descriptor(16, 2048, 128)}
    {instructions}
    @%q6 {commit()}
    {await_barrier("WAIT")}"""
    with pytest.raises(EmulatorError, match=message):
        run([], body)
