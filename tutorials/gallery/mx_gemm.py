"""GEMM of block-scaled operands, mxfp8, mxfp4 and nvfp4: C = (A SA) (B SB)ᵀ.

Blocks of 32 elements along K, of nvfp4 16, share a scale. Scales lie in blocks of 128 rows by 4, as
the tensor core of Blackwell and cuBLAS read them; :func:`in_blocks` makes them of scales in rows.
Elements of 4 bits lie two in a byte, the even one in the low bits. Blackwell multiplies by scales
in tensor memory; on Hopper the operands are dequantised to bfloat16 on the way.
"""

import ml_dtypes
import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import gallery

#: Format -> dtype of the operands, elements in one of it, dtype of scales, elements of a scale.
FORMATS = {
    "mxfp8": ("float8_e4m3fn", 1, "uint8", 32),  # a scale is the exponent of a power of two
    "mxfp4": ("uint8", 2, "uint8", 32),
    "nvfp4": ("uint8", 2, "float8_e4m3fn", 16),
}


def mx_gemm(M, N, K, format="mxfp8", BM=128, BN=128, BK=128):
    dtype, packed, scale, block = FORMATS[format]
    steps = BK // block // 4
    blocks = K // block // 4, 32, 16

    @T.prim_func
    def program(A: T.Buffer((M, K // packed), dtype), SA: T.Buffer((-(-M // 128), *blocks), scale),
                B: T.Buffer((N, K // packed), dtype), SB: T.Buffer((-(-N // 128), *blocks), scale),
                C: T.Buffer((M, N), "bfloat16")):  # fmt: skip
        T.device_entry()
        i, j = T.cta_id([T.ceildiv(M, BM), T.ceildiv(N, BN)])
        acc = wl.alloc_accumulator((BM, BN))
        for k in wl.pipelined(K // BK):
            A_s = wl.load(A, (i, k), (BM, BK // packed))
            B_s = wl.load(B, (j, k), (BN, BK // packed))
            SA_s = wl.load(SA, (i, k, 0, 0), (BM // 128, steps, 32, 16))
            SB_s = wl.load(SB, (j, k, 0, 0), (BN // 128, steps, 32, 16))
            Tx.cta.gemm_async(acc, A_s, B_s, SFA=SA_s, SFB=SB_s, accum=k > 0)
        wl.store(C, (i, j), acc)

    return program


def in_blocks(scales):
    """Scales ``(rows, columns)`` in blocks of 128 by 4, filled with zeros."""
    rows, columns = scales.shape
    bits = np.pad(scales.view(np.uint8), [(0, -rows % 128), (0, -columns % 4)])
    blocks = bits.reshape(-1, 4, 32, bits.shape[1] // 4, 4).transpose(0, 3, 2, 1, 4)
    return np.ascontiguousarray(blocks).reshape(*blocks.shape[:3], 16).view(scales.dtype)


def inputs(rng, M, N, K, format="mxfp8"):
    _, packed, scale, block = FORMATS[format]
    made = []
    for rows in (M, N):
        values = rng.standard_normal((rows, K)).astype(ml_dtypes.float8_e4m3fn)
        codes = rng.integers(0, 256, (rows, K // 2)).astype(np.uint8)
        shape = rows, K // block
        exponents = rng.integers(124, 129, shape).astype(np.uint8)
        factors = rng.uniform(0.5, 2, shape).astype(ml_dtypes.float8_e4m3fn)
        made.append(values if packed == 1 else codes)
        made.append(in_blocks(exponents if scale == "uint8" else factors))
    return made


def wide(operand, blocks, block):
    """The values of an operand, in float64."""
    if operand.dtype == np.uint8:
        codes = np.stack([operand & 15, operand >> 4], 2).reshape(len(operand), -1)
        operand = codes.astype(np.uint8).view(ml_dtypes.float4_e2m1fn)
    rows, K = operand.shape
    r, s = np.indices((rows, K // block))
    scales = blocks[r // 128, s // 4, r % 32, r % 128 // 32 * 4 + s % 4]
    if scales.dtype == np.uint8:
        scales = scales.view(ml_dtypes.float8_e8m0fnu)
    return operand.astype(np.float64) * np.repeat(scales.astype(np.float64), block, 1)


def reference(a, sa, b, sb, format="mxfp8"):
    block = FORMATS[format][3]
    return wide(a, sa, block) @ wide(b, sb, block).T


def of_torch(torch, a, sa, b, sb, format="mxfp8"):
    """The same from operands that are dequantised before, as GPUs without such MMAs do it."""
    _, packed, _, block = FORMATS[format]
    if packed == 2:
        values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], device=a.device)
        values = torch.cat([values, -values])

    def wide(operand, blocks):
        rows = operand.shape[0]
        if packed == 2:
            operand = values[torch.stack([operand & 15, operand >> 4], 2).flatten(1).long()]
        exponents = blocks.dtype == torch.uint8
        scales = torch.exp2(blocks.float() - 127) if exponents else blocks.float()
        n, k = blocks.shape[:2]
        scales = scales.reshape(n, k, 32, 4, 4).permute(0, 3, 2, 1, 4).reshape(n * 128, k * 4)
        return (operand.float() * scales[:rows].repeat_interleave(block, 1)).to(torch.bfloat16)

    return wide(a, sa) @ wide(b, sb).T


KERNEL = gallery.Kernel(
    mx_gemm, inputs, reference,
    small={"M": 130, "N": 128, "K": 256, "format": "nvfp4"},
    large={"M": 4096, "N": 4096, "K": 4096, "BN": 256},
    torch=of_torch,
    flops=lambda M, N, K: 2 * M * N * K,
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)
