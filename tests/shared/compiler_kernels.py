"""Kernels for the tests of ``warploom.compiler``: good ones, and one for each kind of problem."""

from __future__ import annotations

import tvm
from tvm.script import tirx as T

from warploom.compiler.invoke import Output, compile_request, current_request

TARGET = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})

SHARED = """
extern "C" __global__ void __launch_bounds__(256) shared_rows(float* out) {
  __shared__ float rows[1000];
  rows[threadIdx.x] = out[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = rows[threadIdx.x ^ 1];
}
extern "C" __global__ void plain(float* out) { out[threadIdx.x] *= 2.0f; }
"""

# 96 live values at 32 registers a thread.
SPILLS = """
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(float* out) {
  float a[96];
#pragma unroll
  for (int j = 0; j < 96; ++j) a[j] = out[j * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int j = 0; j < 96; ++j) out[j * 1024 + threadIdx.x] = a[95 - j] * a[j * 7 % 96];
}
"""

LOCAL_ARRAY = """
extern "C" __global__ void local_array(float* out, const int* index) {
  float a[64];
#pragma unroll 1
  for (int j = 0; j < 64; ++j) a[index[j]] = out[j];
  for (int j = 0; j < 64; ++j) out[j] = a[index[j + 64]];
}
"""

SETMAXNREG = """
extern "C" __global__ void no_bound(float* out) {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  out[threadIdx.x] = 1.0f;
}
"""

_WGMMA = """
extern "C" __global__ void __launch_bounds__(128) %(name)s(
    float* out, unsigned long long a, unsigned long long b) {
  float d[4] = {0, 0, 0, 0};
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%%0, %%1, %%2, %%3}, %%4, %%5, "
      "1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
  %(early)s
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int j = 0; j < 4; ++j) out[threadIdx.x * 4 + j] = d[j];
}
"""
WGMMA = _WGMMA % {"name": "patient", "early": ""}
WGMMA_TOUCHED_EARLY = _WGMMA % {"name": "hasty", "early": "out[threadIdx.x] = d[0];"}

SOURCES = {
    "shared": SHARED,
    "spills": SPILLS,
    "local_array": LOCAL_ARRAY,
    "setmaxnreg": SETMAXNREG,
    "wgmma": WGMMA,
    "wgmma_touched_early": WGMMA_TOUCHED_EARLY,
}


def compile_uncached(source: str, environ: dict[str, str] | None = None) -> Output:
    """Compile for sm_90a; ``environ`` may hold variables of warploom."""
    with TARGET:
        return compile_request(current_request(source, "cubin"), environ or {})


def doubled(dtype: str):
    """TIRx function that doubles 1024 elements by way of dynamic shared memory."""

    @T.prim_func
    def double(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (1024,), dtype)
        B = T.match_buffer(b, (1024,), dtype)
        T.device_entry()
        cta = T.cta_id([8])
        thread = T.thread_id([128])
        pool = T.SMEMPool()
        tile = pool.alloc((128,), dtype, align=128)
        pool.commit()
        tile[thread] = A[cta * 128 + thread]
        T.cuda.cta_sync()
        if T.cuda.thread_rank() == 0:
            tile[0] = tile[1]
        T.cuda.cta_sync()
        B[cta * 128 + thread] = T.cast(T.cast(tile[127 - thread], "float32") * T.float32(2), dtype)

    return double
