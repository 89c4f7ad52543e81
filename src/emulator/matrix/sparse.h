// A sparse A: which elements of K those that it holds are, and the products with them (PTX ISA,
// "Sparse matrix storage").

#ifndef WARPLOOM_EMULATOR_MATRIX_SPARSE_H_
#define WARPLOOM_EMULATOR_MATRIX_SPARSE_H_

#include <cstdint>

#include "emulator/matrix/sum_rule.h"
#include "emulator/ptx/types.h"

namespace warploom::emulator {

// For the 16 rows of a warp, the element of K that each held element stands for.
struct SparseIndices {
  static constexpr int kMostHeld = 64;
  uint8_t k[16][kMostHeld];
};

// Of A with `k` elements in a row, half of them held, from the metadata of the 32 lanes, some of
// which `selector` picks. A Fault for metadata that names an element twice or none.
SparseIndices sparse_indices(Type a, int k, int selector, bool ordered, const uint32_t* metadata);

// What 16 rows of A give with the columns of B, added to `sum` by the rule; without one, in float
// and in the order of K.
struct SparseProduct {
  int n;
  int held;        // elements of a row of A
  int k;           // of a column of B
  const float* a;  // [16][held]
  const float* b;  // [n][k]
  const SparseIndices* indices;
  SumRule rule;
};

// The sum of one row and one column, which starts from `start`.
uint32_t sparse_sum(const SparseProduct& product, int row, int column, uint32_t start);

// The same for 8-bit floats of mma.sp, in the two products that they are multiplied in.
uint32_t sparse_sum_of_halves(const SparseProduct& product, int row, int column, uint32_t start);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MATRIX_SPARSE_H_
