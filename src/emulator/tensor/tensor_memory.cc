#include "emulator/tensor/tensor_memory.h"

#include "emulator/base/fault.h"

namespace warploom::emulator {

void TensorMemory::refuse(uint32_t lane, uint32_t column, uint32_t columns) const {
  if (lane >= kTensorLanes || columns > kTensorColumns || column > kTensorColumns - columns) {
    fault("%u columns from column %u of lane %u are out of bounds: tensor memory has %u lanes and "
          "%u columns",
          columns, column, lane, kTensorLanes, kTensorColumns);
  }
  fault("%u columns from column %u of lane %u are not all allocated; the CTA holds %s", columns,
        column, lane, allocator_.describe().c_str());
}

}  // namespace warploom::emulator
