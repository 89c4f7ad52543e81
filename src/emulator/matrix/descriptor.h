// Matrix operands in shared memory, as wgmma descriptors name them (PTX ISA, "Matrix Descriptor
// Format", "Shared Memory Matrix Layout" and "Strides").

#ifndef WARPLOOM_EMULATOR_MATRIX_DESCRIPTOR_H_
#define WARPLOOM_EMULATOR_MATRIX_DESCRIPTOR_H_

#include <cstdint>

#include "emulator/memory/memory.h"

namespace warploom::emulator {

struct MatrixDescriptor {
  uint32_t start;           // offset in the CTA's shared memory
  uint32_t leading_offset;  // LBO in bytes
  uint32_t stride_offset;   // SBO in bytes
  uint32_t row_bytes;       // of a swizzled row: 32, 64, 128; 16 without a swizzle
  uint32_t base_offset;     // 128-byte row, modulo 8, in which the swizzle's pattern starts
};

MatrixDescriptor parse_wgmma_descriptor(uint64_t bits);

// Bytes of K that one wgmma consumes of each row come in steps of 16: two, or four of B if A is
// sparse.
constexpr int kStepBytes = 16;
constexpr int kDenseSteps = 2;
constexpr int kMostSteps = 4;

// A block is 8 rows of MN, starting at row 8 * block, by `steps` steps of K. Where its chunks of 16
// bytes lie, in the order of gather_block's result.
constexpr int kMostBlockChunks = 8 * kMostSteps;
void block_offsets(const MatrixDescriptor& descriptor, bool mn_major, int block, int steps,
                   uint32_t offsets[kMostBlockChunks]);

// K-major gives raw[8 rows][steps] chunks. MN-major exists for elements of 16 bits only and gives
// raw[8 * steps elements of K][8 rows], 16 bytes each.
void gather_block(const MatrixDescriptor& descriptor, bool mn_major, int block, int steps,
                  const SharedMemory& memory, uint8_t raw[kMostBlockChunks * kStepBytes]);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MATRIX_DESCRIPTOR_H_
