// wmma on the registers of a warp: where the elements of a fragment are, and the product.
//
// Which lane holds which element is not specified. Here a fragment consists of those of mma.sync: A
// of one block of 16 rows, or two; B of one block of 8 columns, or two. Of shape m8n32k16 it is the
// transpose, the product of 32 rows of B by 8 columns of A. So sums are those of mma.sync, too.

#ifndef WARPLOOM_EMULATOR_MATRIX_WMMA_H_
#define WARPLOOM_EMULATOR_MATRIX_WMMA_H_

#include <cstdint>
#include <vector>

#include "emulator/matrix/wmma_legality.h"

namespace warploom::emulator {

constexpr int kMostWmmaRegisters = 8;

// Bits of an element in memory, of operands and accumulators.
int wmma_element_bits(Type type);

// Registers of a fragment: of 64 bits if its elements are f64, else of 32.
int wmma_registers(WmmaOperand operand, const WmmaShape& shape, Type type);

// Bytes of a register that lie together in memory, too.
struct WmmaPiece {
  uint8_t lane;
  uint8_t reg;
  uint8_t first;     // byte of the register
  uint8_t bytes;
  uint16_t line;     // row of a row-major matrix, column of another
  uint16_t in_line;  // byte where it begins in its row or column
};

// Where the elements of a fragment are. Of f16, A and B have eight registers whether or not they
// need them: the others repeat the first ones.
std::vector<WmmaPiece> wmma_pieces(const WmmaTransfer& transfer);

// Rows of a row-major matrix, columns of another, and the length of each.
struct WmmaLines {
  int count;
  int elements;
};
WmmaLines wmma_lines(const WmmaTransfer& transfer);

// d = a * b + c, one warp; operands are registers -> [32], and d may be any of them.
void wmma_multiply(const WmmaForm& form, uint32_t* const* d, const uint32_t* const* a,
                   const uint32_t* const* b, const uint32_t* const* c);
void wmma_multiply_double(uint64_t* const* d, const uint64_t* const* a, const uint64_t* const* b,
                          const uint64_t* const* c);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MATRIX_WMMA_H_
