// The sum of one output by a SumRule, term by term: for any operands, and for few.

#ifndef WARPLOOM_EMULATOR_MATRIX_EXACT_SUM_H_
#define WARPLOOM_EMULATOR_MATRIX_EXACT_SUM_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "emulator/format/float16.h"
#include "emulator/matrix/sum_rule.h"

namespace warploom::emulator {

// Exponents of zero and of what is not finite: sums with those of numbers stay recognisable, and a
// product of zero and infinity counts as not finite.
constexpr int32_t kZero = -4000;
constexpr int32_t kNotFinite = 10000;
constexpr int32_t kNoTerm = -3000;  // below: all terms are zero
constexpr int32_t kLeastF32 = -126;

inline int32_t exponent_of(uint32_t bits, int32_t least) {
  const auto field = static_cast<int32_t>(bits >> 23 & 0xff);
  const int32_t number = std::max(field - 127, least);
  return field == 0xff ? kNotFinite : (bits << 1) == 0 ? kZero : number;
}

// The sum of one output, for any operands.
class ExactSum {
 public:
  explicit ExactSum(const SumRule& rule) : rule_(rule) {}

  void find(float a, float b) {
    exponent_ = std::max(exponent_, exponent_of(float_bits(a), rule_.least_a) +
                                        exponent_of(float_bits(b), rule_.least_b));
    total_ += static_cast<double>(a) * b;
  }

  void find(float c) {
    exponent_ = std::max(exponent_, exponent_of(float_bits(c), kLeastF32));
    total_ += c;
  }

  // Each term once more, after the exponent is known.
  void add(double term) {
    if (exponent_ > kNoTerm && exponent_ < kNotFinite / 2) {
      sum_ += static_cast<int64_t>(std::ldexp(term, rule_.kept - exponent_));
    }
  }

  uint32_t result() const {
    if (exponent_ <= kNoTerm) return 0;
    if (exponent_ >= kNotFinite / 2) {
      return std::isnan(total_) ? 0x7fffffffu : float_bits(static_cast<float>(total_));
    }
    auto magnitude = static_cast<uint64_t>(std::abs(sum_));
    int extra = 0;
    while (magnitude >> extra >> rule_.significant != 0) ++extra;
    const uint64_t lost = magnitude & ((uint64_t{1} << extra) - 1);
    magnitude -= lost;
    if (rule_.sticky && lost != 0) magnitude |= uint64_t{1} << extra;
    const double exact = std::ldexp(static_cast<double>(magnitude), exponent_ - rule_.kept);
    auto value = static_cast<float>(exact);
    if (std::isfinite(value) && value > exact) value = std::nextafter(value, 0.0f);
    return float_bits(sum_ < 0 ? -value : value);
  }

 private:
  const SumRule& rule_;
  int32_t exponent_ = 2 * kZero;
  int64_t sum_ = 0;
  double total_ = 0;  // which is not finite if a term is not
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MATRIX_EXACT_SUM_H_
