// Operands of tcgen05 in shared memory, as 64-bit descriptors name them (PTX ISA, "tcgen05",
// "Shared memory descriptor", "Strides" and "Shared Memory Layout and Swizzling").

#ifndef WARPLOOM_EMULATOR_TENSOR_UMMA_DESCRIPTOR_H_
#define WARPLOOM_EMULATOR_TENSOR_UMMA_DESCRIPTOR_H_

#include <cstdint>

namespace warploom::emulator {

// Matrices are read in chunks of 16 bytes, whatever the element type.
constexpr uint32_t kUmmaChunk = 16;

struct UmmaDescriptor {
  uint32_t start;           // offset in the shared memory of each CTA that takes part
  uint32_t leading_offset;  // LBO in bytes
  uint32_t stride_offset;   // SBO in bytes
  uint32_t row_bytes;       // of a swizzled row: 32, 64, 128; 16 without a swizzle
  uint32_t atom_bytes;      // what a swizzle moves as a whole: 16 or 32
  uint32_t base_offset;     // 128-byte row, modulo 8, in which the swizzle's pattern starts

  constexpr bool swizzled() const { return row_bytes != kUmmaChunk; }
};

// A Fault that names the field if the bits describe no matrix of sm_100.
UmmaDescriptor parse_umma_descriptor(uint64_t bits);

// Where the byte at `linear` lies after the swizzle, which permutes the atoms of a 128-byte row by
// the number of that row.
constexpr uint32_t umma_swizzle(const UmmaDescriptor& d, uint32_t linear) {
  const uint32_t atoms = d.row_bytes / d.atom_bytes;
  if (atoms <= 1) return linear;
  const uint32_t row = (linear >> 7) - d.base_offset;
  return linear ^ (row & (atoms - 1)) * d.atom_bytes;
}

// Shared offset of one chunk of a K-major matrix: chunk `chunk` along K of row `row` of MN.
constexpr uint32_t umma_k_major(const UmmaDescriptor& d, uint32_t row, uint32_t chunk) {
  const uint32_t step = d.swizzled() ? kUmmaChunk : d.leading_offset;
  return umma_swizzle(
      d, d.start + row / 8 * d.stride_offset + row % 8 * d.row_bytes + chunk * step);
}

// The same of an MN-major matrix: chunk `chunk` along MN of line `line` of K. An atom has 8 lines,
// or 4 if its swizzle moves 32 bytes; without a swizzle the two strides change places.
constexpr uint32_t umma_mn_major(const UmmaDescriptor& d, uint32_t chunk, uint32_t line) {
  const uint32_t lines = d.atom_bytes == 32 ? 4 : 8;
  const uint32_t chunks = d.row_bytes / kUmmaChunk;
  const uint32_t along_mn = d.swizzled() ? d.leading_offset : d.stride_offset;
  const uint32_t along_k = d.swizzled() ? d.stride_offset : d.leading_offset;
  return umma_swizzle(d, d.start + chunk / chunks * along_mn + chunk % chunks * kUmmaChunk +
                             line / lines * along_k + line % lines * d.row_bytes);
}

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_TENSOR_UMMA_DESCRIPTOR_H_
