#include "emulator/matrix/mma.h"

#include <cmath>
#include <cstring>
#include <string>

#include "emulator/exec/fault.h"
#include "emulator/format/float16.h"
#include "emulator/matrix/element.h"
#include "emulator/matrix/fragment.h"
#include "emulator/matrix/legality.h"
#include "emulator/matrix/product.h"

namespace warploom::emulator {
namespace {

constexpr int kLanes = 32;
constexpr int kN = 8;
constexpr int kRegisters = 4;  // of an accumulator of 32-bit elements

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

// D = A * B^T + what `sum` holds, for one warp.
void multiply_registers(const MmaForm& form, const uint32_t* const* a, const uint32_t* const* b,
                        uint32_t* const* sum) {
  alignas(64) float wide_a[2 * Product::kMaxK * kLanes];
  alignas(64) float wide_b[Product::kMaxK * kN + 8];  // and what a wide load may read
  expand_register_a(form.a, form.k, 1, a, wide_a);
  expand_register_b(form.b, form.k, b, wide_b);
  const bool is_8_bit_float = element_bytes(form.a) == 1 && !is_integer_element(form.a);
  if (is_8_bit_float) return multiply_8_bit_floats(form, wide_a, wide_b, sum);
  multiply({1, kN, form.k, wide_a, wide_b, sum, mma_sum_rule(form.a, form.b, form.d)});
}

}  // namespace

void check_mma(const MmaForm& form) {
  const auto name = [](Type type) { return std::string(type_name(type)); };
  const OperandFamily* family = operand_family(form.a, form.b, form.d);
  if (family == nullptr || form.c != form.d) {
    fault("mma of %s by %s with %s added and %s as result is not supported", name(form.a).c_str(),
          name(form.b).c_str(), name(form.c).c_str(), name(form.d).c_str());
  }
  const bool has_k = form.k == family->mma_k[0] || form.k == family->mma_k[1];
  if (form.m != 16 || form.n != kN || !has_k) {
    fault("mma of %s with shape m%dn%dk%d is not supported: allowed are m16n8k%d and m16n8k%d",
          name(form.a).c_str(), form.m, form.n, form.k, family->mma_k[0], family->mma_k[1]);
  }
  if (form.satfinite && !is_integer_element(form.a)) fault("mma has .satfinite for integers only");
}

void mma_sync(const MmaForm& form, uint32_t* const* d, const uint32_t* const* a,
              const uint32_t* const* b, const uint32_t* const* c) {
  alignas(64) uint32_t wide[kRegisters][kLanes] = {};
  uint32_t* const sum[kRegisters] = {wide[0], wide[1], wide[2], wide[3]};
  const bool packed = form.d == Type::kF16, integer = form.d == Type::kS32;
  if (packed) {
    load_f16_accumulator(kN, 1, c, sum);
  } else if (!integer) {
    for (int i = 0; i < kRegisters; ++i) std::memcpy(sum[i], c[i], sizeof(wide[i]));
  }
  multiply_registers(form, a, b, sum);
  if (packed) return store_f16_accumulator(kN, 1, sum, d);
  for (int i = 0; i < kRegisters; ++i) {
    if (integer) {
      add_integers(c[i], sum[i], form.satfinite, d[i]);
    } else {
      std::memcpy(d[i], sum[i], sizeof(wide[i]));
    }
  }
}

}  // namespace warploom::emulator
