#include "emulator/matrix/mma.h"

#include <cstring>
#include <string>

#include "emulator/exec/fault.h"
#include "emulator/matrix/fragment.h"
#include "emulator/matrix/legality.h"
#include "emulator/matrix/product.h"

namespace warploom::emulator {
namespace {

constexpr int kLanes = 32;
constexpr int kN = 8;
constexpr int kRegisters = 4;  // of an accumulator of 32-bit elements

// D = A * B^T + what `sum` holds, for one warp.
void multiply_registers(const MmaForm& form, const uint32_t* const* a, const uint32_t* const* b,
                        uint32_t* const* sum) {
  alignas(64) float wide_a[2 * Product::kMaxK * kLanes];
  alignas(64) float wide_b[Product::kMaxK * kN + 8];  // and what a wide load may read
  expand_register_a(form.a, form.k, 1, a, wide_a);
  expand_register_b(form.b, form.k, b, wide_b);
  multiply({1, kN, form.k, wide_a, wide_b, sum});
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
