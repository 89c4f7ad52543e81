#include "emulator/tensor/umma_legality.h"

#include <cstddef>
#include <string>

#include "emulator/base/fault.h"

namespace warploom::emulator {
namespace {

constexpr Type kNone = Type::kNone;
constexpr std::array<Type, 8> kNarrow = {Type::kE4m3, Type::kE5m2, kNone, Type::kE2m3,
                                         Type::kE3m2, Type::kE2m1, kNone, kNone};
// Without a field for it, the accumulator is f32.
constexpr std::array<Type, 4> kF32Only = {Type::kF32};

// By UmmaKind. Columns: name, K, operands, accumulators, transposes, negates, scales_input,
// weight_stationary, block_scaled.
constexpr std::array<UmmaKindFacts, 7> kKinds = {{
    {"f16", 16, {Type::kF16, Type::kBf16}, {Type::kF16, Type::kF32},
     true, true, true, true, false},
    {"tf32", 8, {kNone, kNone, Type::kTf32}, {kNone, Type::kF32}, true, true, true, true, false},
    {"f8f6f4", 32, kNarrow, {Type::kF16, Type::kF32}, true, true, false, true, false},
    {"i8", 32, {Type::kU8, Type::kS8}, {kNone, kNone, Type::kS32},
     true, false, false, true, false},
    {"mxf8f6f4", 32, kNarrow, kF32Only, true, true, false, false, true},
    {"mxf4", 64, {kNone, Type::kE2m1}, kF32Only, false, true, false, false, true},
    {"mxf4nvf4", 64, {kNone, Type::kE2m1}, kF32Only, false, true, false, false, true},
}};

constexpr UmmaScaleRule kScales[] = {
    {UmmaKind::kMxf8f6f4, 1, true, false},
    {UmmaKind::kMxf4, 2, true, false},
    {UmmaKind::kMxf4nvf4, 2, true, false},
    {UmmaKind::kMxf4nvf4, 4, true, true},
};

enum class Family { kFloat, kInteger, kScaled };

struct Shapes {
  Family family;
  int cta_group;
  bool weight_stationary;
  int m[3];      // 0: none
  int n_step;    // multiples up to 256
  int n_extra[2];
  bool doubles;  // only n_step times 1, 2, 4, ...
};

constexpr Shapes kShapes[] = {
    {Family::kFloat, 1, false, {64, 128}, 8, {}, false},
    {Family::kFloat, 2, false, {128, 256}, 16, {}, false},
    {Family::kFloat, 1, true, {32, 64, 128}, 64, {}, true},
    {Family::kInteger, 1, false, {64, 128}, 16, {8, 24}, false},
    {Family::kInteger, 2, false, {128, 256}, 32, {}, false},
    {Family::kInteger, 1, true, {32, 64, 128}, 64, {}, true},
    {Family::kScaled, 1, false, {128}, 8, {}, false},
    {Family::kScaled, 2, false, {128, 256}, 16, {}, false},
};

Family family_of(UmmaKind kind) {
  if (kind == UmmaKind::kI8) return Family::kInteger;
  return umma_kind_facts(kind).block_scaled ? Family::kScaled : Family::kFloat;
}

bool has_n(const Shapes& shapes, int n) {
  if (n == shapes.n_extra[0] || n == shapes.n_extra[1]) return n != 0;
  if (n < shapes.n_step || n > 256 || n % shapes.n_step != 0) return false;
  const int steps = n / shapes.n_step;
  return !shapes.doubles || (steps & (steps - 1)) == 0;
}

std::string describe(const Shapes& shapes) {
  std::string text = "M of";
  for (int m : shapes.m) {
    if (m != 0) text += " " + std::to_string(m);
  }
  text += " and N of ";
  const std::string step = std::to_string(shapes.n_step);
  if (shapes.doubles) return text + "64, 128 or 256";
  text += step + " to 256 in steps of " + step;
  for (int extra : shapes.n_extra) {
    if (extra != 0) text += " or " + std::to_string(extra);
  }
  return text;
}

}  // namespace

const UmmaKindFacts& umma_kind_facts(UmmaKind kind) {
  return kKinds[static_cast<std::size_t>(kind)];
}

const UmmaScaleRule* umma_scale_rule(UmmaKind kind, int vectors) {
  for (const UmmaScaleRule& rule : kScales) {
    if (rule.kind == kind && rule.vectors == vectors) return &rule;
  }
  return nullptr;
}

void check_umma_shape(UmmaKind kind, int cta_group, bool weight_stationary, int m, int n) {
  for (const Shapes& shapes : kShapes) {
    if (shapes.family != family_of(kind) || shapes.cta_group != cta_group ||
        shapes.weight_stationary != weight_stationary) {
      continue;
    }
    const bool has_m = m != 0 && (m == shapes.m[0] || m == shapes.m[1] || m == shapes.m[2]);
    if (has_m && has_n(shapes, n)) return;
    fault("tcgen05.mma%s of kind::%s with cta_group::%d has no shape with M = %d and N = %d; it "
          "has %s",
          weight_stationary ? ".ws" : "", umma_kind_facts(kind).name, cta_group, m, n,
          describe(shapes).c_str());
  }
  fault("tcgen05.mma%s of kind::%s does not exist with cta_group::%d",
        weight_stationary ? ".ws" : "", umma_kind_facts(kind).name, cta_group);
}

}  // namespace warploom::emulator
