// Extended-precision arithmetic (PTX ISA, "Extended-Precision Integer Arithmetic Instructions").
//
// The carry flag of each thread is a predicate register that no program can name.

#include <cstdint>
#include <type_traits>

#include "emulator/exec/isa/arithmetic/families.h"
#include "emulator/exec/isa/lanes.h"

namespace warploom::emulator {
namespace {

__extension__ using Int128 = __int128;
__extension__ using Uint128 = unsigned __int128;

struct CarryForm {
  Ref carry;
  bool reads = false;
  bool writes = false;
};

struct Sum {
  template <class T>
  static T call(T a, T b, T, bool in, bool& out) {
    T result = static_cast<T>(a + b + (in ? 1 : 0));
    out = result < a || (in && result == a);
    return result;
  }
};

struct Difference {
  template <class T>
  static T call(T a, T b, T, bool in, bool& out) {
    out = a < b || (in && a == b);
    return static_cast<T>(a - b - (in ? 1 : 0));
  }
};

// T is signed where the product's upper half is that of a signed product.
template <class T, bool kHigh>
struct MultiplySum {
  template <class U>
  static U call(U a, U b, U c, bool in, bool& out) {
    using Wide = std::conditional_t<std::is_signed_v<T>, Int128, Uint128>;
    Wide product = static_cast<Wide>(static_cast<T>(a)) * static_cast<Wide>(static_cast<T>(b));
    auto part = static_cast<U>(kHigh ? product >> (8 * sizeof(U)) : product);
    return Sum::call<U>(part, c, U{0}, in, out);
  }
};

template <class F, class U>
Step with_carry(Warp& warp, const Op& op, uint32_t active) {
  const auto& form = *static_cast<const CarryForm*>(op.form);
  uint32_t in = form.reads ? warp.predicate(form.carry) : 0;
  uint32_t out = 0;
  const U* a = warp.lanes<U>(op.s[0]);
  const U* b = warp.lanes<U>(op.s[1]);
  const U* c = op.s[2].present() ? warp.lanes<U>(op.s[2]) : a;
  U* d = warp.lanes<U>(op.d);
  for_each_lane(active, [&](int lane) {
    bool carried = false;
    d[lane] = F::template call<U>(a[lane], b[lane], c[lane], in >> lane & 1, carried);
    out |= static_cast<uint32_t>(carried) << lane;
  });
  if (form.writes) warp.set_predicate(form.carry, out, active);
  return Step::kNext;
}

Type take_carry(Decoder& decoder, std::size_t sources, bool reads) {
  CarryForm form;
  form.carry = decoder.carry();
  form.reads = reads;
  form.writes = decoder.modifiers.take("cc");
  Type type = decoder.modifiers.take_type();
  bool fits = type == Type::kU32 || type == Type::kS32 || type == Type::kU64 || type == Type::kS64;
  if (!fits) decoder.fail("it needs .u32, .s32, .u64 or .s64");
  decode_uniform(decoder, type, sources);
  decoder.form(form);
  return type;
}

template <class F, bool kReads>
void decode_carry(Decoder& decoder) {
  Type type = take_carry(decoder, 2, kReads);
  decoder.op.run =
      type_bits(type) == 64 ? with_carry<F, uint64_t> : with_carry<F, uint32_t>;
}

template <bool kHigh>
Run select_multiply(Type type) {
  switch (type) {
    case Type::kU32: return with_carry<MultiplySum<uint32_t, kHigh>, uint32_t>;
    case Type::kS32: return with_carry<MultiplySum<int32_t, kHigh>, uint32_t>;
    case Type::kU64: return with_carry<MultiplySum<uint64_t, kHigh>, uint64_t>;
    default: return with_carry<MultiplySum<int64_t, kHigh>, uint64_t>;
  }
}

template <bool kReads>
void decode_multiply_carry(Decoder& decoder) {
  int half = decoder.modifiers.take_one({"lo", "hi"});
  if (half < 0) decoder.fail("it needs .lo or .hi");
  Type type = take_carry(decoder, 3, kReads);
  decoder.op.run = half == 1 ? select_multiply<true>(type) : select_multiply<false>(type);
}

}  // namespace

void add_carry_ops(DecodeTable& table) {
  table["add.cc"] = decode_carry<Sum, false>;
  table["sub.cc"] = decode_carry<Difference, false>;
  table["mad.cc"] = decode_multiply_carry<false>;
  table["addc"] = decode_carry<Sum, true>;
  table["subc"] = decode_carry<Difference, true>;
  table["madc"] = decode_multiply_carry<true>;
}

}  // namespace warploom::emulator
