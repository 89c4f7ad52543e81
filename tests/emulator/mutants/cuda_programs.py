"""Small correct kernels in CUDA C++ for what TVM's GEMMs do not use: generic exchanges of data."""

from __future__ import annotations

EXCHANGE = """
extern "C" __global__ void kernel(const float* input, float* output) {
  __shared__ float row[256];
  __shared__ float sums[8];
  int t = threadIdx.x, warp = t / 32;
  row[t] = input[t];
  __syncthreads();
  float value = row[255 - t];
  __syncthreads();
  row[t] = value;
  __syncwarp();
  value += row[t ^ 1];
  if (t % 32 == 0) {
    sums[warp] = value;
  }
  __syncthreads();
  output[t] = value + sums[warp ^ 1];
}
"""

REMOTE = """
__device__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
extern "C" __global__ void kernel(const float* input, float* output) {
  __shared__ float own[32];
  unsigned rank, address, other;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  address = static_cast<unsigned>(__cvta_generic_to_shared(own + threadIdx.x));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(address), "r"(rank ^ 1));
  own[threadIdx.x] = input[rank * 32 + threadIdx.x];
  cluster_barrier();
  float value;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(other) : "memory");
  output[rank * 32 + threadIdx.x] = value;
  cluster_barrier();
}
"""

COPIES = """
extern "C" __global__ void kernel(const float* input, float* output) {
  __shared__ __align__(16) float row[256];
  int t = threadIdx.x;
  unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row + 4 * t));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" :: "r"(address), "l"(input + 4 * t)
               : "memory");
  asm volatile("cp.async.commit_group;" ::: "memory");
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
  for (int i = 0; i < 4; ++i) output[64 * i + t] = row[255 - (64 * i + t)];
}
"""
