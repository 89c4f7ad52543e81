#include "emulator/matrix/wgmma.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>

#include "emulator/format/float16.h"
#include "emulator/matrix/bit_product.h"
#include "emulator/matrix/descriptor.h"
#include "emulator/matrix/fragment.h"
#include "emulator/matrix/legality.h"
#include "emulator/matrix/product.h"
#include "emulator/matrix/sparse.h"

namespace warploom::emulator {
namespace {

constexpr int kWarps = 4;
constexpr int kRows = 64;
constexpr int kMaxN = 256;
constexpr int kRowWords = 8;  // of a row of A
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
  const int steps = k * element_bits(type) / 8 / kStepBytes;
  for (int block = 0; block < blocks; ++block) {
    uint8_t raw[kMostBlockChunks * kStepBytes];
    float values[8 * Product::kMaxK];
    gather_block(descriptor, mn_major, block, steps, memory, raw);
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

// Calls value(row, column) for every place of the accumulator and keeps the bits of the float.
template <class Value>
void for_each_sum(int n, uint32_t* const* sum, Value value) {
  for (int i = 0; i < n / 2 * kWarps; ++i) {
    const int reg = i / kWarps, warp = i % kWarps;
    for (int lane = 0; lane < kLanes; ++lane) {
      const int row = 16 * warp + 8 * (reg % 4 / 2) + lane / 4;
      sum[i][lane] = value(row, 8 * (reg / 4) + 2 * (lane % 4) + reg % 2, sum[i][lane]);
    }
  }
}

void multiply_dense(const WgmmaForm& form, const WgmmaOperands& operands,
                    const SharedMemory& memory, Workspace& work, uint32_t* const* sum) {
  expand_operands(form, operands, memory, work);
  multiply({kWarps, form.n, form.k, work.a, work.b, sum, wgmma_sum_rule(form.a, form.b, form.d)});
}

// Operands of a sparse product are rows: work.a[64][held] and work.b[n][k].
void expand_rows(const WgmmaForm& form, const WgmmaOperands& operands, const SharedMemory& memory,
                 Workspace& work) {
  const int held = form.k / 2;
  const auto rows_of = [](float* out, int k) {
    return [=](const float* values, int row_step, int k_step, int block) {
      for (int row = 0; row < 8; ++row) {
        for (int i = 0; i < k; ++i) {
          out[(8 * block + row) * k + i] = values[row * (k_step == 1 ? k : row_step) + i * k_step];
        }
      }
    };
  };
  if (form.a_in_registers) {
    uint32_t words[kRows * kRowWords];
    collect_a_words(kRows, kRowWords, kWarps, operands.a, words);
    widen(form.a, reinterpret_cast<const uint8_t*>(words), kRows * held, work.a);
  } else {
    for_each_block(form.a, operands.a_descriptor, form.trans_a, held, kRows / 8, memory,
                   rows_of(work.a, held));
  }
  for_each_block(form.b, operands.b_descriptor, form.trans_b, form.k, form.n / 8, memory,
                 rows_of(work.b, form.k));
  if (form.negate_a != form.negate_b) {
    std::transform(work.a, work.a + kRows * held, work.a, std::negate<float>());
  }
}

void multiply_sparse(const WgmmaForm& form, const WgmmaOperands& operands,
                     const SharedMemory& memory, Workspace& work, uint32_t* const* sum) {
  expand_rows(form, operands, memory, work);
  const SumRule rule = wgmma_sum_rule(form.a, form.b, form.d);
  SparseIndices indices[kWarps];
  for (int warp = 0; warp < kWarps; ++warp) {
    indices[warp] =
        sparse_indices(form.a, form.k, form.selector, false, operands.metadata[warp]);
  }
  for_each_sum(form.n, sum, [&](int row, int column, uint32_t start) {
    const int warp = row / 16;
    const float* a = work.a + 16 * warp * (form.k / 2);
    const SparseProduct product{form.n, form.k / 2, form.k, a, work.b, &indices[warp], rule};
    return sparse_sum(product, row % 16, column, start);
  });
}

void multiply_bits(const WgmmaForm& form, const WgmmaOperands& operands,
                   const SharedMemory& memory, uint32_t* const* sum) {
  uint32_t a[kRows * kRowWords], b[kMaxN * kRowWords];
  const auto collect = [&](uint64_t bits, int blocks, uint32_t* out) {
    const MatrixDescriptor descriptor = parse_wgmma_descriptor(bits);
    for (int block = 0; block < blocks; ++block) {
      gather_block(descriptor, false, block, kDenseSteps, memory,
                   reinterpret_cast<uint8_t*>(out + 8 * block * kRowWords));
    }
  };
  if (form.a_in_registers) {
    collect_a_words(kRows, kRowWords, kWarps, operands.a, a);
  } else {
    collect(operands.a_descriptor, kRows / 8, a);
  }
  collect(operands.b_descriptor, form.n / 8, b);
  for_each_sum(form.n, sum, [&](int row, int column, uint32_t) {
    return float_bits(static_cast<float>(
        count_common_bits(a + row * kRowWords, b + column * kRowWords, kRowWords)));
  });
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
  const int k = form.sparse ? 2 * family->k : family->k;
  if (form.k != k || !wgmma_has_width(*family, form.n)) {
    fault("wgmma of %s has no shape m64n%dk%d: k is %d and n a multiple of 8 up to 256 (above 32 "
          "a multiple of 16 for integers)",
          name(form.a).c_str(), form.n, form.k, k);
  }
  if (form.sparse && form.selector >= family->selectors) {
    fault("wgmma.sp of %s has a sparsity selector of %d; it has %d of them, which count from 0",
          name(form.a).c_str(), form.selector, family->selectors);
  }
  const bool integer = is_integer_element(form.a);
  const bool saturates = integer && form.a != Type::kB1;
  if ((form.trans_a || form.trans_b) && !family->transposes) {
    fault("wgmma of %s takes K-major operands only", name(form.a).c_str());
  }
  if (form.trans_a && form.a_in_registers) fault("wgmma cannot transpose A in registers");
  if (form.satfinite && !saturates) fault("wgmma has .satfinite for 8-bit integers only");
  if ((form.negate_a || form.negate_b) && integer) fault("wgmma cannot negate integer operands");
}

void wgmma(const WgmmaForm& form, const WgmmaOperands& operands, const SharedMemory& memory) {
  static thread_local Workspace work;
  const bool packed = form.d == Type::kF16, integer = form.d == Type::kS32;
  const int registers = form.n / 2 * kWarps;
  uint32_t* const* sum = packed || integer ? work.registers : operands.d;
  if (packed && operands.accumulate) {
    load_f16_accumulator(form.n, kWarps, operands.d, sum);
  } else if (integer || !operands.accumulate) {
    clear(sum, registers);
  }
  if (form.a == Type::kB1) {
    multiply_bits(form, operands, memory, sum);
  } else if (form.sparse) {
    multiply_sparse(form, operands, memory, work, sum);
  } else {
    multiply_dense(form, operands, memory, work, sum);
  }
  if (packed) store_f16_accumulator(form.n, kWarps, sum, operands.d);
  if (!integer) return;
  if (!operands.accumulate) clear(operands.d, registers);
  for (int i = 0; i < registers; ++i) {
    add_integers(operands.d[i], sum[i], form.satfinite, operands.d[i]);
  }
}

}  // namespace warploom::emulator
