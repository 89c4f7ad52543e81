// The tensor memory of one CTA (PTX ISA, "Tensor Memory").

#ifndef WARPLOOM_EMULATOR_TENSOR_TENSOR_MEMORY_H_
#define WARPLOOM_EMULATOR_TENSOR_TENSOR_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "emulator/exec/fault.h"

namespace warploom::emulator {

constexpr uint32_t kTensorLanes = 128;
constexpr uint32_t kTensorColumns = 512;

class TensorMemory {
 public:
  // The cells [column, column + columns) of a lane; a Fault if they are not all in bounds.
  uint32_t* at(uint32_t lane, uint32_t column, uint32_t columns) {
    if (lane >= kTensorLanes || columns > kTensorColumns || column > kTensorColumns - columns) {
      out_of_bounds(lane, column, columns);
    }
    return &cells_[std::size_t{lane} * kTensorColumns + column];
  }

 private:
  [[noreturn]] static void out_of_bounds(uint32_t lane, uint32_t column, uint32_t columns) {
    fault("%u columns from column %u of lane %u are out of bounds: tensor memory has %u lanes and "
          "%u columns",
          columns, column, lane, kTensorLanes, kTensorColumns);
  }

  std::vector<uint32_t> cells_ =
      std::vector<uint32_t>(std::size_t{kTensorLanes} * kTensorColumns);
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_TENSOR_TENSOR_MEMORY_H_
