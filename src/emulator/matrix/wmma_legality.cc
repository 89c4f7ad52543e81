#include "emulator/matrix/wmma_legality.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "emulator/base/fault.h"
#include "emulator/matrix/element.h"

namespace warploom::emulator {
namespace {

constexpr Type kNone = Type::kNone;

struct Family {
  Type operands[2];      // either, for both A and B; kNone where there is only one
  Type accumulators[2];  // likewise; of f16 and f32, c and d are chosen freely
  WmmaShape shapes[3];   // m 0: none
  bool row_col;          // A is row-major and B column-major
};

constexpr Family kFamilies[] = {
    {{Type::kF16, kNone},
     {Type::kF32, Type::kF16},
     {{16, 16, 16}, {8, 32, 16}, {32, 8, 16}},
     false},
    {{Type::kBf16, kNone}, {Type::kF32, kNone}, {{16, 16, 16}, {8, 32, 16}, {32, 8, 16}}, false},
    {{Type::kS8, Type::kU8}, {Type::kS32, kNone}, {{16, 16, 16}, {8, 32, 16}, {32, 8, 16}}, false},
    {{Type::kTf32, kNone}, {Type::kF32, kNone}, {{16, 16, 8}}, false},
    {{Type::kF64, kNone}, {Type::kF64, kNone}, {{8, 8, 4}}, false},
    {{Type::kS4, Type::kU4}, {Type::kS32, kNone}, {{8, 8, 32}}, true},
    {{Type::kB1, kNone}, {Type::kS32, kNone}, {{8, 8, 128}}, true},
};

constexpr bool has(const Type (&types)[2], Type type) {
  return type != kNone && (types[0] == type || types[1] == type);
}

bool has_shape(const Family& family, const WmmaShape& shape) {
  return std::any_of(std::begin(family.shapes), std::end(family.shapes),
                     [&](const WmmaShape& known) { return known.m != 0 && known == shape; });
}

std::string name_of(const WmmaShape& shape) {
  return "m" + std::to_string(shape.m) + "n" + std::to_string(shape.n) + "k" +
         std::to_string(shape.k);
}

void add_shapes(const Family& family, std::string& names) {
  for (const WmmaShape& shape : family.shapes) {
    const std::string name = name_of(shape);
    if (shape.m == 0 || names.find(name) != std::string::npos) continue;
    names += (names.empty() ? "" : ", ") + name;
  }
}

const char* name_of(WmmaOperand operand) {
  return operand == WmmaOperand::kA ? "A" : operand == WmmaOperand::kB ? "B" : "C or D";
}

// The layout that a family prescribes.
void check_layout(const Family& family, const WmmaShape& shape, WmmaOperand operand,
                  bool column_major) {
  if (!family.row_col || operand == WmmaOperand::kC) return;
  if (column_major != (operand == WmmaOperand::kB)) {
    fault("wmma with shape %s has %s %s only", name_of(shape).c_str(), name_of(operand),
          operand == WmmaOperand::kA ? "row-major" : "column-major");
  }
}

}  // namespace

void check_wmma(const WmmaTransfer& transfer) {
  std::string shapes;
  for (const Family& family : kFamilies) {
    const bool accumulator = transfer.operand == WmmaOperand::kC;
    if (!has(accumulator ? family.accumulators : family.operands, transfer.type)) continue;
    if (has_shape(family, transfer.shape)) {
      return check_layout(family, transfer.shape, transfer.operand, transfer.column_major);
    }
    add_shapes(family, shapes);
  }
  fault("wmma has no matrix %s of %s with shape %s: allowed are %s", name_of(transfer.operand),
        std::string(type_name(transfer.type)).c_str(), name_of(transfer.shape).c_str(),
        shapes.empty() ? "none" : shapes.c_str());
}

void check_wmma(const WmmaForm& form) {
  const auto name = [](Type type) { return std::string(type_name(type)); };
  const Family* family =
      std::find_if(std::begin(kFamilies), std::end(kFamilies),
                   [&](const Family& known) { return has(known.operands, form.operand); });
  if (family == std::end(kFamilies) || !has(family->accumulators, form.d) ||
      !has(family->accumulators, form.c)) {
    fault("wmma.mma of %s with %s added and %s as result does not exist",
          name(form.operand).c_str(), name(form.c).c_str(), name(form.d).c_str());
  }
  if (!has_shape(*family, form.shape)) {
    std::string shapes;
    add_shapes(*family, shapes);
    fault("wmma.mma of %s has no shape %s: allowed are %s", name(form.operand).c_str(),
          name_of(form.shape).c_str(), shapes.c_str());
  }
  check_layout(*family, form.shape, WmmaOperand::kA, form.a_column_major);
  check_layout(*family, form.shape, WmmaOperand::kB, form.b_column_major);
  if (form.satfinite && (!is_integer_element(form.operand) || form.operand == Type::kB1)) {
    fault("wmma.mma has .satfinite for integers of 4 and 8 bits only");
  }
  if ((form.operand == Type::kB1) != (form.bits != BitOperation::kNone)) {
    fault(form.operand == Type::kB1 ? "wmma.mma of b1 needs .xor.popc or .and.popc"
                                    : "wmma.mma has .xor.popc and .and.popc for b1 only");
  }
}

}  // namespace warploom::emulator
