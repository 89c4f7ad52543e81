"""Pieces of PTX that use tensor memory, for the tests of ``tcgen05``."""

from __future__ import annotations

import numpy as np

#: For the bodies below: ``%a`` is the address that was allocated, ``%q7`` is true in warp 0.
DECLARATIONS = """.reg .b32 %v<128>; .reg .b32 %w<32>; .reg .b32 %a; .reg .b64 %x; .reg .b64 %y;
.shared .align 4 .b32 slot; .shared .align 8 .b64 barrier;"""


def vector(prefix: str, count: int) -> str:
    """Registers between braces."""
    return "{" + ", ".join(f"%{prefix}{i}" for i in range(count)) + "}"


def allocate(columns: int, *, group: int = 1, slot: str = "slot") -> str:
    """The instruction of a warp."""
    return f"tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [{slot}], {columns};"


def free(columns: int, *, group: int = 1, address: str = "%a") -> str:
    """The instruction of a warp."""
    return f"tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 {address}, {columns};"


def cluster_sync() -> str:
    """All threads of the cluster meet."""
    return "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


def with_memory(body: str, columns: int = 512, *, group: int = 1) -> str:
    """A body that runs with tensor memory at ``%a``; warp 0 allocates and frees it."""
    meet = cluster_sync() if group == 2 else "bar.sync 0;"
    return f"""
    setp.lt.u32 %q7, %t, 32;
    @!%q7 bra HAVE;
    {allocate(columns, group=group)}
    tcgen05.relinquish_alloc_permit.cta_group::{group}.sync.aligned;
HAVE:
    tcgen05.fence::before_thread_sync;
    {meet}
    tcgen05.fence::after_thread_sync;
    ld.shared.b32 %a, [slot];
    {body}
    tcgen05.fence::before_thread_sync;
    {meet}
    tcgen05.fence::after_thread_sync;
    @!%q7 bra DONE;
    {free(columns, group=group)}
DONE:
"""


def address(pointer: str, row_bytes: int) -> str:
    """``%x`` is the address of the row of an array that the thread of the cluster has."""
    return f"""mov.u32 %r0, %cluster_ctarank; mad.lo.u32 %r0, %r0, 128, %t;
    mul.wide.u32 %x, %r0, {row_bytes};\nadd.u64 %x, %x, {pointer};"""


def own_quarter(lane: int = 0, column: int = 0) -> str:
    """``%r1`` is the address of a lane of the warp's quarter."""
    return f"""shr.u32 %r0, %t, 5; and.b32 %r0, %r0, 3; shl.b32 %r0, %r0, 21;
    add.u32 %r1, %a, {(lane << 16) + column}; add.u32 %r1, %r1, %r0;"""


def read_all(pointer: str, columns: int) -> str:
    """Each thread of four warps writes its lane's first columns to its row of an array."""
    lines = [address(pointer, 4 * columns), own_quarter()]
    for begin in range(0, columns, 32):
        lines.append(f"add.u32 %r2, %r1, {begin};")
        lines.append(f"tcgen05.ld.sync.aligned.32x32b.x32.b32 {vector('w', 32)}, [%r2];")
        lines.append("tcgen05.wait::ld.sync.aligned;")
        lines += [f"st.global.b32 [%x+{4 * (begin + i)}], %w{i};" for i in range(32)]
    return "\n".join(lines)


def write_all(pointer: str, columns: int) -> str:
    """The reverse of :func:`read_all`."""
    lines = [address(pointer, 4 * columns), own_quarter()]
    for begin in range(0, columns, 32):
        lines += [f"ld.global.b32 %w{i}, [%x+{4 * (begin + i)}];" for i in range(32)]
        lines.append(f"add.u32 %r2, %r1, {begin};")
        lines.append(f"tcgen05.st.sync.aligned.32x32b.x32.b32 [%r2], {vector('w', 32)};")
        lines.append("tcgen05.wait::st.sync.aligned;")
    lines.append("tcgen05.fence::before_thread_sync; bar.sync 0;")
    lines.append("tcgen05.fence::after_thread_sync;")
    return "\n".join(lines)


def init_barrier() -> str:
    """Thread 0 of each CTA makes ``barrier`` one of one arrival; the cluster meets.

    ``%h0`` to ``%h4`` become 0 to 4, masks for :func:`commit`.
    """
    masks = " ".join(f"mov.u16 %h{i}, {i};" for i in range(5))
    return f"""{masks} setp.eq.u32 %q6, %t, 0;
    @%q6 mbarrier.init.shared::cta.b64 [barrier], 1;
    @%q6 fence.mbarrier_init.release.cluster;
    fence.proxy.async;
    {cluster_sync()}"""


def await_barrier(label: str, parity: int = 0) -> str:
    """All threads wait for a phase of ``barrier``, and may use tensor memory then."""
    return f"""{label}:
    mbarrier.try_wait.parity.shared::cta.b64 %q5, [barrier], {parity};
    @!%q5 bra {label};
    tcgen05.fence::after_thread_sync;"""


def commit(*, group: int = 1, mask: int | None = None) -> str:
    """``tcgen05.commit`` to ``barrier`` of this CTA, or of the CTAs of a mask (0 to 4)."""
    head = f"tcgen05.commit.cta_group::{group}.mbarrier::arrive::one.shared::cluster"
    if mask is None:
        return f"{head}.b64 [barrier];"
    return f"{head}.multicast::cluster.b64 [barrier], %h{mask};"


def random_words(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Arbitrary bits."""
    return rng.integers(0, 1 << 32, shape, dtype=np.uint32)
