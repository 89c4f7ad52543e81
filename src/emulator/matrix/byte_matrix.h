// ldmatrix and stmatrix of elements of 8 bits and fewer (PTX ISA, "Warp-level matrix load / store
// instruction"): rows are 16 bytes, which hold 16 elements.

#ifndef WARPLOOM_EMULATOR_MATRIX_BYTE_MATRIX_H_
#define WARPLOOM_EMULATOR_MATRIX_BYTE_MATRIX_H_

#include <cstdint>

#include "emulator/matrix/ldmatrix.h"

namespace warploom::emulator {

// Lane r gives the shared offset of row r, of all matrices together. Elements of `packed_bits` bits
// lie side by side at the start of a row, the rest of it is padding; in registers each has a byte.
//
// .m8n16: register q of a lane holds four neighbours of row lane / 4 of matrix q.
// .m16n16 .trans: registers 2 q and 2 q + 1 hold elements of the columns lane / 4 and lane / 4 + 8
// of matrix q, of two rows each.
void load_byte_matrix(const MatrixForm& form, const uint32_t* offset, uint32_t* const* d,
                      const SharedMemory& memory);

// .m16n8 .trans: register q holds elements of two columns of matrix q, which are rows in memory.
void store_byte_matrix(const MatrixForm& form, const uint32_t* offset, const uint32_t* const* a,
                       const SharedMemory& memory);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MATRIX_BYTE_MATRIX_H_
