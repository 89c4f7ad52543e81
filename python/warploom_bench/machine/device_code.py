"""CUDA that the sources of all probes begin with: clocks, mbarriers, bulk copies.

Sources: PTX ISA, "Special Registers", "mbarrier", "cp.async.bulk.tensor", "wgmma".
"""

from __future__ import annotations

#: Places of ``out`` that have one meaning in all probes; a probe uses the others as it likes.
BEGIN, END, BEGIN_NS, END_NS, SM, SUM = range(6)
#: Places of a CTA in ``out``, and parameters of a launch.
SLOTS = 16
#: Factor and summand of the words that memory holds (:func:`warploom_bench.machine.rig.word`).
FACTOR, SUMMAND = 2654435761, 12345

PRELUDE = (
    f"""
#define MB_SLOTS {SLOTS}
#define MB_FACTOR {FACTOR}u
#define MB_SUMMAND {SUMMAND}u
"""
    + r"""
#define MB_INLINE __device__ __forceinline__
#define MB_PROBE MB_INLINE void probe(const int* p, void* data, long long* out, \
                                      unsigned char* raw, unsigned long long map)
MB_INLINE long long mb_clock() {
  long long t;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(t) : : "memory");
  return t;
}
MB_INLINE long long mb_ns() {
  long long t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t) : : "memory");
  return t;
}
MB_INLINE int mb_sm() {
  int sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  return sm;
}
/* A value that all lanes have, so that the compiler keeps it in a uniform register: TMA
   instructions take their operands from there, and a loop over lanes would fetch them else. */
MB_INLINE int mb_uniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }
MB_INLINE unsigned mb_address(const void* p) {
  return (unsigned)__cvta_generic_to_shared(p);
}
MB_INLINE void mb_barrier_init(unsigned barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(barrier), "r"(count) : "memory");
}
MB_INLINE void mb_barriers_ready() {
  asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
  asm volatile("fence.proxy.async;" : : : "memory");
}
MB_INLINE void mb_expect(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               : : "r"(barrier), "r"(bytes) : "memory");
}
MB_INLINE void mb_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(barrier) : "memory");
}
MB_INLINE void mb_wait(unsigned barrier, int parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}\n" : : "r"(barrier), "r"(parity) : "memory");
}
MB_INLINE void mb_load_box(unsigned to, unsigned long long map, int column, int row,
                           unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];"
      : : "r"(to), "l"(map), "r"(column), "r"(row), "r"(barrier) : "memory");
}
MB_INLINE void mb_store_box(unsigned from, unsigned long long map, int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
      : : "l"(map), "r"(column), "r"(row), "r"(from) : "memory");
}
MB_INLINE void mb_commit() { asm volatile("cp.async.bulk.commit_group;" : : : "memory"); }
template <int N>
MB_INLINE void mb_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" : : "n"(N) : "memory");
}
MB_INLINE void mb_wait_stores() {
  asm volatile("cp.async.bulk.wait_group 0;" : : : "memory");
}
MB_INLINE void mb_fence_async() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }
MB_INLINE void mb_named(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" : : "r"(barrier), "r"(threads) : "memory");
}
MB_INLINE int mb_rank() {
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
MB_INLINE void mb_cluster_sync() {
  __syncwarp();  // the warp may have diverged
  asm volatile("barrier.cluster.arrive.release.aligned;" : : : "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" : : : "memory");
}
/* The address in CTA `rank` of the cluster that is `address` in this one. */
MB_INLINE unsigned mb_of_cta(unsigned address, int rank) {
  unsigned there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
MB_INLINE unsigned char* mb_aligned(unsigned char* p) {
  return p + ((1024u - (mb_address(p) & 1023u)) & 1023u);
}
/* The sum of a CTA, in its place of `out`, which the host has cleared. */
MB_INLINE void mb_sum(long long* out, unsigned sum) {
  atomicAdd((unsigned long long*)(out + blockIdx.x * MB_SLOTS + 5), (unsigned long long)sum);
}
/* What thread 0 found in its clocks, in the places that all probes share. */
MB_INLINE void mb_times(long long* out, long long begin, long long end, long long ns,
                        long long end_ns) {
  long long* mine = out + blockIdx.x * MB_SLOTS;
  mine[0] = begin; mine[1] = end; mine[2] = ns; mine[3] = end_ns; mine[4] = mb_sm();
}
"""
)
