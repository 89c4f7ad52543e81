// ldmatrix and stmatrix of .m8n8 .b16 (PTX ISA, "Warp-level matrix load / store instruction").

#ifndef WARPLOOM_EMULATOR_MATRIX_LDMATRIX_H_
#define WARPLOOM_EMULATOR_MATRIX_LDMATRIX_H_

#include <cstdint>

#include "emulator/exec/memory.h"

namespace warploom::emulator {

struct MatrixForm {
  int count;   // 1, 2 or 4 matrices
  bool trans;  // registers hold columns instead of rows
};

// Lane 8 * q + r gives the shared offset of row r of matrix q (16 bytes, aligned to 16); register q
// receives two neighbouring elements of row lane / 4. `d` is [count] -> [32].
void ldmatrix(const MatrixForm& form, const uint32_t* offset, uint32_t* const* d,
              const SharedMemory& memory);

void stmatrix(const MatrixForm& form, const uint32_t* offset, const uint32_t* const* a,
              const SharedMemory& memory);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MATRIX_LDMATRIX_H_
