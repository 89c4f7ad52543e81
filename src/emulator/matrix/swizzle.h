// The permutation of chunks of 16 bytes or more in shared memory that TMA and the tensor core share
// (PTX ISA, "Swizzling modes").

#ifndef WARPLOOM_EMULATOR_MATRIX_SWIZZLE_H_
#define WARPLOOM_EMULATOR_MATRIX_SWIZZLE_H_

#include <cstdint>

namespace warploom::emulator {

// Where the byte at `offset` lies if rows of `row_bytes` (16 for no swizzle, 32, 64 or 128) are
// swizzled. It depends on bits 7 to 9 of the absolute address, not on the start of a tile: a
// pattern that starts elsewhere says so by its base offset, in units of 128 bytes.
constexpr uint32_t swizzle(uint32_t offset, uint32_t row_bytes, uint32_t base_offset = 0) {
  return offset ^ (((offset >> 7) - base_offset) & (row_bytes / 16 - 1)) << 4;
}

// The same in atoms of `atom_bytes` instead of 16.
constexpr uint32_t swizzle_atoms(uint32_t offset, uint32_t row_bytes, uint32_t atom_bytes) {
  return offset ^ (offset >> 7 & (row_bytes / atom_bytes - 1)) * atom_bytes;
}

static_assert(swizzle(0x3f0, 128) == 0x380 && swizzle(0x3f0, 16) == 0x3f0);
static_assert(swizzle_atoms(0x1f0, 128, 32) == 0x190 && swizzle_atoms(0x1f0, 128, 64) == 0x1b0);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MATRIX_SWIZZLE_H_
