// Products of single bits: how many of 32 at a time are set in both words, or in one of them.

#ifndef WARPLOOM_EMULATOR_MATRIX_BIT_PRODUCT_H_
#define WARPLOOM_EMULATOR_MATRIX_BIT_PRODUCT_H_

#include <cstdint>

namespace warploom::emulator {

// Set bits of the words of a row of A with those of a column of B.
inline uint32_t count_common_bits(const uint32_t* a, const uint32_t* b, int words) {
  uint32_t count = 0;
  for (int i = 0; i < words; ++i) count += static_cast<uint32_t>(__builtin_popcount(a[i] & b[i]));
  return count;
}

inline uint32_t count_different_bits(const uint32_t* a, const uint32_t* b, int words) {
  uint32_t count = 0;
  for (int i = 0; i < words; ++i) count += static_cast<uint32_t>(__builtin_popcount(a[i] ^ b[i]));
  return count;
}

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MATRIX_BIT_PRODUCT_H_
