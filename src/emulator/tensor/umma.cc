#include "emulator/tensor/umma.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <limits>

#include "emulator/format/float16.h"
#include "emulator/matrix/row_product.h"
#include "emulator/tensor/umma_layout.h"
#include "emulator/tensor/umma_metadata.h"
#include "emulator/tensor/umma_operand.h"

namespace warploom::emulator {
namespace {

constexpr int kLanes = 128;
constexpr int kQuarters = 4;
constexpr int kMaxN = 256;
constexpr int kMaxShift = 32;
constexpr int kBStride = kMaxN + kMaxShift;
constexpr int kMaxBlocks = 4;  // of scale factors

// Kept per thread: clearing it for every instruction would show.
struct Workspace {
  float a[kLanes][kUmmaMaxK];         // by row, or by lane if A is in tensor memory
  float b[kUmmaMaxK * kBStride];      // [k][column]
  float held_b[kUmmaMaxK / 2 * kBStride];  // the rows of K that a row of a sparse A holds
  uint32_t sums[kLanes][kMaxN];  // by lane, bits of floats, where they are not formed in D itself
  double scale_b[kQuarters][kMaxBlocks][kMaxN];  // columns of a bank
};

// Values of scale factors by their bytes; ue4m3 has no sign, and the bit is ignored.
using ScaleTable = std::array<double, 256>;

ScaleTable make_scales(bool ue4m3) {
  ScaleTable table{};
  for (int byte = 0; byte < 256; ++byte) {
    const int code = ue4m3 ? byte & 127 : byte, exponent = code >> 3, mantissa = code & 7;
    double& value = table[static_cast<std::size_t>(byte)];
    if (code == (ue4m3 ? 127 : 255)) {
      value = std::numeric_limits<double>::quiet_NaN();
    } else if (!ue4m3) {
      value = std::ldexp(1.0, code - 127);
    } else {
      value = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    }
  }
  return table;
}

const ScaleTable& scale_table(bool ue4m3) {
  static const ScaleTable with_mantissa = make_scales(true);
  static const ScaleTable powers = make_scales(false);
  return ue4m3 ? with_mantissa : powers;
}

// Factor `index` of a word.
double scale_value(const ScaleTable& table, uint32_t word, int index) {
  return table[word >> (8 * index) & 255];
}

// The rows of one bank of one CTA that are written.
struct Rows {
  int count = 0;
  int numbers[kLanes];  // in A and D of the CTA
  uint32_t lanes[kLanes];
  const float* a[kLanes];
  uint32_t* d[kLanes];     // tensor memory
  uint32_t* sums[kLanes];  // where sums are formed: D itself or the workspace
};

void round_to_f16(const uint32_t* sums, int columns, uint32_t* d) {
#pragma GCC ivdep
  for (int n = 0; n < columns; ++n) d[n] = f32_to_f16(bits_float(sums[n]));
}

// The sums are integers, which floats hold exactly.
void add_integers(const uint32_t* sums, int columns, bool saturate, uint32_t* d) {
#pragma GCC ivdep
  for (int n = 0; n < columns; ++n) {
    const int64_t sum = int64_t{static_cast<int32_t>(d[n])} +
                        static_cast<int32_t>(bits_float(sums[n]));
    const int64_t least = std::numeric_limits<int32_t>::min();
    const int64_t most = std::numeric_limits<int32_t>::max();
    d[n] = static_cast<uint32_t>(saturate ? std::clamp(sum, least, most) : sum);
  }
}

// One execution, for both CTAs of a pair.
class Execution {
 public:
  Execution(const UmmaPlan& plan, const UmmaCta* ctas, Workspace& work)
      : plan_(plan),
        instruction_(plan.instruction),
        ctas_(ctas),
        work_(work),
        columns_(plan.bank_columns()),
        formed_in_d_(plan.instruction.d == Type::kF32 && plan.form.scale_vectors == 0) {}

  void run() {
    load_b();
    for (int cta = 0; cta < plan_.form.cta_group; ++cta) {
      if (!plan_.form.a_in_tensor_memory) load_shared_a(ctas_[cta]);
      if (plan_.form.scale_vectors != 0) load_scale_b(*ctas_[cta].tensor);
      for (int bank = 0; bank < plan_.path.banks; ++bank) run_bank(cta, bank);
      if (plan_.form.shift_a) shift_a(*ctas_[cta].tensor);
    }
  }

 private:
  void load_b();
  void load_shared_a(const UmmaCta& cta);
  void load_scale_b(TensorMemory& tensor);
  void run_bank(int cta, int bank);
  Rows collect(int cta, int bank);
  void prepare(const Rows& rows) const;
  void multiply(const Rows& rows, int bank, int first_k, int k) const;
  void multiply_sparse(const Rows& rows, TensorMemory& tensor) const;
  void scale_blocks(const Rows& rows, TensorMemory& tensor, int bank) const;
  void finish(const Rows& rows) const;
  void shift_a(TensorMemory& tensor) const;

  const UmmaPlan& plan_;
  const UmmaInstruction& instruction_;
  const UmmaCta* ctas_;
  Workspace& work_;
  const int columns_;  // of D in one bank
  const bool formed_in_d_;
};

void Execution::load_b() {
  // A shifted matrix is stored from the front, and its first columns are not used.
  const ZeroColumns& zeros = plan_.zero_columns;
  const int rows = plan_.b_rows(), n = instruction_.n;
  for (int cta = 0; cta < plan_.form.cta_group; ++cta) {
    load_shared_operand(plan_.shared_b, rows + zeros.shift(), *ctas_[cta].shared,
                        {work_.b + cta * rows, 1, kBStride});
  }
  // The sign of the products is all that the two fields decide.
  const bool negate = instruction_.negate_a != instruction_.negate_b;
  for (int k = 0; k < instruction_.b_k; ++k) {
    float* row = work_.b + k * kBStride;
    if (zeros.shift() != 0) std::copy_n(row + zeros.shift(), n, row);
    if (zeros.any()) {
      for (int i = 0; i < n; ++i) {
        if (zeros.is_zero(i)) row[i] = 0;
      }
    }
    if (negate) std::transform(row, row + n, row, std::negate<float>());
  }
}

void Execution::load_shared_a(const UmmaCta& cta) {
  load_shared_operand(plan_.shared_a, plan_.path.rows, *cta.shared, {work_.a[0], kUmmaMaxK, 1});
}

// For each quarter of the lanes, since its data path reads its own copy.
void Execution::load_scale_b(TensorMemory& tensor) {
  const ScaleTable& scales = scale_table(instruction_.scale_ue4m3);
  for (int quarter = 0; quarter < kQuarters; ++quarter) {
    for (int column = 0; column < columns_; ++column) {
      const TensorCell place = scale_word(plan_.scale_b, quarter, column);
      const uint32_t word = *tensor.at(place.lane, place.column, 1);
      for (int block = 0; block < plan_.form.scale_vectors; ++block) {
        work_.scale_b[quarter][block][column] =
            scale_value(scales, word, instruction_.scale_b_id + block);
      }
    }
  }
}

Rows Execution::collect(int cta, int bank) {
  Rows rows;
  TensorMemory& tensor = *ctas_[cta].tensor;
  for (int row = 0; row < plan_.path.rows; ++row) {
    const uint32_t lane = plan_.lane(row, bank);
    if (plan_.is_disabled(cta, lane)) continue;
    float* a = work_.a[row];
    if (plan_.form.a_in_tensor_memory) {
      a = work_.a[lane];
      const uint32_t* words = tensor.at(lane, plan_.tensor_a.column, kUmmaRowWords);
      load_tensor_row(instruction_.a, instruction_.k, words, a);
    }
    const int i = rows.count++;
    rows.numbers[i] = row;
    rows.lanes[i] = lane;
    rows.a[i] = a;
    rows.d[i] = tensor.at(lane, plan_.d.column, static_cast<uint32_t>(columns_));
    rows.sums[i] = formed_in_d_ ? rows.d[i] : work_.sums[lane];
  }
  return rows;
}

// What the sums start from.
void Execution::prepare(const Rows& rows) const {
  const int columns = columns_;
  const auto bytes = static_cast<std::size_t>(columns) * sizeof(uint32_t);
  const float scale = std::ldexp(1.0f, -plan_.form.scale_input);
  for (int i = 0; i < rows.count; ++i) {
    const uint32_t* d = rows.d[i];
    uint32_t* sums = rows.sums[i];
    if (!plan_.accumulate) std::memset(rows.d[i], 0, bytes);
    if (instruction_.d == Type::kF16) {
#pragma GCC ivdep
      for (int n = 0; n < columns; ++n) {
        sums[n] = float_bits(f16_to_f32(static_cast<uint16_t>(d[n])) * scale);
      }
    } else if (!formed_in_d_) {
      std::memset(sums, 0, bytes);
    } else if (plan_.form.scale_input != 0) {
      for (int n = 0; n < columns; ++n) sums[n] = float_bits(bits_float(d[n]) * scale);
    }
  }
}

void Execution::multiply(const Rows& rows, int bank, int first_k, int k) const {
  const float* a[kLanes];
  for (int i = 0; i < rows.count; ++i) a[i] = rows.a[i] + first_k;
  const float* b = work_.b + first_k * kBStride + bank * columns_;
  row_kernels().front().multiply({rows.count, columns_, k, a, b, kBStride, rows.sums});
}

// Elements that A does not hold are not multiplied: row by row, with those rows of B that it holds.
void Execution::multiply_sparse(const Rows& rows, TensorMemory& tensor) const {
  const int held = instruction_.k;
  for (int i = 0; i < rows.count; ++i) {
    uint8_t places[kUmmaMaxK / 2];
    umma_held_elements(instruction_.a, held, rows.numbers[i], plan_.metadata.column, tensor,
                       places);
    for (int k = 0; k < held; ++k) {
      std::copy_n(work_.b + places[k] * kBStride, columns_, work_.held_b + k * kBStride);
    }
    row_kernels().front().multiply(
        {1, columns_, held, &rows.a[i], work_.held_b, kBStride, &rows.sums[i]});
  }
}

void Execution::scale_blocks(const Rows& rows, TensorMemory& tensor, int bank) const {
  const ScaleTable& scales = scale_table(instruction_.scale_ue4m3);
  const int k = instruction_.k / plan_.form.scale_vectors;
  for (int block = 0; block < plan_.form.scale_vectors; ++block) {
    multiply(rows, bank, block * k, k);
    for (int i = 0; i < rows.count; ++i) {
      const auto quarter = static_cast<int>(rows.lanes[i] / 32);
      const TensorCell place = scale_word(plan_.scale_a, quarter, rows.numbers[i]);
      const uint32_t word = *tensor.at(place.lane, place.column, 1);
      const double scale = scale_value(scales, word, instruction_.scale_a_id + block);
      row_kernels().front().add_scaled(
          {columns_, rows.sums[i], scale, work_.scale_b[quarter][block], rows.d[i]});
      std::fill_n(rows.sums[i], columns_, 0u);
    }
  }
}

// From the sums to D.
void Execution::finish(const Rows& rows) const {
  const int columns = columns_;
  for (int i = 0; i < rows.count; ++i) {
    if (instruction_.d == Type::kF16) {
      round_to_f16(rows.sums[i], columns, rows.d[i]);
    } else {
      add_integers(rows.sums[i], columns, instruction_.saturate, rows.d[i]);
    }
  }
}

void Execution::run_bank(int cta, int bank) {
  const Rows rows = collect(cta, bank);
  prepare(rows);
  if (plan_.form.scale_vectors != 0) {
    scale_blocks(rows, *ctas_[cta].tensor, bank);
    return;
  }
  if (plan_.form.sparse) {
    multiply_sparse(rows, *ctas_[cta].tensor);
  } else {
    multiply(rows, bank, 0, instruction_.k);
  }
  if (!formed_in_d_) finish(rows);
}

// As tcgen05.shift does it: in each quarter, every row but the last takes the row below it.
void Execution::shift_a(TensorMemory& tensor) const {
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    if (lane % 32 == 31) continue;
    std::memcpy(tensor.at(lane, plan_.tensor_a.column, kUmmaRowWords),
                tensor.at(lane + 1, plan_.tensor_a.column, kUmmaRowWords), kUmmaRowBytes);
  }
}

}  // namespace

void umma(const UmmaPlan& plan, const UmmaCta* ctas) {
  static thread_local Workspace work;
  Execution(plan, ctas, work).run();
}

}  // namespace warploom::emulator
