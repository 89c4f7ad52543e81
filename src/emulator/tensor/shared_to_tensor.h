// tcgen05.cp: a matrix from shared to tensor memory (PTX ISA, "tcgen05.cp", "Data Movement Shape"
// and "Optional Decompression").

#ifndef WARPLOOM_EMULATOR_TENSOR_SHARED_TO_TENSOR_H_
#define WARPLOOM_EMULATOR_TENSOR_SHARED_TO_TENSOR_H_

#include <cstdint>
#include <string_view>

#include "emulator/memory/memory.h"
#include "emulator/tensor/tensor_memory.h"
#include "emulator/tensor/umma_descriptor.h"

namespace warploom::emulator {

// Row r goes to lane r % group + r / group * group_stride, and to `copies` lanes that lie
// `copy_stride` apart.
struct SharedToTensorShape {
  std::string_view name;
  std::string_view multicast;
  uint32_t rows;
  uint32_t chunks;  // of 16 bytes in a row, which are four columns each
  uint32_t group;
  uint32_t group_stride;
  uint32_t copies;
  uint32_t copy_stride;
};

extern const SharedToTensorShape kSharedToTensorShapes[6];

// Elements of 16 bytes of shared memory; the result is 16 of 8 bits.
enum class Decompression : uint8_t {
  kNone,
  kB6x16P32,  // 16 of 6 bits, then 32 bits of padding
  kB4x16P64,  // 16 of 4 bits, then 64 bits of padding
};

struct SharedToTensor {
  const SharedToTensorShape* shape = nullptr;
  Decompression decompression = Decompression::kNone;
};

// Calls visit(offset, bytes) for the chunks that are read, and visit(lane, column, columns) for the
// cells that are written.
template <class Visit>
void visit_shared(const SharedToTensor& copy, const UmmaDescriptor& descriptor, Visit visit) {
  for (uint32_t row = 0; row < copy.shape->rows; ++row) {
    for (uint32_t chunk = 0; chunk < copy.shape->chunks; ++chunk) {
      visit(umma_k_major(descriptor, row, chunk), kUmmaChunk);
    }
  }
}
template <class Visit>
void visit_tensor(const SharedToTensor& copy, TensorAddress base, Visit visit) {
  const SharedToTensorShape& shape = *copy.shape;
  for (uint32_t row = 0; row < shape.rows; ++row) {
    const uint32_t lane = base.lane + row % shape.group + row / shape.group * shape.group_stride;
    for (uint32_t i = 0; i < shape.copies; ++i) {
      visit(lane + i * shape.copy_stride, base.column, 4 * shape.chunks);
    }
  }
}

void copy_shared_to_tensor(const SharedToTensor& copy, const UmmaDescriptor& descriptor,
                           const SharedMemory& shared, TensorMemory& tensor, TensorAddress base);

// tcgen05.shift.down: in each quarter of the lanes, every row of eight columns gets the row below
// it; the last row of a quarter keeps its own.
void shift_down(TensorMemory& tensor, TensorAddress base);
constexpr uint32_t kShiftColumns = 8;
// Of all rows that move.
constexpr uint64_t kShiftBytes = (kTensorLanes - 4) * kShiftColumns * sizeof(uint32_t);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_TENSOR_SHARED_TO_TENSOR_H_
