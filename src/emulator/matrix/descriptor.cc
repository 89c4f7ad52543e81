#include "emulator/matrix/descriptor.h"

#include <cstring>

#include "emulator/matrix/swizzle.h"

namespace warploom::emulator {
namespace {

constexpr uint32_t kChunk = 16;
constexpr uint32_t kRowsOfAtom = 8;

uint32_t field(uint64_t bits, int position) {
  return static_cast<uint32_t>(bits >> position & 0x3fff) << 4;
}

}  // namespace

MatrixDescriptor parse_wgmma_descriptor(uint64_t bits) {
  constexpr uint32_t kRowBytes[] = {16, 128, 64, 32};  // by the code in bits 62 and 63
  const auto base_offset = static_cast<unsigned>(bits >> 49 & 7);
  if (base_offset != 0) {
    fault("a matrix descriptor with base offset %u is not supported: start the swizzle pattern "
          "at a multiple of its own size, where the base offset is 0",
          base_offset);
  }
  return {field(bits, 0), field(bits, 16), field(bits, 32), kRowBytes[bits >> 62]};
}

void block_offsets(const MatrixDescriptor& d, bool mn_major, int block,
                   uint32_t offsets[kBlockChunks]) {
  const auto index = static_cast<uint32_t>(block);
  const bool swizzled = d.row_bytes != kChunk;
  // Of the 16 chunks, `line` counts rows of an atom and `step` the atoms or chunks beside it.
  uint32_t start = d.start, step_bytes = 0;
  if (!mn_major) {
    start += index * d.stride_offset;
    step_bytes = swizzled ? kChunk : d.leading_offset;
  } else if (swizzled) {
    const uint32_t chunks = d.row_bytes / kChunk;
    start += index / chunks * d.leading_offset + index % chunks * kChunk;
    step_bytes = d.stride_offset;
  } else {
    start += index * d.stride_offset;
    step_bytes = d.leading_offset;
  }
  for (uint32_t step = 0; step < 2; ++step) {
    for (uint32_t line = 0; line < kRowsOfAtom; ++line) {
      const uint32_t linear = start + step * step_bytes + line * d.row_bytes;
      const uint32_t place = mn_major ? step * kRowsOfAtom + line : 2 * line + step;
      offsets[place] = swizzle(linear, d.row_bytes);
    }
  }
}

void gather_block(const MatrixDescriptor& d, bool mn_major, int block, const SharedMemory& memory,
                  uint8_t raw[8 * kStepBytes]) {
  uint32_t offsets[kBlockChunks];
  block_offsets(d, mn_major, block, offsets);
  for (uint32_t i = 0; i < kBlockChunks; ++i) {
    std::memcpy(raw + i * kChunk, memory.at(offsets[i], kChunk), kChunk);
  }
}

}  // namespace warploom::emulator
