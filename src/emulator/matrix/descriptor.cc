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
  return {field(bits, 0), field(bits, 16), field(bits, 32), kRowBytes[bits >> 62],
          static_cast<uint32_t>(bits >> 49 & 7)};
}

void block_offsets(const MatrixDescriptor& d, bool mn_major, int block, int steps,
                   uint32_t offsets[kMostBlockChunks]) {
  const auto index = static_cast<uint32_t>(block);
  const uint32_t chunks = d.row_bytes / kChunk;
  // Of the chunks, `line` counts rows of an atom and `step` the atoms or chunks beside it.
  uint32_t start = d.start, step_bytes = 0;
  if (!mn_major) {
    start += index * d.stride_offset;
  } else if (chunks == 1) {
    start += index * d.stride_offset;
    step_bytes = d.leading_offset;
  } else {
    start += index / chunks * d.leading_offset + index % chunks * kChunk;
    step_bytes = d.stride_offset;
  }
  const auto count = static_cast<uint32_t>(steps);
  for (uint32_t step = 0; step < count; ++step) {
    // Steps of K that a swizzled row is too short for are those of the next atom.
    const uint32_t along = mn_major ? step * step_bytes
                                    : step / chunks * d.leading_offset + step % chunks * kChunk;
    for (uint32_t line = 0; line < kRowsOfAtom; ++line) {
      const uint32_t place = mn_major ? step * kRowsOfAtom + line : count * line + step;
      offsets[place] = swizzle(start + along + line * d.row_bytes, d.row_bytes, d.base_offset);
    }
  }
}

void gather_block(const MatrixDescriptor& d, bool mn_major, int block, int steps,
                  const SharedMemory& memory, uint8_t raw[kMostBlockChunks * kStepBytes]) {
  uint32_t offsets[kMostBlockChunks];
  block_offsets(d, mn_major, block, steps, offsets);
  for (int i = 0; i < 8 * steps; ++i) {
    std::memcpy(raw + i * kStepBytes, memory.at(offsets[i], kChunk), kChunk);
  }
}

}  // namespace warploom::emulator
