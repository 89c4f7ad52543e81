#include "emulator/matrix/byte_matrix.h"

#include <cstring>

namespace warploom::emulator {
namespace {

constexpr int kLanes = 32;
constexpr int kElements = 16;

void unpack_row(const uint8_t* bytes, int bits, uint8_t* elements) {
  if (bits == 0) {
    std::memcpy(elements, bytes, kElements);
    return;
  }
  for (int i = 0; i < kElements; ++i) {
    const int at = i * bits;
    const unsigned pair = bytes[at / 8] | static_cast<unsigned>(bytes[at / 8 + 1]) << 8;
    elements[i] = static_cast<uint8_t>(pair >> at % 8 & ((1u << bits) - 1));
  }
}

// The four bytes of a register that holds two rows and two columns: rows first.
struct Quad {
  int row;
  int column;
};

constexpr Quad quad_of(int first_row, int lane, int byte) {
  return {first_row + byte % 2, lane / 4 + 8 * (byte / 2)};
}

}  // namespace

void load_byte_matrix(const MatrixForm& form, const uint32_t* offset, uint32_t* const* d,
                      const SharedMemory& memory) {
  // All rows are read before a register is written: an address register may be a destination.
  uint8_t rows[kLanes][kElements];
  for (int row = 0; row < form.rows(); ++row) {
    unpack_row(matrix_row(offset, row, memory), form.packed_bits, rows[row]);
  }
  for (int r = 0; r < form.registers(); ++r) {
    for (int lane = 0; lane < kLanes; ++lane) {
      uint32_t word = 0;
      for (int byte = 0; byte < 4; ++byte) {
        const Quad place = form.shape == MatrixShape::kM8n16
                               ? Quad{8 * r + lane / 4, 4 * (lane % 4) + byte}
                               : quad_of(16 * (r / 2) + 4 * (lane % 4) + 2 * (r % 2), lane, byte);
        word |= static_cast<uint32_t>(rows[place.row][place.column]) << (8 * byte);
      }
      d[r][lane] = word;
    }
  }
}

void store_byte_matrix(const MatrixForm& form, const uint32_t* offset, const uint32_t* const* a,
                       const SharedMemory& memory) {
  uint8_t rows[kLanes][kElements];
  for (int r = 0; r < form.registers(); ++r) {
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int byte = 0; byte < 4; ++byte) {
        const Quad place = quad_of(8 * r + 2 * (lane % 4), lane, byte);
        rows[place.row][place.column] = static_cast<uint8_t>(a[r][lane] >> (8 * byte));
      }
    }
  }
  for (int row = 0; row < form.rows(); ++row) {
    std::memcpy(matrix_row(offset, row, memory), rows[row], kElements);
  }
}

}  // namespace warploom::emulator
