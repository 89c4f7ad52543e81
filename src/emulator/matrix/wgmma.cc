#include "emulator/matrix/wgmma.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>

#include "emulator/matrix/descriptor.h"
#include "emulator/matrix/fragment.h"
#include "emulator/matrix/legality.h"
#include "emulator/matrix/product.h"

namespace warploom::emulator {
namespace {

constexpr int kWarps = 4;
constexpr int kRows = 64;
constexpr int kMaxN = 256;
constexpr int kLanes = 32;
constexpr int kRegisters = kMaxN / 8 * 4 * kWarps;  // of an accumulator of 32-bit elements

// Operands in the order of Product, and accumulator registers where those of the warps are not of
// the type that products have. Kept per thread: clearing it for every instruction would show. The
// margin of `b` is what a wide load of its last columns may read.
struct Workspace {
  alignas(64) float a[kWarps * 2 * Product::kMaxK * kLanes];
  alignas(64) float b[kMaxN * Product::kMaxK + 8];
  alignas(64) uint32_t wide[kRegisters][kLanes];
  uint32_t* registers[kRegisters];

  Workspace() {
    for (int i = 0; i < kRegisters; ++i) registers[i] = wide[i];
  }
};

// Blocks of 8 rows of an operand in shared memory, widened and handed to `expand`.
template <class Expand>
void for_each_block(Type type, uint64_t bits, bool mn_major, int k, int blocks,
                    const SharedMemory& memory, Expand expand) {
  const MatrixDescriptor descriptor = parse_wgmma_descriptor(bits);
  for (int block = 0; block < blocks; ++block) {
    uint8_t raw[8 * kStepBytes];
    float values[8 * Product::kMaxK];
    gather_block(descriptor, mn_major, block, memory, raw);
    widen(type, raw, 8 * k, values);
    expand(values, mn_major ? 1 : k, mn_major ? 8 : 1, block);
  }
}

void expand_operands(const WgmmaForm& form, const WgmmaOperands& operands,
                     const SharedMemory& memory, Workspace& work) {
  if (form.a_in_registers) {
    expand_register_a(form.a, form.k, kWarps, operands.a, work.a);
  } else {
    for_each_block(form.a, operands.a_descriptor, form.trans_a, form.k, kRows / 8, memory,
                   [&](const float* values, int row_step, int k_step, int block) {
                     expand_a_block(values, row_step, k_step, form.k, block, work.a);
                   });
  }
  for_each_block(form.b, operands.b_descriptor, form.trans_b, form.k, form.n / 8, memory,
                 [&](const float* values, int row_step, int k_step, int block) {
                   expand_b_block(values, row_step, k_step, form.k, block, work.b);
                 });
  // The sign of the products is all that the two scales decide.
  if (form.negate_a != form.negate_b) {
    float* end = work.a + kWarps * 2 * form.k * kLanes;
    std::transform(work.a, end, work.a, std::negate<float>());
  }
}

void clear(uint32_t* const* registers, int count) {
  for (int i = 0; i < count; ++i) std::memset(registers[i], 0, kLanes * sizeof(uint32_t));
}

}  // namespace

void check_wgmma(const WgmmaForm& form) {
  const auto name = [](Type type) { return std::string(type_name(type)); };
  const OperandFamily* family = operand_family(form.a, form.b, form.d);
  if (family == nullptr) {
    fault("wgmma of %s by %s accumulated in %s does not exist", name(form.a).c_str(),
          name(form.b).c_str(), name(form.d).c_str());
  }
  if (form.k != family->k || !wgmma_has_width(*family, form.n)) {
    fault("wgmma of %s has no shape m64n%dk%d: k is %d and n a multiple of 8 up to 256 (above 32 "
          "a multiple of 16 for integers)",
          name(form.a).c_str(), form.n, form.k, family->k);
  }
  const bool integer = is_integer_element(form.a);
  if ((form.trans_a || form.trans_b) && !family->transposes) {
    fault("wgmma of %s takes K-major operands only", name(form.a).c_str());
  }
  if (form.trans_a && form.a_in_registers) fault("wgmma cannot transpose A in registers");
  if (form.satfinite && !integer) fault("wgmma has .satfinite for integers only");
  if ((form.negate_a || form.negate_b) && integer) fault("wgmma cannot negate integer operands");
}

void wgmma(const WgmmaForm& form, const WgmmaOperands& operands, const SharedMemory& memory) {
  static thread_local Workspace work;
  expand_operands(form, operands, memory, work);
  const bool packed = form.d == Type::kF16, integer = form.d == Type::kS32;
  const int registers = form.n / 2 * kWarps;
  uint32_t* const* sum = packed || integer ? work.registers : operands.d;
  if (packed && operands.accumulate) {
    load_f16_accumulator(form.n, kWarps, operands.d, sum);
  } else if (integer || !operands.accumulate) {
    clear(sum, registers);
  }
  multiply({kWarps, form.n, form.k, work.a, work.b, sum, wgmma_sum_rule(form.a, form.b, form.d)});
  if (packed) store_f16_accumulator(form.n, kWarps, sum, operands.d);
  if (!integer) return;
  if (!operands.accumulate) clear(operands.d, registers);
  for (int i = 0; i < registers; ++i) {
    add_integers(operands.d[i], sum[i], form.satfinite, operands.d[i]);
  }
}

}  // namespace warploom::emulator
