#include <algorithm>
#include <cmath>
#include <cstring>

#include "emulator/matrix/mma.h"

namespace warploom::emulator {
namespace {

constexpr int kLanes = 32;

double value_of(uint64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Of several NaN, that of b is kept, else that of c.
double multiply_add(double a, double b, double c) {
  if (std::isnan(b)) return b + b;
  if (std::isnan(c)) return c + c;
  if (std::isnan(a)) return a + a;
  return std::fma(a, b, c);
}

}  // namespace

void mma_sync_double(const MmaForm& form, uint64_t* const* d, const uint64_t* const* a,
                     const uint64_t* const* b, const uint64_t* const* c) {
  constexpr int kMostRegisters = 4;
  const int halves = form.m / 8;
  uint64_t result[kMostRegisters][kLanes];
  for (int i = 0; i < 2 * halves; ++i) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const int row = lane / 4, column = lane % 4 * 2 + i % 2, half = i / 2;
      double sum = value_of(c[i][lane]);
      for (int k = 0; k < form.k; ++k) {
        const uint64_t left = a[k / 4 * halves + half][4 * row + k % 4];
        const uint64_t right = b[k / 4][4 * column + k % 4];
        sum = multiply_add(value_of(left), value_of(right), sum);
      }
      std::memcpy(&result[i][lane], &sum, sizeof(sum));
    }
  }
  for (int i = 0; i < 2 * halves; ++i) std::copy_n(result[i], kLanes, d[i]);
}

}  // namespace warploom::emulator
