#include "emulator/matrix/mma_legality.h"

#include <string>

#include "emulator/base/fault.h"
#include "emulator/matrix/element.h"

namespace warploom::emulator {
namespace {

constexpr int kN = 8;

struct Shape {
  int m;  // 0: none
  int k;
};

struct SparseShape {
  int k;  // 0: none
  int selectors;
};

// Operands of one family combine freely with each other.
struct Family {
  Type operands[2];      // kNone where there is only one
  Type accumulators[2];  // likewise; d and c are the same
  Shape dense[4];
  SparseShape sparse[2];  // with m of 16
};

constexpr Type kNone = Type::kNone;

constexpr Family kFamilies[] = {
    {{Type::kF16, kNone}, {Type::kF32, Type::kF16}, {{16, 8}, {16, 16}}, {{16, 4}, {32, 2}}},
    {{Type::kBf16, kNone}, {Type::kF32, kNone}, {{16, 8}, {16, 16}}, {{16, 4}, {32, 2}}},
    {{Type::kTf32, kNone}, {Type::kF32, kNone}, {{16, 4}, {16, 8}}, {{8, 4}, {16, 2}}},
    {{Type::kE4m3, Type::kE5m2}, {Type::kF32, kNone}, {{16, 16}, {16, 32}}, {{64, 1}}},
    {{Type::kE4m3, Type::kE5m2}, {Type::kF16, kNone}, {{16, 16}, {16, 32}}, {}},
    {{Type::kS8, Type::kU8}, {Type::kS32, kNone}, {{8, 16}, {16, 16}, {16, 32}},
     {{32, 2}, {64, 1}}},
    {{Type::kS4, Type::kU4}, {Type::kS32, kNone}, {{8, 32}, {16, 32}, {16, 64}},
     {{64, 2}, {128, 1}}},
    {{Type::kB1, kNone}, {Type::kS32, kNone}, {{8, 128}, {16, 128}, {16, 256}}, {}},
    {{Type::kF64, kNone}, {Type::kF64, kNone}, {{8, 4}, {16, 4}, {16, 8}, {16, 16}}, {}},
};

constexpr bool has(const Type (&types)[2], Type type) {
  return type != kNone && (types[0] == type || types[1] == type);
}

const Family* find_family(const MmaForm& form) {
  for (const Family& family : kFamilies) {
    if (has(family.operands, form.a) && has(family.operands, form.b) &&
        has(family.accumulators, form.d)) {
      return &family;
    }
  }
  return nullptr;
}

std::string shape_name(int m, int k) {
  return "m" + std::to_string(m) + "n" + std::to_string(kN) + "k" + std::to_string(k);
}

// What a family has instead of a shape that it has not.
std::string shapes_of(const Family& family, bool sparse) {
  std::string names;
  const auto add = [&](int m, int k) {
    if (k != 0) names += (names.empty() ? "" : ", ") + shape_name(m, k);
  };
  if (sparse) {
    for (const SparseShape& shape : family.sparse) add(16, shape.k);
  } else {
    for (const Shape& shape : family.dense) add(shape.m, shape.k);
  }
  return names.empty() ? "none" : names;
}

// How many selectors there are; 0 if there is no such shape.
int selectors_of(const Family& family, const MmaForm& form) {
  if (form.n != kN) return 0;
  if (form.sparse) {
    for (const SparseShape& shape : family.sparse) {
      if (form.m == 16 && shape.k == form.k) return shape.selectors;
    }
    return 0;
  }
  for (const Shape& shape : family.dense) {
    if (shape.m == form.m && shape.k == form.k) return 1;
  }
  return 0;
}

// f32 takes c of either type, f16 of its own only.
bool has_quarter(const MmaForm& form) {
  const bool f16_added = form.c == Type::kF16 && (form.d == Type::kF16 || form.d == Type::kF32);
  const bool f32_added = form.c == Type::kF32 && form.d == Type::kF32;
  return form.b == Type::kF16 && !form.sparse && (f16_added || f32_added);
}

}  // namespace

void check_mma(const MmaForm& form) {
  const auto name = [](Type type) { return std::string(type_name(type)); };
  const Family* family = find_family(form);
  const bool quarter = is_quarter(form) && has_quarter(form);
  if (!quarter && (family == nullptr || form.c != form.d)) {
    fault("mma of %s by %s with %s added and %s as result does not exist", name(form.a).c_str(),
          name(form.b).c_str(), name(form.c).c_str(), name(form.d).c_str());
  }
  const int selectors = quarter ? 1 : selectors_of(*family, form);
  if (selectors == 0) {
    fault("mma%s of %s accumulated in %s has no shape m%dn%dk%d: allowed are %s",
          form.sparse ? ".sp" : "", name(form.a).c_str(), name(form.d).c_str(), form.m, form.n,
          form.k, shapes_of(*family, form.sparse).c_str());
  }
  if (form.selector < 0 || form.selector >= selectors) {
    fault("mma.sp of %s with shape m%dn%dk%d has a sparsity selector of %d, it must be 0 to %d",
          name(form.a).c_str(), form.m, form.n, form.k, form.selector, selectors - 1);
  }
  if (form.satfinite && (!is_integer_element(form.a) || form.a == Type::kB1)) {
    fault("mma has .satfinite for integers of 4 and 8 bits only");
  }
  if (!quarter && (form.a_column_major || form.b_row_major)) {
    fault("mma of %s with shape m%dn%dk%d needs .row.col", name(form.a).c_str(), form.m, form.n,
          form.k);
  }
  if ((form.a == Type::kB1) != (form.bits != BitOperation::kNone)) {
    fault(form.a == Type::kB1 ? "mma of b1 needs .xor.popc or .and.popc"
                              : "mma has .xor.popc and .and.popc for b1 only");
  }
}

}  // namespace warploom::emulator
