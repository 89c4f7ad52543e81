"""Facts of the supported architectures, as frozen data that proves itself at import.

Nothing here imports TVM until :func:`cuda_target` or :func:`target_from_device` builds a target.
"""

from warploom.target.arch import ARCHS, SM90A, SM100A, Arch
from warploom.target.gpus import GPUS, Gpu
from warploom.target.registers import PRODUCER_REGISTERS, RegisterRoles
from warploom.target.swizzle import (
    Major,
    Swizzle,
    chunk_buffers,
    swizzle_chunks,
    tile_chunks,
    transposed_chunks,
)
from warploom.target.tcgen05 import TCGEN05_KINDS, Tcgen05Kind, tcgen05_kinds
from warploom.target.tma import TMA, box_bytes, box_error, shared_align, tensor_error
from warploom.target.tvm_target import (
    arch_of,
    cuda_target,
    default_target,
    gpu_of,
    target_from_device,
)
from warploom.target.wgmma import (
    WGMMA_KINDS,
    WGMMA_M,
    WGMMA_SPARSE_KINDS,
    WgmmaKind,
    wgmma_kind,
)

__all__ = [
    "ARCHS",
    "GPUS",
    "PRODUCER_REGISTERS",
    "SM90A",
    "SM100A",
    "TCGEN05_KINDS",
    "TMA",
    "WGMMA_KINDS",
    "WGMMA_M",
    "WGMMA_SPARSE_KINDS",
    "Arch",
    "Gpu",
    "Major",
    "RegisterRoles",
    "Swizzle",
    "Tcgen05Kind",
    "WgmmaKind",
    "arch_of",
    "box_bytes",
    "box_error",
    "chunk_buffers",
    "cuda_target",
    "default_target",
    "gpu_of",
    "shared_align",
    "swizzle_chunks",
    "target_from_device",
    "tcgen05_kinds",
    "tensor_error",
    "tile_chunks",
    "transposed_chunks",
    "wgmma_kind",
]
