#include "emulator/matrix/mma.h"

#include <cmath>
#include <cstring>

#include "emulator/format/float16.h"
#include "emulator/matrix/bit_product.h"
#include "emulator/matrix/element.h"
#include "emulator/matrix/fragment.h"
#include "emulator/matrix/product.h"
#include "emulator/matrix/sparse.h"

namespace warploom::emulator {
namespace {

constexpr int kLanes = 32;
constexpr int kRows = 16;
constexpr int kN = 8;
constexpr int kRegisters = 4;  // of an accumulator of 32-bit elements

bool is_8_bit_float(Type type) { return element_bits(type) == 8 && !is_integer_element(type); }

// Floats of 8 bits are multiplied as f16, in two products that start from zero: of the first two of
// every four indices of K, then of the others onto that. What was there is added at last.
void multiply_8_bit_floats(const MmaForm& form, const float* a, const float* b,
                           uint32_t* const* sum) {
  const int half = form.k / 2;
  alignas(64) uint32_t wide[kRegisters][kLanes] = {};
  uint32_t* const partial[kRegisters] = {wide[0], wide[1], wide[2], wide[3]};
  alignas(64) float left[Product::kMaxK * kLanes];
  alignas(64) float right[Product::kMaxK / 2 * kN + 8];
  for (int pass = 0; pass < 2; ++pass) {
    for (int i = 0; i < half; ++i) {
      const int from = i / 2 * 4 + 2 * pass + i % 2;
      for (int rows = 0; rows < 2; ++rows) {
        std::memcpy(left + (rows * half + i) * kLanes, a + (rows * form.k + from) * kLanes,
                    kLanes * sizeof(float));
      }
      std::memcpy(right + i * kN, b + from * kN, kN * sizeof(float));
    }
    multiply({1, kN, half, left, right, partial, mma_sum_rule(form.a, form.b, form.d)});
    if (form.d != Type::kF16) continue;
    for (auto& lanes : wide) {
      for (uint32_t& lane : lanes) lane = float_bits(f16_to_f32(f32_to_f16(bits_float(lane))));
    }
  }
  for (int i = 0; i < kRegisters; ++i) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float total = bits_float(sum[i][lane]) + bits_float(wide[i][lane]);
      sum[i][lane] = std::isnan(total) ? 0x7fffffffu : float_bits(total);
    }
  }
}

// D = A * B^T + what `sum` holds.
void multiply_dense(const MmaForm& form, const uint32_t* const* a, const uint32_t* const* b,
                    uint32_t* const* sum) {
  alignas(64) float wide_a[2 * Product::kMaxK * kLanes];
  alignas(64) float wide_b[Product::kMaxK * kN + 8];  // and what a wide load may read
  expand_register_a(form.a, form.k, 1, a, wide_a);
  expand_register_b(form.b, form.k, b, wide_b);
  if (is_8_bit_float(form.a)) return multiply_8_bit_floats(form, wide_a, wide_b, sum);
  multiply({1, kN, form.k, wide_a, wide_b, sum, mma_sum_rule(form.a, form.b, form.d)});
}

void multiply_sparse(const MmaForm& form, const uint32_t* const* a, const uint32_t* const* b,
                     const uint32_t* metadata, uint32_t* const* sum) {
  constexpr int kMostWords = 16;  // of a column of B
  const int bits = element_bits(form.a), words_a = form.k * bits / 64, words_b = 2 * words_a;
  uint32_t rows[kRows * kMostWords / 2], columns[kN * kMostWords];
  collect_a_words(kRows, words_a, 1, a, rows);
  collect_b_words(words_b, b, columns);
  float wide_a[kRows * SparseIndices::kMostHeld], wide_b[2 * kN * SparseIndices::kMostHeld];
  widen(form.a, reinterpret_cast<const uint8_t*>(rows), kRows * form.k / 2, wide_a);
  widen(form.b, reinterpret_cast<const uint8_t*>(columns), kN * form.k, wide_b);
  const SparseIndices indices =
      sparse_indices(form.a, form.k, form.selector, form.ordered, metadata);
  const SparseProduct product{kN,     form.k / 2, form.k,   wide_a,
                              wide_b, &indices,   mma_sum_rule(form.a, form.b, form.d)};
  const auto sum_up = is_8_bit_float(form.a) ? sparse_sum_of_halves : sparse_sum;
  for (int i = 0; i < kRegisters; ++i) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
      sum[i][lane] = sum_up(product, row, column, sum[i][lane]);
    }
  }
}

// Integers are added to c here: they are no floats.
void multiply_bits(const MmaForm& form, uint32_t* const* d, const uint32_t* const* a,
                   const uint32_t* const* b, const uint32_t* const* c) {
  constexpr int kMostWords = 8;
  const int words = form.k / 32;
  uint32_t rows[kRows * kMostWords], columns[kN * kMostWords];
  collect_a_words(form.m, words, 1, a, rows);
  collect_b_words(words, b, columns);
  const auto count = form.bits == BitOperation::kAnd ? count_common_bits : count_different_bits;
  for (int i = 0; i < form.m / 4; ++i) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
      d[i][lane] = c[i][lane] + count(rows + row * words, columns + column * words, words);
    }
  }
}

void multiply_16_rows(const MmaForm& form, uint32_t* const* d, const uint32_t* const* a,
                      const uint32_t* const* b, const uint32_t* const* c,
                      const uint32_t* metadata) {
  alignas(64) uint32_t wide[kRegisters][kLanes] = {};
  uint32_t* const sum[kRegisters] = {wide[0], wide[1], wide[2], wide[3]};
  const bool packed = form.d == Type::kF16, integer = form.d == Type::kS32;
  if (packed) {
    load_f16_accumulator(kN, 1, c, sum);
  } else if (!integer) {
    for (int i = 0; i < kRegisters; ++i) std::memcpy(sum[i], c[i], sizeof(wide[i]));
  }
  if (form.sparse) {
    multiply_sparse(form, a, b, metadata, sum);
  } else {
    multiply_dense(form, a, b, sum);
  }
  if (packed) return store_f16_accumulator(kN, 1, sum, d);
  for (int i = 0; i < kRegisters; ++i) {
    if (integer) {
      add_integers(c[i], sum[i], form.satfinite, d[i]);
    } else {
      std::memcpy(d[i], sum[i], sizeof(wide[i]));
    }
  }
}

}  // namespace

void mma_sync(const MmaForm& form, uint32_t* const* d, const uint32_t* const* a,
              const uint32_t* const* b, const uint32_t* const* c, const uint32_t* metadata) {
  if (is_quarter(form)) return mma_sync_quarters(form, d, a, b, c);
  if (form.a == Type::kB1) return multiply_bits(form, d, a, b, c);
  if (form.m == kRows) return multiply_16_rows(form, d, a, b, c, metadata);
  // Eight rows of integers are the upper half of 16, the others are zero.
  static constexpr uint32_t kZeros[kLanes] = {};
  uint32_t unused[2][kLanes];
  const uint32_t* const a_of_16[] = {a[0], kZeros};
  const uint32_t* const c_of_16[] = {c[0], c[1], kZeros, kZeros};
  uint32_t* const d_of_16[] = {d[0], d[1], unused[0], unused[1]};
  multiply_16_rows(form, d_of_16, a_of_16, b, c_of_16, metadata);
}

}  // namespace warploom::emulator
