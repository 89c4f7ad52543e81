"""Builtins for authors who orchestrate threads: one function for each operation of an instruction.

``from warploom import language as wl`` has them as ``wl.<name>``, TVMScript as
``T.warploom.<name>``. Each returns an expression that is a statement when it stands alone; where
TVM has the instruction in ``T.ptx`` or ``T.cuda`` it is that. ``VOCABULARY.md`` says for each which
instruction it becomes, TVM's counterpart, and which test shows it; and has all signatures.

The example of each is statements of a kernel of 128 threads; ``t`` is the thread. ``A`` and ``B``
are float32 buffers of 128 elements in global memory, ``tile`` is one in shared memory, and
``registers`` are 8 of each thread. ``# B == ...`` says in numpy what B holds in the end.

A file for a family; :mod:`~warploom.language.builtins.operands` has their operands.
"""

from warploom.language.builtins.control import loop_break
from warploom.language.builtins.copy_async import cp_async_barrier_noinc
from warploom.language.builtins.descriptors import (
    increase_descriptor_offset,
    initialize_tcgen05_descriptor,
    initialize_wgmma_descriptor,
)
from warploom.language.builtins.fences import fence_proxy_async
from warploom.language.builtins.indices import (
    get_lane_idx,
    get_warp_group_idx,
    get_warp_idx,
    get_warp_idx_sync,
    shuffle_elect,
)
from warploom.language.builtins.mbarriers import (
    barrier_arrive,
    barrier_wait,
    mbarrier_arrive,
    mbarrier_expect_tx,
    mbarrier_wait_parity,
    ptx_arrive_cluster_barrier,
)
from warploom.language.builtins.mma_sm70 import ptx_mma_sm70
from warploom.language.builtins.pointers import access_ptr
from warploom.language.builtins.registers import (
    annotate_consumer_reg_alloc,
    annotate_producer_reg_dealloc,
    dec_max_nreg,
    disable_warp_group_reg_alloc,
    inc_max_nreg,
    no_set_max_nreg,
    set_max_nreg,
)
from warploom.language.builtins.shuffles import shfl_down, shfl_sync, shfl_up, shfl_xor
from warploom.language.builtins.syncs import sync_global, sync_grid, sync_threads, sync_warp
from warploom.language.builtins.tcgen05 import tcgen05_mma_arrive
from warploom.language.builtins.tma import (
    create_tma_descriptor,
    tma_load,
    tma_store_arrive,
    tma_store_wait,
)
from warploom.language.builtins.warpgroups import (
    wait_wgmma,
    warpgroup_arrive,
    warpgroup_commit_batch,
    warpgroup_fence_operand,
    warpgroup_wait,
)
from warploom.language.builtins.wide_memory import (
    ldg32,
    ldg64,
    ldg128,
    ldg256,
    stg32,
    stg64,
    stg128,
    stg256,
)

__all__ = [
    "access_ptr",
    "annotate_consumer_reg_alloc",
    "annotate_producer_reg_dealloc",
    "barrier_arrive",
    "barrier_wait",
    "cp_async_barrier_noinc",
    "create_tma_descriptor",
    "dec_max_nreg",
    "disable_warp_group_reg_alloc",
    "fence_proxy_async",
    "get_lane_idx",
    "get_warp_group_idx",
    "get_warp_idx",
    "get_warp_idx_sync",
    "inc_max_nreg",
    "increase_descriptor_offset",
    "initialize_tcgen05_descriptor",
    "initialize_wgmma_descriptor",
    "ldg32",
    "ldg64",
    "ldg128",
    "ldg256",
    "loop_break",
    "mbarrier_arrive",
    "mbarrier_expect_tx",
    "mbarrier_wait_parity",
    "no_set_max_nreg",
    "ptx_arrive_cluster_barrier",
    "ptx_mma_sm70",
    "set_max_nreg",
    "shfl_down",
    "shfl_sync",
    "shfl_up",
    "shfl_xor",
    "shuffle_elect",
    "stg32",
    "stg64",
    "stg128",
    "stg256",
    "sync_global",
    "sync_grid",
    "sync_threads",
    "sync_warp",
    "tcgen05_mma_arrive",
    "tma_load",
    "tma_store_arrive",
    "tma_store_wait",
    "wait_wgmma",
    "warpgroup_arrive",
    "warpgroup_commit_batch",
    "warpgroup_fence_operand",
    "warpgroup_wait",
]
