// Products whose sums follow a SumRule, for one instruction set each. All give the same bits.

#ifndef WARPLOOM_EMULATOR_MATRIX_ALIGNED_PRODUCT_H_
#define WARPLOOM_EMULATOR_MATRIX_ALIGNED_PRODUCT_H_

#include "emulator/matrix/product.h"

namespace warploom::emulator {

void multiply_aligned_any(const Product& product);

#if defined(__x86_64__)
void multiply_aligned_avx2(const Product& product);
void multiply_aligned_avx512(const Product& product);
#endif

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MATRIX_ALIGNED_PRODUCT_H_
