#include "emulator/matrix/product.h"

#include <cstring>

#include "emulator/matrix/aligned_product.h"
#include "emulator/matrix/instruction_set.h"
#include "emulator/matrix/lane_vectors.h"

namespace warploom::emulator {
namespace {

// kHalves * kParts vectors of rows against one block of 8 columns. The sums are to fit into the
// registers of the target. `d` holds the even and the odd register of each half.
template <class V, int kHalves, int kParts>
WARPLOOM_INLINE void multiply_block(int k, const float* a, const float* b, uint32_t* const* d,
                                    int warps) {
  constexpr int kLanes = sizeof(V) / sizeof(float);
  V even[kHalves][kParts], odd[kHalves][kParts];
  for (int half = 0; half < kHalves; ++half) {
    for (int part = 0; part < kParts; ++part) {
      load(d[2 * half * warps] + part * kLanes, &even[half][part]);
      load(d[(2 * half + 1) * warps] + part * kLanes, &odd[half][part]);
    }
  }
  for (int i = 0; i < k; ++i, a += kRegister, b += 8) {
    V b_even, b_odd;
    columns(b, &b_even, &b_odd);
    for (int half = 0; half < kHalves; ++half) {
      for (int part = 0; part < kParts; ++part) {
        V rows;
        load(a + half * k * kRegister + part * kLanes, &rows);
        even[half][part] += rows * b_even;
        odd[half][part] += rows * b_odd;
      }
    }
  }
  for (int half = 0; half < kHalves; ++half) {
    for (int part = 0; part < kParts; ++part) {
      std::memcpy(d[2 * half * warps] + part * kLanes, &even[half][part], sizeof(V));
      std::memcpy(d[(2 * half + 1) * warps] + part * kLanes, &odd[half][part], sizeof(V));
    }
  }
}

template <class V, int kHalves>
WARPLOOM_INLINE void multiply_with(const Product& p) {
  for (int warp = 0; warp < p.warps; ++warp) {
    for (int block = 0; block < p.n / 8; ++block) {
      for (int half = 0; half < 2; half += kHalves) {
        const float* a = p.a + Product::a_index(2 * warp + half, p.k, 0, 0);
        const float* b = p.b + Product::b_index(block, p.k, 0, 0);
        multiply_block<V, kHalves, kRegister * sizeof(float) / sizeof(V)>(
            p.k, a, b, p.d + (4 * block + 2 * half) * p.warps + warp, p.warps);
      }
    }
  }
}

void multiply_any(const Product& p) {
  if (p.rule.kept != 0) return multiply_aligned_any(p);
  multiply_with<Vector4, 1>(p);
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void multiply_avx2(const Product& p) {
  if (p.rule.kept != 0) return multiply_aligned_avx2(p);
  multiply_with<Vector8, 1>(p);
}

__attribute__((target("avx512f"))) void multiply_avx512(const Product& p) {
  if (p.rule.kept != 0) return multiply_aligned_avx512(p);
  multiply_with<Vector16, 2>(p);
}
#endif

std::vector<ProductKernel> runnable_kernels() {
  std::vector<ProductKernel> kernels;
#if defined(__x86_64__)
  if (may_use(InstructionSet::kAvx512)) kernels.push_back({"avx512", multiply_avx512});
  if (may_use(InstructionSet::kAvx2)) {
    kernels.push_back({"avx2", multiply_avx2});
  }
#endif
  kernels.push_back({"any", multiply_any});
  return kernels;
}

}  // namespace

const std::vector<ProductKernel>& product_kernels() {
  static const std::vector<ProductKernel> kernels = runnable_kernels();
  return kernels;
}

void multiply(const Product& product) { product_kernels().front().run(product); }

}  // namespace warploom::emulator
