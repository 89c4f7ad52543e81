#include "emulator/matrix/row_product.h"

#include <cstring>

#include "emulator/format/float16.h"
#include "emulator/matrix/instruction_set.h"

namespace warploom::emulator {
namespace {

#define WARPLOOM_INLINE inline __attribute__((always_inline))

typedef float Vector4 __attribute__((vector_size(16)));
typedef float Vector8 __attribute__((vector_size(32)));
typedef float Vector16 __attribute__((vector_size(64)));

// kRows rows by kVectors vectors of columns, all sums in registers.
template <class V, int kRows, int kVectors>
WARPLOOM_INLINE void multiply_tile(const RowProduct& p, int row, int column) {
  constexpr int kWidth = sizeof(V) / sizeof(float);
  V sum[kRows][kVectors];
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j) {
      std::memcpy(&sum[i][j], p.d[row + i] + column + j * kWidth, sizeof(V));
    }
  }
  const float* b = p.b + column;
  for (int k = 0; k < p.k; ++k, b += p.b_stride) {
    V terms[kVectors];
    for (int j = 0; j < kVectors; ++j) std::memcpy(&terms[j], b + j * kWidth, sizeof(V));
    for (int i = 0; i < kRows; ++i) {
      const float a = p.a[row + i][k];
      for (int j = 0; j < kVectors; ++j) sum[i][j] += a * terms[j];
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j) {
      std::memcpy(p.d[row + i] + column + j * kWidth, &sum[i][j], sizeof(V));
    }
  }
}

template <class V, int kVectors>
WARPLOOM_INLINE void multiply_columns(const RowProduct& p, int column) {
  constexpr int kRows = 4;
  int row = 0;
  for (; row + kRows <= p.rows; row += kRows) multiply_tile<V, kRows, kVectors>(p, row, column);
  for (; row < p.rows; ++row) multiply_tile<V, 1, kVectors>(p, row, column);
}

// Pairs of vectors, and what is left over in narrower steps.
template <class V>
WARPLOOM_INLINE void multiply_with(const RowProduct& p) {
  constexpr int kWidth = sizeof(V) / sizeof(float);
  int column = 0;
  for (; column + 2 * kWidth <= p.columns; column += 2 * kWidth) multiply_columns<V, 2>(p, column);
  for (; column < p.columns; column += 4) multiply_columns<Vector4, 1>(p, column);
}

WARPLOOM_INLINE void add_scaled_row(const ScaledRow& row) {
  const uint32_t* sum = row.sum;
  const double* column_scale = row.column_scale;
  const double row_scale = row.row_scale;
  uint32_t* d = row.d;
  const int columns = row.columns;
#pragma GCC ivdep
  for (int i = 0; i < columns; ++i) {
    const double scaled = static_cast<double>(bits_float(sum[i])) * (row_scale * column_scale[i]);
    d[i] = float_bits(static_cast<float>(static_cast<double>(bits_float(d[i])) + scaled));
  }
}

void multiply_any(const RowProduct& p) { multiply_with<Vector4>(p); }
void add_scaled_any(const ScaledRow& row) { add_scaled_row(row); }

#if defined(__x86_64__)
#define WARPLOOM_AVX2 __attribute__((target("avx2,fma")))
#define WARPLOOM_AVX512 __attribute__((target("avx512f")))

WARPLOOM_AVX2 void multiply_avx2(const RowProduct& p) { multiply_with<Vector8>(p); }
WARPLOOM_AVX2 void add_scaled_avx2(const ScaledRow& row) { add_scaled_row(row); }
WARPLOOM_AVX512 void multiply_avx512(const RowProduct& p) { multiply_with<Vector16>(p); }
WARPLOOM_AVX512 void add_scaled_avx512(const ScaledRow& row) { add_scaled_row(row); }
#endif

std::vector<RowKernel> runnable_kernels() {
  std::vector<RowKernel> kernels;
#if defined(__x86_64__)
  if (may_use(InstructionSet::kAvx512)) {
    kernels.push_back({"avx512", multiply_avx512, add_scaled_avx512});
  }
  if (may_use(InstructionSet::kAvx2)) {
    kernels.push_back({"avx2", multiply_avx2, add_scaled_avx2});
  }
#endif
  kernels.push_back({"any", multiply_any, add_scaled_any});
  return kernels;
}

}  // namespace

const std::vector<RowKernel>& row_kernels() {
  static const std::vector<RowKernel> kernels = runnable_kernels();
  return kernels;
}

}  // namespace warploom::emulator
