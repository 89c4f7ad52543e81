// The tensor memory of one CTA (PTX ISA, "Tensor Memory").

#ifndef WARPLOOM_EMULATOR_TENSOR_TENSOR_MEMORY_H_
#define WARPLOOM_EMULATOR_TENSOR_TENSOR_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "emulator/tensor/tensor_allocator.h"

namespace warploom::emulator {

// An address of tensor memory: the lane in bits 16 to 31, the column below.
struct TensorAddress {
  uint32_t lane = 0;
  uint32_t column = 0;

  explicit constexpr TensorAddress(uint32_t bits) : lane(bits >> 16), column(bits & 0xffff) {}
};

class TensorMemory {
 public:
  TensorAllocator& allocator() { return allocator_; }
  const TensorAllocator& allocator() const { return allocator_; }

  // Whether columns that were freed are as bad as those that never were allocated. Without, they
  // keep their data: on the hardware it stays until somebody allocates the columns again.
  void refuse_freed() { refuses_freed_ = true; }

  // The cells [column, column + columns) of a lane, which lie one after the other; a Fault if they
  // may not be used.
  uint32_t* at(uint32_t lane, uint32_t column, uint32_t columns) {
    if (lane >= kTensorLanes || columns > kTensorColumns || column > kTensorColumns - columns ||
        !may_use(column, columns)) {
      refuse(lane, column, columns);
    }
    // CTAs that never allocate do not pay for cells.
    if (cells_.empty()) cells_.resize(std::size_t{kTensorLanes} * kTensorColumns, kPoison);
    return &cells_[std::size_t{lane} * kTensorColumns + column];
  }

 private:
  // What nobody has written is a NaN as f32, as two f16 and as two bf16.
  static constexpr uint32_t kPoison = 0x7fffffff;

  bool may_use(uint32_t column, uint32_t columns) const {
    return allocator_.is_allocated(column, columns) ||
           (!refuses_freed_ && allocator_.was_allocated(column, columns));
  }
  [[noreturn]] void refuse(uint32_t lane, uint32_t column, uint32_t columns) const;

  TensorAllocator allocator_;
  bool refuses_freed_ = false;
  std::vector<uint32_t> cells_;  // lane after lane
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_TENSOR_TENSOR_MEMORY_H_
