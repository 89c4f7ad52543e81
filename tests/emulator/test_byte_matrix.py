"""``ldmatrix`` and ``stmatrix`` of elements of 8, 6 and 4 bits."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.run_ptx import EmulatorError, kernel, launch

ROWS = 32
SHARED = ".shared .align 16 .b8 tile[512];"
#: Lane t has the address of row ``%r0`` in ``%r1``.
ADDRESS = "mov.u32 %r1, tile; mad.lo.u32 %r1, %r0, 16, %r1;"


def registers(count: int) -> str:
    return "{" + ", ".join(f"%r{8 + i}" for i in range(count)) + "}"


def load(text: str, tile: np.ndarray, count: int, order: np.ndarray) -> np.ndarray:
    """The bytes of the registers of all lanes; lane t gives the address of row ``order[t]``."""
    stores = "\n".join(f"st.global.b32 [%d3+{128 * i}], %r{8 + i};" for i in range(count))
    body = f"""mul.wide.u32 %d1, %t, 16; add.u64 %d1, %d1, %p0;
    ld.global.v4.b32 {{%r2, %r3, %r4, %r5}}, [%d1];
    mov.u32 %r1, tile; mad.lo.u32 %r1, %t, 16, %r1;
    st.shared.v4.b32 [%r1], {{%r2, %r3, %r4, %r5}};
    mul.wide.u32 %d2, %t, 4; add.u64 %d3, %d2, %p2; add.u64 %d2, %d2, %p1;
    ld.global.b32 %r0, [%d2];
    bar.sync 0;
    {ADDRESS}
    {text} {registers(count)}, [%r1];
    {stores}"""
    arrays = [tile, order.astype(np.uint32), np.full((count, 32), 0xA5A5A5A5, np.uint32)]
    words = launch(kernel(3, body, SHARED), arrays, arch="sm_100a")[2]
    return words.view(np.uint8).reshape(count, 32, 4)


def unpacked(tile: np.ndarray, bits: int) -> np.ndarray:
    """The 16 elements of each row, from its first ``16 * bits`` bits."""
    stream = np.unpackbits(tile, axis=1, bitorder="little")[:, : 16 * bits].reshape(-1, 16, bits)
    return (stream << np.arange(bits)).sum(-1).astype(np.uint8)


PACKED = {"b8": 8, "b8x16.b6x16_p32": 6, "b8x16.b4x16_p64": 4}


@pytest.mark.parametrize("kind", ["b8x16.b6x16_p32", "b8x16.b4x16_p64"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_neighbours_of_a_row(rng, count, kind):
    tile = rng.integers(0, 256, (ROWS, 16), dtype=np.uint8)
    order = rng.permutation(ROWS)
    got = load(f"ldmatrix.sync.aligned.m8n16.x{count}.shared.{kind}", tile, count, order)
    rows = unpacked(tile, PACKED[kind])[order][: 8 * count]
    np.testing.assert_array_equal(got.reshape(8 * count, 16), rows)


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("count", [1, 2])
def test_columns_of_sixteen_rows(rng, count, kind):
    tile = rng.integers(0, 256, (ROWS, 16), dtype=np.uint8)
    order = rng.permutation(ROWS)
    text = f"ldmatrix.sync.aligned.m16n16.x{count}.trans.shared.{kind}"
    got = load(text, tile, 2 * count, order)
    rows = unpacked(tile, PACKED[kind])[order]
    for q, half, lane, byte in np.ndindex(count, 2, 32, 4):
        row = 16 * q + lane % 4 * 4 + half * 2 + byte % 2
        column = lane // 4 + byte // 2 * 8
        assert got[2 * q + half, lane, byte] == rows[row, column]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_stores_of_columns(rng, count):
    words = rng.integers(0, 1 << 32, (count, 32), dtype=np.uint32)
    order = rng.permutation(ROWS)
    loads = "\n".join(f"ld.global.b32 %r{8 + i}, [%d3+{128 * i}];" for i in range(count))
    body = f"""mul.wide.u32 %d2, %t, 4; add.u64 %d3, %d2, %p0; add.u64 %d2, %d2, %p1;
    {loads}
    mov.u32 %r1, tile; mad.lo.u32 %r1, %t, 16, %r1;
    mov.b32 %r2, 0xa5a5a5a5;
    st.shared.v4.b32 [%r1], {{%r2, %r2, %r2, %r2}};
    ld.global.b32 %r0, [%d2];
    bar.sync 0;
    {ADDRESS}
    stmatrix.sync.aligned.m16n8.x{count}.trans.shared.b8 [%r1], {registers(count)};
    bar.sync 0;
    mov.u32 %r1, tile; mad.lo.u32 %r1, %t, 16, %r1;
    ld.shared.v4.b32 {{%r2, %r3, %r4, %r5}}, [%r1];
    mul.wide.u32 %d1, %t, 16; add.u64 %d1, %d1, %p2;
    st.global.v4.b32 [%d1], {{%r2, %r3, %r4, %r5}};"""
    arrays = [words, order.astype(np.uint32), np.zeros((ROWS, 16), np.uint8)]
    got = launch(kernel(3, body, SHARED), arrays, arch="sm_100a")[2]
    values = words.view(np.uint8).reshape(count, 32, 4)
    expected = np.full((ROWS, 16), 0xA5, np.uint8)
    for q, lane, byte in np.ndindex(count, 32, 4):
        row = 8 * q + lane % 4 * 2 + byte % 2
        expected[order[row], lane // 4 + byte // 2 * 8] = values[q, lane, byte]
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ldmatrix.sync.aligned.m16n16.x1.shared.b8 {%r8, %r9}, [%r1];", "need .trans"),
        ("ldmatrix.sync.aligned.m16n16.x4.trans.shared.b8 {%r8, %r9}, [%r1];", ".x1 or .x2"),
        ("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r8}, [%r1];", "number of registers"),
        ("ldmatrix.sync.aligned.m8n16.x1.shared.b8 {%r8}, [%r1];", "may be .b8x16"),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b8 {%r8}, [%r1];", ".m8n8 takes .b16"),
        ("stmatrix.sync.aligned.m16n8.x1.shared.b8 [%r1], {%r8};", "need .trans"),
        ("stmatrix.sync.aligned.m16n16.x1.trans.shared.b8 [%r1], {%r8};", ".m8n8 or .m16n8"),
    ],
)
def test_forms_that_do_not_exist(text, reason):
    with pytest.raises(EmulatorError, match=reason):
        launch(kernel(0, text), [], arch="sm_100a")
