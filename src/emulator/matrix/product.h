// The inner loops of every matrix instruction: D += A * B^T in the order of the registers.
//
// The accumulator of mma.m16n8 and of wgmma gives each warp 16 rows, and lane l of a register the
// row l / 4 of one half of them and one of four columns. Operands are expanded to that order once,
// so that a register of 32 lanes is a vector and no fragment has to be unpacked or packed.

#ifndef WARPLOOM_EMULATOR_MATRIX_PRODUCT_H_
#define WARPLOOM_EMULATOR_MATRIX_PRODUCT_H_

#include <cstdint>
#include <vector>

#include "emulator/matrix/sum_rule.h"

namespace warploom::emulator {

// Without a rule, a sum is formed in float in the order of k, starting from the accumulator. Sums
// of integers that start from zero are exact: 32 products of 8 bits, and 64 of 4, stay below 2^24.
struct Product {
  static constexpr int kMaxK = 64;

  int warps;  // 1 or 4
  int n;      // a multiple of 8
  int k;      // at most kMaxK
  const float* a;      // [warps][2 halves][k][32]: row 16 * warp + 8 * half + lane / 4
  const float* b;      // [n / 8][k][2][4]: column 8 * block + 2 * index + parity; 8 more are read
  uint32_t* const* d;  // [n / 8][2 halves][2 parities][warps] -> [32], the bits of floats
  SumRule rule;

  // Places of four equal values in `a` (of 8 rows, warp and half in one number) and of one in `b`.
  static constexpr int a_index(int eight_rows, int k_extent, int row, int k_index) {
    return (eight_rows * k_extent + k_index) * 32 + 4 * row;
  }
  static constexpr int b_index(int block, int k_extent, int column, int k_index) {
    return (block * k_extent + k_index) * 8 + column % 2 * 4 + column / 2;
  }
};

// The same loops for one instruction set. All give the same bits, as long as no product of two
// elements leaves the range of normal floats: it is exact then, whether or not it is fused.
struct ProductKernel {
  const char* name;
  void (*run)(const Product&);
};

// Those that may be used (instruction_set.h), the one with the widest vectors first.
const std::vector<ProductKernel>& product_kernels();

// Runs the first of them.
void multiply(const Product& product);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MATRIX_PRODUCT_H_
