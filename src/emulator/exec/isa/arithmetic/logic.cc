// Logic, bit by bit (PTX ISA, "Logic and Shift Instructions").

#include <cstddef>
#include <cstdint>

#include "emulator/exec/isa/arithmetic/bits.h"
#include "emulator/exec/isa/arithmetic/families.h"
#include "emulator/exec/isa/lanes.h"

namespace warploom::emulator {
namespace {

struct And {
  template <class T>
  static T call(T a, T b) { return static_cast<T>(a & b); }
};

struct Or {
  template <class T>
  static T call(T a, T b) { return static_cast<T>(a | b); }
};

struct Xor {
  template <class T>
  static T call(T a, T b) { return static_cast<T>(a ^ b); }
};

struct Not {
  template <class T>
  static T call(T a) { return static_cast<T>(~a); }
};

struct LogicalNot {
  template <class T>
  static T call(T a) { return a == 0 ? 1 : 0; }
};

struct Logic3 {
  static uint32_t call(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t result = 0;
    for (uint32_t i = 0; i < 8; ++i) {
      if (table >> i & 1) {
        result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
      }
    }
    return result;
  }
};

// Predicates hold a bit a lane, so logic works on whole masks.
template <class F>
Step predicate_logic(Warp& warp, const Op& op, uint32_t active) {
  uint32_t a = warp.predicate(op.s[0]);
  uint32_t b = op.s[1].present() ? warp.predicate(op.s[1]) : 0;
  warp.set_predicate(op.d, F::call(a, b), active);
  return Step::kNext;
}

struct NotFirst {
  static uint32_t call(uint32_t a, uint32_t) { return ~a; }
};

template <class F>
void decode_logic(Decoder& decoder) {
  Type type = decoder.modifiers.take_type();
  decode_uniform(decoder, type, 2);
  if (type == Type::kPred) {
    decoder.op.run = predicate_logic<F>;
  } else if (!with_integer(type, [&](auto tag) {
               using T = typename decltype(tag)::type;
               decoder.op.run = apply<F, T, T, T>;
             })) {
    decoder.fail("its type is not supported");
  }
}

void decode_not(Decoder& decoder) {
  Type type = decoder.modifiers.take_type();
  decode_uniform(decoder, type, 1);
  if (type == Type::kPred) {
    decoder.op.run = predicate_logic<NotFirst>;
  } else if (!with_integer(type, [&](auto tag) {
               using T = typename decltype(tag)::type;
               decoder.op.run = apply<Not, T, T>;
             })) {
    decoder.fail("its type is not supported");
  }
}

void decode_cnot(Decoder& decoder) {
  Type type = take_bits(decoder, 16);
  decode_uniform(decoder, type, 1);
  with_integer(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    decoder.op.run = apply<LogicalNot, T, T>;
  });
}

struct Lop3Form {
  uint32_t table;
  bool all;  // the predicate is combined with "and", otherwise with "or"
  Ref with;
};

// The predicate p of "d|p" says whether the result is not zero, combined with another one.
Step logic3_with_predicate(Warp& warp, const Op& op, uint32_t active) {
  const auto& form = *static_cast<const Lop3Form*>(op.form);
  uint32_t set = 0;
  for_each_lane(active, [&](int lane) {
    uint32_t value = Logic3::call(warp.lanes<uint32_t>(op.s[0])[lane],
                                  warp.lanes<uint32_t>(op.s[1])[lane],
                                  warp.lanes<uint32_t>(op.s[2])[lane], form.table);
    if (op.d.present()) warp.lanes<uint32_t>(op.d)[lane] = value;
    set |= static_cast<uint32_t>(value != 0) << lane;
  });
  uint32_t other = warp.predicate(form.with);
  if (op.s[3].present()) {
    warp.set_predicate(op.s[3], form.all ? set & other : set | other, active);
  }
  return Step::kNext;
}

void decode_lop3(Decoder& decoder) {
  int combine = decoder.modifiers.take_one({"or", "and"});
  Type type = take_bits(decoder, 32);
  if (combine < 0) {
    decode_uniform(decoder, type, 4);
    decoder.op.run = apply<Logic3, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t>;
    return;
  }
  decoder.expect_count(6, 6);
  decoder.op.d = decoder.destination(decoder.operand(0), 32);
  decoder.op.s[3] = decoder.second_destination(decoder.operand(0));
  for (std::size_t i = 0; i < 3; ++i) {
    decoder.op.s[i] = decoder.source(decoder.operand(i + 1), type);
  }
  auto table = static_cast<uint32_t>(decoder.integer(decoder.operand(4)));
  decoder.form(Lop3Form{table, combine == 1, decoder.predicate(decoder.operand(5))});
  decoder.op.run = logic3_with_predicate;
}

}  // namespace

void add_logic_ops(DecodeTable& table) {
  table["and"] = decode_logic<And>;
  table["or"] = decode_logic<Or>;
  table["xor"] = decode_logic<Xor>;
  table["not"] = decode_not;
  table["cnot"] = decode_cnot;
  table["lop3"] = decode_lop3;
}

}  // namespace warploom::emulator
