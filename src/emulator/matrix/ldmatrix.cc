#include "emulator/matrix/ldmatrix.h"

#include <cstring>

namespace warploom::emulator {
namespace {

constexpr uint32_t kRowBytes = 16;
constexpr int kLanes = 32;

// Element of the 8 x 8 matrix that half `half` of the register of `lane` holds, row-major.
int element_of(int lane, int half, bool trans) {
  const int outer = lane / 4, inner = 2 * (lane % 4) + half;
  return trans ? inner * 8 + outer : outer * 8 + inner;
}

}  // namespace

uint8_t* matrix_row(const uint32_t* offset, int lane, const SharedMemory& memory) {
  if (offset[lane] % kRowBytes != 0) {
    fault("lane %d gives shared offset 0x%x as the start of a matrix row, which must be a multiple "
          "of %u",
          lane, offset[lane], kRowBytes);
  }
  return memory.at(offset[lane], kRowBytes);
}

void ldmatrix(const MatrixForm& form, const uint32_t* offset, uint32_t* const* d,
              const SharedMemory& memory) {
  // All rows are read before a register is written: an address register may be a destination.
  uint16_t matrix[4][64];
  for (int q = 0; q < form.count; ++q) {
    for (int row = 0; row < 8; ++row) {
      std::memcpy(&matrix[q][8 * row], matrix_row(offset, 8 * q + row, memory), kRowBytes);
    }
  }
  for (int q = 0; q < form.count; ++q) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const uint32_t low = matrix[q][element_of(lane, 0, form.trans)];
      const uint32_t high = matrix[q][element_of(lane, 1, form.trans)];
      d[q][lane] = high << 16 | low;
    }
  }
}

void stmatrix(const MatrixForm& form, const uint32_t* offset, const uint32_t* const* a,
              const SharedMemory& memory) {
  for (int q = 0; q < form.count; ++q) {
    uint16_t matrix[64];
    for (int lane = 0; lane < kLanes; ++lane) {
      matrix[element_of(lane, 0, form.trans)] = static_cast<uint16_t>(a[q][lane]);
      matrix[element_of(lane, 1, form.trans)] = static_cast<uint16_t>(a[q][lane] >> 16);
    }
    for (int row = 0; row < 8; ++row) {
      std::memcpy(matrix_row(offset, 8 * q + row, memory), &matrix[8 * row], kRowBytes);
    }
  }
}

}  // namespace warploom::emulator
