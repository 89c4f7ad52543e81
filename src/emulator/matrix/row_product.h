// The inner loops of tcgen05.mma: D += A * B on rows, which is how tensor memory keeps D.

#ifndef WARPLOOM_EMULATOR_MATRIX_ROW_PRODUCT_H_
#define WARPLOOM_EMULATOR_MATRIX_ROW_PRODUCT_H_

#include <cstdint>
#include <vector>

namespace warploom::emulator {

// A sum is formed in float in the order of k, starting from what D holds, with one rounding to
// nearest for each term. How a tensor core of sm_100 rounds in between is not documented; its
// results may differ in the last bits.
struct RowProduct {
  int rows;
  int columns;  // a multiple of 8
  int k;
  const float* const* a;  // [rows] -> [k]
  const float* b;         // [k][b_stride], of which `columns` are used
  int b_stride;
  uint32_t* const* d;     // [rows] -> [columns], the bits of floats
};

// d[column] += sum[column] * row_scale * column_scale[column]. Everything but the addition is
// exact in double; its result is rounded to float.
struct ScaledRow {
  int columns;
  const uint32_t* sum;  // the bits of floats, as is d
  double row_scale;
  const double* column_scale;
  uint32_t* d;
};

// The loops for one instruction set. All give the same bits, as long as no product of two elements
// leaves the range of normal floats.
struct RowKernel {
  const char* name;
  void (*multiply)(const RowProduct&);
  void (*add_scaled)(const ScaledRow&);
};

// Those that may be used (instruction_set.h), the one with the widest vectors first.
const std::vector<RowKernel>& row_kernels();

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MATRIX_ROW_PRODUCT_H_
