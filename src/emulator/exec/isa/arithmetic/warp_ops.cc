// Communication within a warp: shfl, vote, match, redux, elect.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "emulator/exec/isa/arithmetic/families.h"
#include "emulator/exec/isa/lanes.h"
#include "emulator/format/float16.h"

namespace warploom::emulator {
namespace {

void take_sync(Decoder& decoder) {
  if (!decoder.modifiers.take("sync")) decoder.fail("only the .sync form is supported");
  decoder.op.flow = Flow::kSync;
}

// The predicate q of "d|q".
void set_second(Decoder& decoder) {
  decoder.op.s[3] = decoder.second_destination(decoder.operand(0));
}

enum ShuffleMode : uint8_t { kUp, kDown, kButterfly, kIndex };

Step shuffle(Warp& warp, const Op& op, uint32_t active) {
  std::array<uint32_t, kLanes> values;
  std::copy_n(warp.lanes<uint32_t>(op.s[0]), kLanes, values.begin());
  const uint32_t* amounts = warp.lanes<uint32_t>(op.s[1]);
  const uint32_t* controls = warp.lanes<uint32_t>(op.s[2]);
  std::array<uint32_t, kLanes> results;
  uint32_t in_range = 0;
  for_each_lane(active, [&](int index) {
    auto lane = static_cast<uint32_t>(index);
    uint32_t amount = amounts[lane] & 31;
    uint32_t segment = controls[lane] >> 8 & 31;
    uint32_t clamp = controls[lane] & 31;
    uint32_t most = (lane & segment) | (clamp & ~segment);
    uint32_t least = lane & segment;
    int32_t from = 0;
    bool valid = false;
    switch (op.flag) {
      case kUp:
        from = static_cast<int32_t>(lane) - static_cast<int32_t>(amount);
        valid = from >= static_cast<int32_t>(most);
        break;
      case kDown:
        from = static_cast<int32_t>(lane + amount);
        valid = from <= static_cast<int32_t>(most);
        break;
      case kButterfly:
        from = static_cast<int32_t>(lane ^ amount);
        valid = from <= static_cast<int32_t>(most);
        break;
      default:
        from = static_cast<int32_t>(least | (amount & ~segment));
        valid = from <= static_cast<int32_t>(most);
    }
    // What a lane holds that does not take part is undefined.
    const bool takes_part = !valid || (active >> from & 1) != 0;
    results[lane] =
        takes_part ? values[valid ? static_cast<uint32_t>(from) : lane] : kRegisterPoison;
    in_range |= static_cast<uint32_t>(valid) << lane;
  });
  uint32_t* d = warp.lanes<uint32_t>(op.d);
  for_each_lane(active, [&](int lane) { d[lane] = results[static_cast<std::size_t>(lane)]; });
  if (op.s[3].present()) warp.set_predicate(op.s[3], in_range, active);
  return Step::kNext;
}

void decode_shfl(Decoder& decoder) {
  take_sync(decoder);
  int mode = decoder.modifiers.take_one({"up", "down", "bfly", "idx"});
  Type type = decoder.modifiers.take_type();
  if (mode < 0 || type_bits(type) != 32) decoder.fail("its form is not supported");
  decoder.expect_count(5, 5);
  decoder.op.flag = static_cast<uint8_t>(mode);
  decoder.op.d = decoder.destination(decoder.operand(0), 32);
  set_second(decoder);
  decoder.op.s[0] = decoder.source(decoder.operand(1), type);
  decoder.op.s[1] = decoder.source(decoder.operand(2), Type::kU32);
  decoder.op.s[2] = decoder.source(decoder.operand(3), Type::kU32);
  decoder.op.members = decoder.source(decoder.operand(4), Type::kU32);
  decoder.op.run = shuffle;
}

enum VoteMode : uint8_t { kAll, kAny, kUniform, kBallot };

Step vote(Warp& warp, const Op& op, uint32_t active) {
  uint32_t votes = warp.predicate(op.s[0]) & active;
  if (op.flag == kBallot) {
    for_each_lane(active, [&](int lane) { warp.lanes<uint32_t>(op.d)[lane] = votes; });
    return Step::kNext;
  }
  bool result = op.flag == kAll   ? votes == active
                : op.flag == kAny ? votes != 0
                                  : votes == 0 || votes == active;
  warp.set_predicate(op.d, result ? kAllLanes : 0, active);
  return Step::kNext;
}

void decode_vote(Decoder& decoder) {
  take_sync(decoder);
  int mode = decoder.modifiers.take_one({"all", "any", "uni", "ballot"});
  if (mode < 0) decoder.fail("it needs a mode");
  decoder.modifiers.take_type();
  decoder.expect_count(3, 3);
  decoder.op.flag = static_cast<uint8_t>(mode);
  decoder.op.d = decoder.destination(decoder.operand(0), mode == kBallot ? 32 : 1);
  decoder.op.s[0] = decoder.predicate(decoder.operand(1));
  decoder.op.members = decoder.source(decoder.operand(2), Type::kU32);
  decoder.op.run = vote;
}

Step match(Warp& warp, const Op& op, uint32_t active) {
  std::array<uint32_t, kLanes> groups{};
  for_each_lane(active, [&](int lane) {
    for_each_lane(active, [&](int other) {
      if (warp.value(op.s[0], lane) == warp.value(op.s[0], other)) {
        groups[static_cast<std::size_t>(lane)] |= 1u << other;
      }
    });
  });
  bool all = groups[static_cast<std::size_t>(__builtin_ctz(active))] == active;
  for_each_lane(active, [&](int lane) {
    uint32_t group = groups[static_cast<std::size_t>(lane)];
    warp.lanes<uint32_t>(op.d)[lane] = op.flag == kAny ? group : all ? active : 0;
  });
  if (op.s[3].present()) warp.set_predicate(op.s[3], all ? kAllLanes : 0, active);
  return Step::kNext;
}

void decode_match(Decoder& decoder) {
  take_sync(decoder);
  int mode = decoder.modifiers.take_one({"all", "any"});
  if (mode < 0) decoder.fail("it needs .all or .any");
  Type type = decoder.modifiers.take_type();
  decoder.expect_count(3, 3);
  decoder.op.flag = static_cast<uint8_t>(mode);
  decoder.op.d = decoder.destination(decoder.operand(0), 32);
  set_second(decoder);
  decoder.op.s[0] = decoder.source(decoder.operand(1), type);
  decoder.op.members = decoder.source(decoder.operand(2), Type::kU32);
  decoder.op.run = match;
}

struct Sum {
  template <class T>
  static T call(T a, T b) {
    return static_cast<T>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
  }
};
struct Minimum {
  template <class T>
  static T call(T a, T b) { return std::min(a, b); }
};
struct Maximum {
  template <class T>
  static T call(T a, T b) { return std::max(a, b); }
};
struct And {
  template <class T>
  static T call(T a, T b) { return a & b; }
};
struct Or {
  template <class T>
  static T call(T a, T b) { return a | b; }
};
struct Xor {
  template <class T>
  static T call(T a, T b) { return a ^ b; }
};

template <class F, class T>
Step reduce(Warp& warp, const Op& op, uint32_t active) {
  const uint32_t* a = warp.lanes<uint32_t>(op.s[0]);
  int first = __builtin_ctz(active);
  auto result = static_cast<T>(a[first]);
  for_each_lane(active & ~(1u << first),
                [&](int lane) { result = F::call(result, static_cast<T>(a[lane])); });
  for_each_lane(active, [&](int lane) {
    warp.lanes<uint32_t>(op.d)[lane] = static_cast<uint32_t>(result);
  });
  return Step::kNext;
}

void decode_redux(Decoder& decoder) {
  take_sync(decoder);
  int mode = decoder.modifiers.take_one({"add", "min", "max", "and", "or", "xor"});
  Type type = decoder.modifiers.take_type();
  if (mode < 0 || is_float(type) || type_bits(type) != 32) {
    decoder.fail("its form is not supported");
  }
  static constexpr Run kSigned[] = {reduce<Sum, int32_t>,     reduce<Minimum, int32_t>,
                                    reduce<Maximum, int32_t>, reduce<And, int32_t>,
                                    reduce<Or, int32_t>,      reduce<Xor, int32_t>};
  static constexpr Run kUnsigned[] = {reduce<Sum, uint32_t>,     reduce<Minimum, uint32_t>,
                                      reduce<Maximum, uint32_t>, reduce<And, uint32_t>,
                                      reduce<Or, uint32_t>,      reduce<Xor, uint32_t>};
  decoder.expect_count(3, 3);
  decoder.op.d = decoder.destination(decoder.operand(0), 32);
  decoder.op.s[0] = decoder.source(decoder.operand(1), type);
  decoder.op.members = decoder.source(decoder.operand(2), Type::kU32);
  decoder.op.run = (is_signed(type) ? kSigned : kUnsigned)[mode];
}

enum FloatReduction : uint8_t { kMaximum = 1, kAbsolute = 2, kKeepsNan = 4 };

// A number wins over NaN, unless NaN is kept; -0 is less than +0.
float extremum(float a, float b, uint8_t flags) {
  if (std::isnan(a)) return flags & kKeepsNan ? a : b;
  if (std::isnan(b)) return flags & kKeepsNan ? b : a;
  bool maximum = flags & kMaximum;
  if (a == b) return std::signbit(a) == maximum ? b : a;
  return (a < b) == maximum ? b : a;
}

Step reduce_floats(Warp& warp, const Op& op, uint32_t active) {
  const uint32_t* a = warp.lanes<uint32_t>(op.s[0]);
  auto value = [&](int lane) {
    float x = bits_float(a[lane]);
    return op.flag & kAbsolute ? std::fabs(x) : x;
  };
  int first = __builtin_ctz(active);
  float result = value(first);
  for_each_lane(active & ~(1u << first),
                [&](int lane) { result = extremum(result, value(lane), op.flag); });
  uint32_t bits = std::isnan(result) ? 0x7fffffffu : float_bits(result);
  for_each_lane(active, [&](int lane) { warp.lanes<uint32_t>(op.d)[lane] = bits; });
  return Step::kNext;
}

void decode_redux_float(Decoder& decoder) {
  take_sync(decoder);
  int mode = decoder.modifiers.take_one({"min", "max"});
  if (mode < 0 || decoder.modifiers.take_type() != Type::kF32) {
    decoder.fail("with floats it is for .min.f32 and .max.f32");
  }
  uint8_t flags = mode == 1 ? kMaximum : 0;
  if (decoder.modifiers.take("abs")) flags |= kAbsolute;
  if (decoder.modifiers.take("NaN")) flags |= kKeepsNan;
  decoder.op.flag = flags;
  decoder.expect_count(3, 3);
  decoder.op.d = decoder.destination(decoder.operand(0), 32);
  decoder.op.s[0] = decoder.source(decoder.operand(1), Type::kF32);
  decoder.op.members = decoder.source(decoder.operand(2), Type::kU32);
  decoder.op.run = reduce_floats;
}

// The leader is the lowest lane: PTX leaves the choice open, but it is always the same one.
Step elect(Warp& warp, const Op& op, uint32_t active) {
  auto leader = static_cast<uint32_t>(__builtin_ctz(active));
  if (op.d.present()) {
    for_each_lane(active, [&](int lane) { warp.lanes<uint32_t>(op.d)[lane] = leader; });
  }
  if (op.s[3].present()) warp.set_predicate(op.s[3], 1u << leader, active);
  return Step::kNext;
}

void decode_elect(Decoder& decoder) {
  take_sync(decoder);
  decoder.expect_count(2, 2);
  decoder.op.d = decoder.destination(decoder.operand(0), 32);
  set_second(decoder);
  decoder.op.members = decoder.source(decoder.operand(1), Type::kU32);
  decoder.op.run = elect;
}

}  // namespace

void add_warp_ops(DecodeTable& table) {
  table["shfl"] = decode_shfl;
  table["vote"] = decode_vote;
  table["match"] = decode_match;
  table["redux"] = decode_redux;
  table["redux:f"] = decode_redux_float;
  table["elect"] = decode_elect;
}

}  // namespace warploom::emulator
