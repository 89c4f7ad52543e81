#include "emulator/matrix/legality.h"

#include "emulator/matrix/element.h"

namespace warploom::emulator {
namespace {

// PTX ISA, table "Data-types and matrix shapes" of wgmma.mma_async.
constexpr OperandFamily kFamilies[] = {
    {{Type::kF16, Type::kNone}, {Type::kF32, Type::kF16}, 16, 2, true},
    {{Type::kBf16, Type::kNone}, {Type::kF32, Type::kNone}, 16, 2, true},
    {{Type::kTf32, Type::kNone}, {Type::kF32, Type::kNone}, 8, 2, false},
    {{Type::kE4m3, Type::kE5m2}, {Type::kF32, Type::kF16}, 32, 1, false},
    {{Type::kS8, Type::kU8}, {Type::kS32, Type::kNone}, 32, 1, false},
    {{Type::kB1, Type::kNone}, {Type::kS32, Type::kNone}, 256, 0, false},
};

constexpr bool has(const Type (&types)[2], Type type) {
  return type != Type::kNone && (types[0] == type || types[1] == type);
}

}  // namespace

const OperandFamily* operand_family(Type a, Type b, Type d) {
  for (const OperandFamily& family : kFamilies) {
    if (has(family.operands, a) && has(family.operands, b) && has(family.accumulators, d)) {
      return &family;
    }
  }
  return nullptr;
}

bool wgmma_has_width(const OperandFamily& family, int n) {
  if (n < 8 || n > 256 || n % 8 != 0) return false;
  // Integers skip the widths above 32 that are no multiple of 16.
  return !is_integer_element(family.operands[0]) || n % 16 == 0 || n == 8 || n == 24;
}

}  // namespace warploom::emulator
