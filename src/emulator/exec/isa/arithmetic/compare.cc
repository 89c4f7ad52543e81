// Comparison and selection (PTX ISA, "Comparison and Selection Instructions"); halves are in
// compare_half.cc.

#include "emulator/exec/isa/arithmetic/compare.h"

#include <cmath>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <utility>

#include "emulator/exec/isa/arithmetic/families.h"
#include "emulator/exec/isa/lanes.h"

namespace warploom::emulator {
namespace {

struct Comparison {
  std::string_view name;
  uint8_t outcomes;  // for which it is true
};

constexpr Comparison kComparisons[] = {
    {"eq", kEqual},
    {"ne", kLess | kGreater},
    {"lt", kLess},
    {"le", kLess | kEqual},
    {"gt", kGreater},
    {"ge", kGreater | kEqual},
    {"lo", kLess},
    {"ls", kLess | kEqual},
    {"hi", kGreater},
    {"hs", kGreater | kEqual},
    {"equ", kEqual | kUnordered},
    {"neu", kLess | kGreater | kUnordered},
    {"ltu", kLess | kUnordered},
    {"leu", kLess | kEqual | kUnordered},
    {"gtu", kGreater | kUnordered},
    {"geu", kGreater | kEqual | kUnordered},
    {"num", kLess | kEqual | kGreater},
    {"nan", kUnordered},
};

}  // namespace

CompareForm take_comparison(Decoder& decoder) {
  CompareForm form;
  for (const Comparison& comparison : kComparisons) {
    if (decoder.modifiers.take(comparison.name)) {
      form.outcomes = comparison.outcomes;
      break;
    }
  }
  if (form.outcomes == 0) decoder.fail("it needs a comparison");
  form.combine = static_cast<Combine>(decoder.modifiers.take_one({"and", "or", "xor"}) + 1);
  return form;
}

void decode_compared(Decoder& decoder, const CompareForm& form, Type type) {
  bool combined = form.combine != Combine::kNone;
  decoder.expect_count(combined ? 4 : 3, combined ? 4 : 3);
  decoder.op.s[0] = decoder.source(decoder.operand(1), type);
  decoder.op.s[1] = decoder.source(decoder.operand(2), type);
  if (combined) decoder.op.s[2] = decoder.predicate(decoder.operand(3));
}

namespace {

template <class T>
uint32_t compare(Warp& warp, const Op& op, uint8_t outcomes) {
  const Storage<T>* a = warp.lanes<Storage<T>>(op.s[0]);
  const Storage<T>* b = warp.lanes<Storage<T>>(op.s[1]);
  uint32_t result = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    T x = unpack<T>(a[lane]);
    T y = unpack<T>(b[lane]);
    result |= static_cast<uint32_t>((outcomes & outcome_of(x, y)) != 0) << lane;
  }
  return result;
}

struct FlushedFloat {
  float value;
  friend bool operator<(FlushedFloat a, FlushedFloat b) { return a.get() < b.get(); }
  friend bool operator>(FlushedFloat a, FlushedFloat b) { return a.get() > b.get(); }
  friend bool operator==(FlushedFloat a, FlushedFloat b) { return a.get() == b.get(); }

 private:
  float get() const { return std::fabs(value) < 0x1p-126f ? 0.0f : value; }
};

using Compare = uint32_t (*)(Warp&, const Op&, uint8_t);

template <Compare kCompare>
Step setp(Warp& warp, const Op& op, uint32_t active) {
  const auto& form = *static_cast<const CompareForm*>(op.form);
  uint32_t result = kCompare(warp, op, form.outcomes);
  // The second destination gets the inverse comparison, combined with the same predicate.
  if (op.s[3].present()) {
    warp.set_predicate(op.s[3], combine(warp, op, form.combine, ~result), active);
  }
  if (op.d.present()) warp.set_predicate(op.d, combine(warp, op, form.combine, result), active);
  return Step::kNext;
}

template <Compare kCompare>
Step set(Warp& warp, const Op& op, uint32_t active) {
  const auto& form = *static_cast<const CompareForm*>(op.form);
  uint32_t result = combine(warp, op, form.combine, kCompare(warp, op, form.outcomes));
  uint32_t* d = warp.lanes<uint32_t>(op.d);
  for_each_lane(active, [&](int lane) { d[lane] = result >> lane & 1 ? form.true_value : 0; });
  return Step::kNext;
}

template <template <Compare> class Select>
Run select_compare(Type type, bool ftz) {
  Run run = nullptr;
  if (with_integer(type, [&](auto tag) {
        run = Select<compare<typename decltype(tag)::type>>::run;
      })) {
    return run;
  }
  switch (type) {
    case Type::kF32: return ftz ? Select<compare<FlushedFloat>>::run : Select<compare<float>>::run;
    case Type::kF64: return Select<compare<double>>::run;
    default: return nullptr;
  }
}

template <Compare kCompare>
struct SelectSetp {
  static constexpr Run run = setp<kCompare>;
};

template <Compare kCompare>
struct SelectSet {
  static constexpr Run run = set<kCompare>;
};

void decode_setp(Decoder& decoder) {
  CompareForm form = take_comparison(decoder);
  bool ftz = decoder.modifiers.take("ftz");
  Type type = decoder.modifiers.take_type();
  decode_compared(decoder, form, type);
  const ptx::Operand& destination = decoder.operand(0);
  decoder.op.d = decoder.destination(destination, 1);
  decoder.op.s[3] = decoder.second_destination(destination);
  decoder.form(form);
  decoder.op.run = select_compare<SelectSetp>(type, ftz);
  if (decoder.op.run == nullptr) decoder.fail("its type is not supported");
}

// What stands for true in a result, and its width; 0: there is no such result.
std::pair<uint32_t, int> true_value(Type result) {
  switch (result) {
    case Type::kU32: case Type::kS32: return {~0u, 32};
    case Type::kF32: return {0x3f800000u, 32};
    case Type::kF16: return {0x3c00u, 16};
    case Type::kBf16: return {0x3f80u, 16};
    default: return {0, 0};
  }
}

void decode_set(Decoder& decoder) {
  CompareForm form = take_comparison(decoder);
  bool ftz = decoder.modifiers.take("ftz");
  Type result = decoder.modifiers.take_type();
  Type type = decoder.modifiers.take_type();
  int width;
  std::tie(form.true_value, width) = true_value(result);
  if (width == 0) decoder.fail("its result is .u32, .s32, .f32, .f16 or .bf16");
  decode_compared(decoder, form, type);
  decoder.op.d = decoder.destination(decoder.operand(0), width);
  decoder.form(form);
  decoder.op.run = select_compare<SelectSet>(type, ftz);
  if (decoder.op.run == nullptr) decoder.fail("its type is not supported");
}

template <class S>
Step select_value(Warp& warp, const Op& op, uint32_t active) {
  uint32_t choice = warp.predicate(op.s[2]);
  S* d = warp.lanes<S>(op.d);
  const S* a = warp.lanes<S>(op.s[0]);
  const S* b = warp.lanes<S>(op.s[1]);
  for (int lane = 0; lane < kLanes; ++lane) {
    S chosen = choice >> lane & 1 ? a[lane] : b[lane];
    d[lane] = active >> lane & 1 ? chosen : d[lane];
  }
  return Step::kNext;
}

void decode_selp(Decoder& decoder) {
  Type type = decoder.modifiers.take_type();
  decoder.expect_count(4, 4);
  decoder.op.d = decoder.destination(decoder.operand(0), type_bits(type));
  decoder.op.s[0] = decoder.source(decoder.operand(1), type);
  decoder.op.s[1] = decoder.source(decoder.operand(2), type);
  decoder.op.s[2] = decoder.predicate(decoder.operand(3));
  decoder.op.run = type_bits(type) == 64 ? select_value<uint64_t> : select_value<uint32_t>;
}

// a if c is not negative, else b; NaN counts as negative, -0 does not.
template <class S, class C>
Step select_by_sign(Warp& warp, const Op& op, uint32_t active) {
  const bool flush = op.flag != 0;
  const uint32_t* control = warp.lanes<uint32_t>(op.s[2]);
  for_each_lane(active, [&](int lane) {
    C c = unpack<C>(control[lane]);
    if (flush && static_cast<float>(c) > -0x1p-126f) c = C{} > c ? C{} : c;
    warp.lanes<S>(op.d)[lane] = warp.lanes<S>(op.s[c >= 0 ? 0 : 1])[lane];
  });
  return Step::kNext;
}

void decode_slct(Decoder& decoder) {
  decoder.op.flag = decoder.modifiers.take("ftz") ? 1 : 0;
  Type type = decoder.modifiers.take_type();
  Type control = decoder.modifiers.take_type();
  bool number = control == Type::kF32;
  if ((!number && control != Type::kS32) || type_bits(type) < 16) {
    decoder.fail("it needs a type of 16 bits or more, and .s32 or .f32");
  }
  decoder.expect_count(4, 4);
  decoder.op.d = decoder.destination(decoder.operand(0), type_bits(type));
  decoder.op.s[0] = decoder.source(decoder.operand(1), type);
  decoder.op.s[1] = decoder.source(decoder.operand(2), type);
  decoder.op.s[2] = decoder.source(decoder.operand(3), control);
  bool wide = type_bits(type) == 64;
  decoder.op.run = number ? (wide ? select_by_sign<uint64_t, float>
                                  : select_by_sign<uint32_t, float>)
                          : (wide ? select_by_sign<uint64_t, int32_t>
                                  : select_by_sign<uint32_t, int32_t>);
}

}  // namespace

void add_compare_ops(DecodeTable& table) {
  table["setp"] = decode_setp;
  table["set"] = decode_set;
  table["selp"] = decode_selp;
  table["slct"] = decode_slct;
}

}  // namespace warploom::emulator
