# %% [markdown]
# # Block scales by hand: a float8 GEMM for Blackwell (mxfp8)
#
# **Time:** 30 minutes.
#
# Each 32 elements of K share a power of two, which the tensor core applies while it multiplies
# (PTX ISA, `tcgen05.mma` with `.block_scale`). Roles and barriers are those of step 7 of
# `ladder_blackwell/`. A stage also holds the scale factors of its tiles. The thread that multiplies
# copies them on to tensor memory, where the tensor core wants them, right before its MMAs; each
# stage has columns of its own there, so that `empty`, which tells that the MMAs of a stage are
# done, frees them as well.

# %%
import ml_dtypes
import numpy as np
from tvm.backend.cuda.lang.pipeline import PipelineState, TCGen05Bar, TMABar
from tvm.backend.cuda.tile_primitive.gemm_async.tcgen05 import sf_smem_layout, sf_tmem_layout
from tvm.backend.cuda.tile_primitive.tma_utils import mma_shared_layout
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx.layout import tcgen05_atom_layout

from warploom import emulator
from warploom.kernels.tensor_memory import TensorMemory
from warploom.layout.tensor_memory import plan_columns
from warploom.tutorials import check_assembled

BM, BN, BK = 128, 128, 128
STAGES = 4
CHUNK = 64
SWIZZLE_128B = 3
EPILOGUE_BARRIER = 1

# %% [markdown]
# ## Scale factors in memory
#
# They lie as the tensor core reads them: in blocks of 128 rows (of A, or of B) by 4 factors, 512
# bytes, where row `r` and factor `f` are at byte `r % 32 * 16 + r // 32 * 4 + f` (PTX ISA,
# `tcgen05.cp`, shape `.32x128b.warpx4`). Four factors are those of 128 elements: a stage.

# %%
SCALE_ROWS, FACTORS, VECTOR = 128, 4, 32
BLOCK = (32, SCALE_ROWS * FACTORS // 32)
#: Columns of tensor memory that the factors of 128 rows take: 4 bytes a cell.
SCALE_COLUMNS = 4
STAGE_BYTES = (BM + BN) * BK + (BM + BN) * FACTORS


def block_scales(scales):
    """Factors ``(rows, ceil(K / 32))`` of one byte in that order, padded with the factor 1."""
    rows, columns = scales.shape
    shape = (-(-rows // SCALE_ROWS) * SCALE_ROWS, -(-columns // FACTORS) * FACTORS)
    padded = np.ones(shape, np.float32).astype(scales.dtype)
    padded[:rows, :columns] = scales
    blocks = padded.reshape(-1, SCALE_ROWS // 32, 32, shape[1] // FACTORS, FACTORS)
    ordered = np.ascontiguousarray(blocks.transpose(0, 3, 2, 1, 4))
    return ordered.view(np.uint8).reshape(len(blocks), -1, *BLOCK)


# %% [markdown]
# ## The kernel
#
# Shared memory of scale factors has two views: as TMA copies them, and as the tensor core does.


# %%
def gemm(m, n, k):
    assert k % 16 == 0 and n % 8 == 0, "TMA wants rows of multiples of 16 bytes"
    k_tiles, n_tiles, m_tiles = -(-k // BK), -(-n // BN), -(-m // BM)
    a_layout = mma_shared_layout("float8_e4m3fn", SWIZZLE_128B, (STAGES, BM, BK))
    b_layout = mma_shared_layout("float8_e4m3fn", SWIZZLE_128B, (STAGES, BN, BK))
    c_layout = mma_shared_layout("bfloat16", SWIZZLE_128B, (BM, CHUNK))
    rows = tcgen05_atom_layout("32x32b", (BM, CHUNK), "float32")
    plan = plan_columns(
        acc=BN, scale_a=STAGES * SCALE_COLUMNS, scale_b=STAGES * SCALE_COLUMNS
    )
    factors = (STAGES, SCALE_ROWS, FACTORS)

    def alloc_scales(pool):
        pool.offset = -(-pool.offset // 128) * 128
        start = pool.offset
        copied = pool.alloc((STAGES, 1, 1, *BLOCK), "uint8")
        pool.move_base_to(start)
        layout = sf_smem_layout(SCALE_ROWS, FACTORS, 1, pipe_depth=STAGES)
        return copied, pool.alloc(factors, "float8_e8m0fnu", layout=layout)

    def scale_columns(memory, name):
        layout = sf_tmem_layout(SCALE_ROWS, FACTORS, 1, pipe_depth=STAGES)
        return memory.buffer(name, factors, "float8_e8m0fnu", layout)

    @T.prim_func
    def kernel(
        A: T.Buffer((m, k), "float8_e4m3fn"), B: T.Buffer((n, k), "float8_e4m3fn"),
        scale_a: T.Buffer((m_tiles, k_tiles, *BLOCK), "uint8"),
        scale_b: T.Buffer((n_tiles, k_tiles, *BLOCK), "uint8"),
        C: T.Buffer((m, n), "bfloat16"),
    ):  # fmt: skip
        T.device_entry()
        T.attr({"tirx.launch_bounds_min_blocks_per_sm": 1})
        i, j = T.cta_id([m_tiles, n_tiles])
        wg = T.warpgroup_id([2])
        warp = T.warp_id_in_wg([4])
        lane = T.lane_id([32])
        pool = T.SMEMPool()
        A_s = pool.alloc((STAGES, BM, BK), "float8_e4m3fn", align=1024, layout=a_layout)
        B_s = pool.alloc((STAGES, BN, BK), "float8_e4m3fn", align=1024, layout=b_layout)
        C_s = pool.alloc((BM, CHUNK), "bfloat16", align=1024, layout=c_layout)
        a_copied, a_factors = T.meta_var(alloc_scales(pool))
        b_copied, b_factors = T.meta_var(alloc_scales(pool))
        full = TMABar(pool, STAGES)
        empty = TCGen05Bar(pool, STAGES)
        done = TCGen05Bar(pool, 1)
        memory = TensorMemory(pool, plan)
        pool.commit()
        full.init(1)
        empty.init(1)
        done.init(1)
        T.ptx.fence.proxy.async_.shared__cta()
        if T.And(wg == 0, warp == 2):
            memory.allocate()
        T.cuda.cta_sync()
        memory.open()
        acc = memory.columns("acc")
        a_scales = scale_columns(memory, "scale_a")
        b_scales = scale_columns(memory, "scale_b")
        row = T.meta_var(i * BM)
        col = T.meta_var(j * BN)

        if wg == 0:
            if warp == 0 and T.cuda.elect_sync() != T.uint32(0):
                ring = PipelineState(STAGES, 1)
                for kt in T.serial(k_tiles):
                    empty.wait(ring.stage, ring.phase)
                    full.arrive(ring.stage, STAGE_BYTES)
                    bar = T.meta_var(full.ptr_to([ring.stage]))
                    Tx.copy_async(
                        A_s[ring.stage, :, :], A[row : row + BM, kt * BK : kt * BK + BK],
                        dispatch="tma_auto", mbar=bar,
                    )  # fmt: skip
                    Tx.copy_async(
                        B_s[ring.stage, :, :], B[col : col + BN, kt * BK : kt * BK + BK],
                        dispatch="tma_auto", mbar=bar,
                    )  # fmt: skip
                    Tx.copy_async(
                        a_copied[ring.stage, :, :, :, :], scale_a[i : i + 1, kt : kt + 1, :, :],
                        dispatch="tma_auto", mbar=bar,
                    )  # fmt: skip
                    Tx.copy_async(
                        b_copied[ring.stage, :, :, :, :], scale_b[j : j + 1, kt : kt + 1, :, :],
                        dispatch="tma_auto", mbar=bar,
                    )  # fmt: skip
                    ring.advance()
            elif warp == 1 and T.cuda.elect_sync() != T.uint32(0):
                ring = PipelineState(STAGES, 0)
                for kt in T.serial(k_tiles):
                    full.wait(ring.stage, ring.phase)
                    T.ptx.tcgen05.fence__after_thread_sync()
                    Tx.copy_async(a_scales[ring.stage, :, :], a_factors[ring.stage, :, :])
                    Tx.copy_async(b_scales[ring.stage, :, :], b_factors[ring.stage, :, :])
                    Tx.gemm_async(
                        acc[:, :], A_s[ring.stage, :, :], B_s[ring.stage, :, :],
                        SFA=a_scales[ring.stage, :, :], SFB=b_scales[ring.stage, :, :],
                        dispatch="tcgen05", accum=(kt != 0),
                    )  # fmt: skip
                    empty.arrive(ring.stage)
                    ring.advance()
                done.arrive(0)
        else:
            leader: T.bool = T.And(warp == 0, lane == 0)
            sums = T.alloc_buffer((BM, CHUNK), "float32", scope="local", layout=rows)
            out = T.alloc_buffer((BM, CHUNK), "bfloat16", scope="local", layout=rows)
            done.wait(0, 0)
            T.ptx.tcgen05.fence__after_thread_sync()
            for p in T.unroll(BN // CHUNK):
                begin = T.meta_var(p * CHUNK)
                Tx.wg.copy_async(sums[:, :], acc[:, begin : begin + CHUNK])
                T.ptx.tcgen05.wait__ld.sync.aligned()
                Tx.wg.cast(out[:, :], sums[:, :])
                if leader:
                    # The store of the last chunk has read C_s.
                    T.ptx.cp.async_.bulk.wait_group.read(0)
                T.cuda.warpgroup_sync(EPILOGUE_BARRIER)
                Tx.wg.copy(C_s[:, :], out[:, :])
                T.ptx.fence.proxy.async_.shared__cta()
                T.cuda.warpgroup_sync(EPILOGUE_BARRIER)
                if leader:
                    Tx.copy_async(
                        C[row : row + BM, col + begin : col + begin + CHUNK],
                        C_s[:, :], dispatch="tma_auto",
                    )  # fmt: skip
                    T.ptx.cp.async_.bulk.commit_group()
            if leader:
                T.ptx.cp.async_.bulk.wait_group(0)
            T.ptx.tcgen05.fence__before_thread_sync()
        T.cuda.cta_sync()
        if T.And(wg == 0, warp == 2):
            memory.free()

    return kernel


# %% [markdown]
# ## Run and check
#
# The emulator executes it, with ragged edges in all three dimensions; ptxas assembles it. TMA fills
# zeros where a matrix ends.


# %%
def check(m, n, k):
    rng = np.random.default_rng(k)
    operands, scales, wide = [], [], []
    for rows in (m, n):
        values = rng.standard_normal((rows, k), np.float32).astype(ml_dtypes.float8_e4m3fn)
        exponents = rng.integers(-4, 5, (rows, -(-k // VECTOR)))
        factors = (2.0**exponents).astype(ml_dtypes.float8_e8m0fnu)
        operands.append(values)
        scales.append(block_scales(factors))
        spread = np.repeat(factors.astype(np.float64), VECTOR, axis=1)[:, :k]
        wide.append(values.astype(np.float64) * spread)
    c = np.full((m, n), np.nan, np.float32).astype(ml_dtypes.bfloat16)
    result = emulator.run(gemm(m, n, k), [*operands, *scales, c], arch="sm_100a").outputs[-1]
    expected = wide[0] @ wide[1].T
    error = np.linalg.norm(result.astype(np.float64) - expected) / np.linalg.norm(expected)
    print(f"C[{m}, {n}], K = {k}: relative error {error:.1e}")
    assert error < 4e-3


CASES = [(BM, BN, BK), (130, 136, 592)]
if __name__ == "__main__":
    for case in CASES:
        check(*case)
    check_assembled(gemm(*CASES[-1]))
