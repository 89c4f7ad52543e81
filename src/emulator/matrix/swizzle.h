// The permutation of 16-byte chunks in shared memory that TMA and the tensor core share
// (PTX ISA, "Swizzling modes").

#ifndef WARPLOOM_EMULATOR_MATRIX_SWIZZLE_H_
#define WARPLOOM_EMULATOR_MATRIX_SWIZZLE_H_

#include <cstdint>

namespace warploom::emulator {

// Where the byte at `offset` lies if rows of `row_bytes` (16 for no swizzle, 32, 64 or 128) are
// swizzled. It depends on bits 7 to 9 of the absolute address, not on the start of a tile.
constexpr uint32_t swizzle(uint32_t offset, uint32_t row_bytes) {
  return offset ^ (offset >> 7 & (row_bytes / 16 - 1)) << 4;
}

static_assert(swizzle(0x3f0, 128) == 0x380 && swizzle(0x3f0, 16) == 0x3f0);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MATRIX_SWIZZLE_H_
