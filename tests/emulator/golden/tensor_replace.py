"""Tensor maps that a kernel changes before it uses them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from tests.emulator.golden.case import Case
from tests.emulator.golden.tensor_modes import load, numbers, pitches
from tests.emulator.ptx_driver import TensorMap

_SHARED_MAP = """\
mov.u32 %r28, map;
mul.wide.u32 %d5, %t, 4;
add.u64 %d6, %m0, %d5;
ld.b32 %r29, [%d6];
mad.lo.u32 %r32, %t, 4, %r28;
st.shared.b32 [%r32], %r29;
bar.warp.sync -1;
@%q2 bra CHANGED;
{changes}
CHANGED:
bar.warp.sync -1;
mul.wide.u32 %d7, %r22, 128;
add.u64 %d7, %d7, %p2;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned\
 [%d7], [%r28], 128;
fence.proxy.tensormap::generic.acquire.gpu [%d7], 128;
"""

_GLOBAL_MAP = """\
mul.wide.u32 %d7, %r22, 128;
add.u64 %d7, %d7, %p2;
mul.wide.u32 %d5, %t, 4;
add.u64 %d6, %m0, %d5;
ld.b32 %r29, [%d6];
add.u64 %d8, %d7, %d5;
st.global.b32 [%d8], %r29;
__syncwarp;
@%q2 bra CHANGED;
{changes}
fence.proxy.tensormap::generic.release.gpu;
CHANGED:
bar.warp.sync -1;
fence.proxy.tensormap::generic.acquire.gpu [%d7], 128;
""".replace("__syncwarp", "bar.warp.sync -1")

#: A change of a map, and the box's bytes and rank afterwards, if they differ.
_CHANGES = (
    ("global_address", "b64", "", "%d9", 0, 0),
    ("rank", "b32", "", "1", 16 * 4 * 2, 2),
    ("box_dim", "b32", "1", "3", 16 * 3 * 2 * 2, 0),
    ("box_dim", "b32", "0", "8", 8 * 4 * 2 * 2, 0),
    ("global_dim", "b32", "0", "9", 0, 0),
    ("global_dim", "b32", "1", "3", 0, 0),
    ("global_stride", "b64", "0", "128", 0, 0),
    ("global_stride", "b64", "1", "1024", 0, 0),
    ("element_stride", "b32", "1", "2", 16 * 2 * 2 * 2, 0),
    ("elemtype", "b32", "", "2", 16 * 4 * 2 * 4, 0),
    ("elemtype", "b32", "", "10", 0, 0),
    ("swizzle_mode", "b32", "", "1", 0, 0),
    ("swizzle_mode", "b32", "", "3", 0, 0),
    ("fill_mode", "b32", "", "1", 0, 0),
)


def replacements() -> Iterator[Case]:
    """Maps in shared and in global memory, changed and used by the same kernel."""
    shape, box = (24, 6, 4), (16, 4, 2)
    strides = pitches(shape, 2, 16)
    tensor = TensorMap(0, 6, shape, strides[:-1], box, (1, 1, 1))
    at = np.array([[0, 0, 0, 0, 0], [16, 3, 3, 0, 0]], np.int32)
    source = numbers(8192)
    scratch = np.zeros(64, np.uint32)
    for (field, kind, ordinal, value, count, rank), space in itertools.product(
        _CHANGES, ("shared::cta", "global")
    ):
        template = _SHARED_MAP if space == "shared::cta" else _GLOBAL_MAP
        place = "%r28" if space == "shared::cta" else "%d7"
        change = f"add.u64 %d9, %p0, 2048;\ntensormap.replace.tile.{field}.{space}.b1024.{kind}"
        change += f" [{place}], {f'{ordinal}, ' if ordinal else ''}{value};"
        # Wide enough for 4-byte elements, and for rows of 128 bytes.
        yield load(
            f"{field}{ordinal}={value}:{space}",
            tensor,
            source,
            at,
            "tile",
            8 * 128,
            count or 16 * 4 * 2 * 2,
            before=template.format(changes=change),
            address="%d7",
            extra=(scratch,),
            rank=rank,
        )
