// Matrix operands in shared memory, as wgmma descriptors name them (PTX ISA, "Matrix Descriptor
// Format", "Shared Memory Matrix Layout" and "Strides").

#ifndef WARPLOOM_EMULATOR_MATRIX_DESCRIPTOR_H_
#define WARPLOOM_EMULATOR_MATRIX_DESCRIPTOR_H_

#include <cstdint>

#include "emulator/exec/memory.h"

namespace warploom::emulator {

struct MatrixDescriptor {
  uint32_t start;           // offset in the CTA's shared memory
  uint32_t leading_offset;  // LBO in bytes
  uint32_t stride_offset;   // SBO in bytes
  uint32_t row_bytes;       // of a swizzled row: 32, 64, 128; 16 without a swizzle
};

// A Fault for a field that the emulator cannot follow.
MatrixDescriptor parse_wgmma_descriptor(uint64_t bits);

// Bytes of K that one wgmma consumes of each row.
constexpr int kStepBytes = 32;

// Where the 16 chunks of 16 bytes of a block lie, in the order of gather_block's result.
constexpr int kBlockChunks = 16;
void block_offsets(const MatrixDescriptor& descriptor, bool mn_major, int block,
                   uint32_t offsets[kBlockChunks]);

// 8 rows of MN by 32 bytes of K, starting at row 8 * block.
//
// K-major gives raw[8 rows][32 bytes]. MN-major exists for elements of 16 bits only and gives
// raw[16 elements of K][8 rows], 16 bytes each.
void gather_block(const MatrixDescriptor& descriptor, bool mn_major, int block,
                  const SharedMemory& memory, uint8_t raw[8 * kStepBytes]);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MATRIX_DESCRIPTOR_H_
