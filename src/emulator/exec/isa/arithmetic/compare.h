// What setp and set of all types share.

#ifndef WARPLOOM_EMULATOR_EXEC_ISA_ARITHMETIC_COMPARE_H_
#define WARPLOOM_EMULATOR_EXEC_ISA_ARITHMETIC_COMPARE_H_

#include <cstdint>

#include "emulator/exec/isa/decoder.h"
#include "emulator/exec/machine/warp.h"

namespace warploom::emulator {

// Outcome of comparing two numbers, as a bit.
enum Outcome : uint8_t { kLess = 1, kEqual = 2, kGreater = 4, kUnordered = 8 };

template <class T>
Outcome outcome_of(const T& x, const T& y) {
  return x < y ? kLess : x == y ? kEqual : x > y ? kGreater : kUnordered;
}

enum class Combine : uint8_t { kNone, kAnd, kOr, kXor };

struct CompareForm {
  uint8_t outcomes = 0;  // for which the comparison is true
  Combine combine = Combine::kNone;
  uint32_t true_value = 0;  // of set
};

// Takes the comparison, and the operation that combines its result with a predicate.
CompareForm take_comparison(Decoder& decoder);

// Decodes the sources a and b, and the predicate that the result is combined with.
void decode_compared(Decoder& decoder, const CompareForm& form, Type type);

// The results of the lanes, combined with the predicate that is the third source.
inline uint32_t combine(const Warp& warp, const Op& op, Combine how, uint32_t result) {
  if (how == Combine::kNone) return result;
  uint32_t c = warp.predicate(op.s[2]);
  return how == Combine::kAnd ? result & c : how == Combine::kOr ? result | c : result ^ c;
}

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_ISA_ARITHMETIC_COMPARE_H_
