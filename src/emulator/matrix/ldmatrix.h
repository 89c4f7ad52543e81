// ldmatrix and stmatrix of .m8n8 .b16; other shapes are in byte_matrix.h (PTX ISA, "Warp-level
// matrix load / store instruction").

#ifndef WARPLOOM_EMULATOR_MATRIX_LDMATRIX_H_
#define WARPLOOM_EMULATOR_MATRIX_LDMATRIX_H_

#include <cstdint>

#include "emulator/memory/memory.h"

namespace warploom::emulator {

enum class MatrixShape : uint8_t { kM8n8, kM8n16, kM16n8, kM16n16 };

struct MatrixForm {
  int count;   // 1, 2 or 4 matrices
  bool trans;  // registers hold columns instead of rows
  MatrixShape shape = MatrixShape::kM8n8;
  int packed_bits = 0;  // of an element in memory, 4 or 6; 0: as in registers

  // Rows in memory and registers of a lane, of all matrices.
  int rows() const { return count * (shape == MatrixShape::kM16n16 ? 16 : 8); }
  int registers() const { return count * (shape == MatrixShape::kM16n16 ? 2 : 1); }
};

// The 16 bytes of a row whose shared offset a lane gives; a Fault if they are not aligned.
uint8_t* matrix_row(const uint32_t* offset, int lane, const SharedMemory& memory);

// Lane 8 * q + r gives the shared offset of row r of matrix q (16 bytes, aligned to 16); register q
// receives two neighbouring elements of row lane / 4. `d` is [count] -> [32].
void ldmatrix(const MatrixForm& form, const uint32_t* offset, uint32_t* const* d,
              const SharedMemory& memory);

void stmatrix(const MatrixForm& form, const uint32_t* offset, const uint32_t* const* a,
              const SharedMemory& memory);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MATRIX_LDMATRIX_H_
