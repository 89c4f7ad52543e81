#include "emulator/matrix/sum_rule.h"

#include "emulator/format/float_format.h"
#include "emulator/matrix/element.h"

namespace warploom::emulator {
namespace {

constexpr int kKept = 25;
constexpr int kKeptOf8Bits = 13;
constexpr int kSignificant = 24;
constexpr int kSignificantOf8Bits = 14;

bool has_8_bits(Type type) { return type == Type::kE4m3 || type == Type::kE5m2; }

int least_exponent(Type type) { return 1 - float_format(type)->bias; }

}  // namespace

SumRule wgmma_sum_rule(Type a, Type b, Type d) {
  if (is_integer_element(a)) return {};
  const bool narrow = has_8_bits(a), sticky = d == Type::kF16;
  return {narrow ? kKeptOf8Bits : kKept, narrow && !sticky ? kSignificantOf8Bits : kSignificant,
          sticky, least_exponent(a), least_exponent(b)};
}

SumRule mma_sum_rule(Type a, Type b, Type d) {
  if (is_integer_element(a)) return {};
  const auto least = [](Type type) { return least_exponent(has_8_bits(type) ? Type::kF16 : type); };
  return {kKept, kSignificant, d == Type::kF16, least(a), least(b)};
}

}  // namespace warploom::emulator
