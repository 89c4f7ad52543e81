// What one tcgen05.mma reads and writes, for those who watch it.

#ifndef WARPLOOM_EMULATOR_TENSOR_UMMA_FOOTPRINT_H_
#define WARPLOOM_EMULATOR_TENSOR_UMMA_FOOTPRINT_H_

#include <algorithm>
#include <cstdint>

#include "emulator/tensor/tensor_memory.h"
#include "emulator/tensor/umma_metadata.h"
#include "emulator/tensor/umma_plan.h"

namespace warploom::emulator {

// The shared memory of one CTA of the group, as visit(offset, bytes). Neighbours are joined.
template <class Visit>
void visit_umma_shared(const UmmaPlan& plan, Visit visit) {
  uint32_t begin = 0, end = 0;
  const auto add = [&](uint32_t offset, uint32_t bytes) {
    if (offset == end || offset + bytes == begin) {
      begin = std::min(begin, offset);
      end = std::max(end, offset + bytes);
      return;
    }
    if (end != begin) visit(begin, end - begin);
    begin = offset;
    end = offset + bytes;
  };
  if (!plan.form.a_in_tensor_memory) visit_shared_operand(plan.shared_a, plan.path.rows, add);
  visit_shared_operand(plan.shared_b, plan.b_rows() + plan.zero_columns.shift(), add);
  if (end != begin) visit(begin, end - begin);
}

// The lanes that hold D, as visit(lane, column, columns); `cta` counts within the group.
template <class Visit>
void visit_umma_d(const UmmaPlan& plan, int cta, Visit visit) {
  for (int bank = 0; bank < plan.path.banks; ++bank) {
    for (int row = 0; row < plan.path.rows; ++row) {
      const uint32_t lane = plan.lane(row, bank);
      if (plan.is_disabled(cta, lane)) continue;
      visit(lane, plan.d.column, static_cast<uint32_t>(plan.bank_columns()));
    }
  }
}

// The lanes that hold A, if they do, and the scale factors.
template <class Visit>
void visit_umma_tensor_operands(const UmmaPlan& plan, int cta, Visit visit) {
  if (plan.form.a_in_tensor_memory) {
    visit_umma_d(plan, cta, [&](uint32_t lane, uint32_t, uint32_t) {
      visit(lane, plan.tensor_a.column, uint32_t{kUmmaRowWords});
    });
  }
  if (plan.form.sparse) {
    for (uint32_t lane = 0; lane < kTensorLanes; ++lane) {
      visit(lane, plan.metadata.column, umma_metadata_columns(plan.instruction.a));
    }
  }
  if (plan.form.scale_vectors == 0) return;
  const int columns = plan.bank_columns();
  for (int quarter = 0; quarter < 4; ++quarter) {
    for (int column = 0; column < columns; ++column) {
      const TensorCell place = scale_word(plan.scale_b, quarter, column);
      visit(place.lane, place.column, uint32_t{1});
    }
  }
  for (int bank = 0; bank < plan.path.banks; ++bank) {
    for (int row = 0; row < plan.path.rows; ++row) {
      const auto quarter = static_cast<int>(plan.lane(row, bank) / 32);
      const TensorCell place = scale_word(plan.scale_a, quarter, row);
      visit(place.lane, place.column, uint32_t{1});
    }
  }
}

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_TENSOR_UMMA_FOOTPRINT_H_
