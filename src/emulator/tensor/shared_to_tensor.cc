#include "emulator/tensor/shared_to_tensor.h"

#include <array>
#include <cstring>

namespace warploom::emulator {
namespace {

using Chunk = std::array<uint8_t, kUmmaChunk>;

// Element i of `bits` bits, the first one in the lowest bits.
uint8_t element_at(const uint8_t* packed, uint32_t bits, uint32_t i) {
  uint16_t both = packed[i * bits / 8];
  if (i * bits % 8 + bits > 8) both = static_cast<uint16_t>(both | packed[i * bits / 8 + 1] << 8);
  return static_cast<uint8_t>(both >> i * bits % 8 & ((1u << bits) - 1));
}

// A 4-bit element has its place in bits 2 to 5 of its byte, a 6-bit one in bits 0 to 5, as
// kind::f8f6f4 reads them.
Chunk decompress(Decompression kind, const uint8_t* packed) {
  Chunk result;
  for (uint32_t i = 0; i < kUmmaChunk; ++i) {
    switch (kind) {
      case Decompression::kNone: result[i] = packed[i]; break;
      case Decompression::kB6x16P32: result[i] = element_at(packed, 6, i); break;
      case Decompression::kB4x16P64:
        result[i] = static_cast<uint8_t>(element_at(packed, 4, i) << 2);
        break;
    }
  }
  return result;
}

}  // namespace

const SharedToTensorShape kSharedToTensorShapes[6] = {
    {"128x256b", "", 128, 2, 128, 0, 1, 0},
    {"4x256b", "", 4, 2, 1, 32, 1, 0},
    {"128x128b", "", 128, 1, 128, 0, 1, 0},
    {"64x128b", "warpx2::02_13", 64, 1, 64, 0, 2, 64},
    {"64x128b", "warpx2::01_23", 64, 1, 32, 64, 2, 32},
    {"32x128b", "warpx4", 32, 1, 32, 0, 4, 32},
};

void copy_shared_to_tensor(const SharedToTensor& copy, const UmmaDescriptor& descriptor,
                           const SharedMemory& shared, TensorMemory& tensor, TensorAddress base) {
  const SharedToTensorShape& shape = *copy.shape;
  std::array<Chunk, 2> row_chunks;
  uint32_t row = 0;
  uint32_t copies_left = 0;
  visit_tensor(copy, base, [&](uint32_t lane, uint32_t column, uint32_t columns) {
    if (copies_left == 0) {
      for (uint32_t chunk = 0; chunk < shape.chunks; ++chunk) {
        const uint8_t* packed = shared.at(umma_k_major(descriptor, row, chunk), kUmmaChunk);
        row_chunks[chunk] = decompress(copy.decompression, packed);
      }
      ++row;
      copies_left = shape.copies;
    }
    --copies_left;
    std::memcpy(tensor.at(lane, column, columns), row_chunks.data(), 4 * columns);
  });
}

void shift_down(TensorMemory& tensor, TensorAddress base) {
  constexpr uint32_t kQuarter = 32;
  for (uint32_t lane = 0; lane + 1 < kTensorLanes; ++lane) {
    if (lane % kQuarter == kQuarter - 1) continue;
    std::memcpy(tensor.at(lane, base.column, kShiftColumns),
                tensor.at(lane + 1, base.column, kShiftColumns), 4 * kShiftColumns);
  }
}

}  // namespace warploom::emulator
