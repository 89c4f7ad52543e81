// mov, cvta, mapa and other moves of values between registers.

#include "emulator/exec/isa/access.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "emulator/exec/isa/arithmetic/families.h"
#include "emulator/exec/isa/lanes.h"
#include "emulator/exec/machine/cluster.h"

namespace warploom::emulator {
namespace {

using ptx::Operand;
using ptx::Space;

struct Copy {
  template <class T>
  static T call(T a) { return a; }
};

Step move_predicate(Warp& warp, const Op& op, uint32_t active) {
  warp.set_predicate(op.d, warp.predicate(op.s[0]), active);
  return Step::kNext;
}

// The clock counts the instructions of the cluster, this one included: it tells what comes before
// what, and it measures no time. `flag` is the bit that the register begins with.
Step read_clock(Warp& warp, const Op& op, uint32_t active) {
  uint64_t clock = (warp.cluster().instructions() + warp.executed()) >> op.flag;
  for_each_lane(active, [&](int lane) { warp.set_value(op.d, lane, clock); });
  return Step::kNext;
}

Step read_active_mask(Warp& warp, const Op& op, uint32_t active) {
  for_each_lane(active, [&](int lane) { warp.set_value(op.d, lane, active); });
  return Step::kNext;
}

// mov.b32 d, {a, b}: element i goes to bits [i * flag, (i + 1) * flag).
Step pack_vector(Warp& warp, const Op& op, uint32_t active) {
  const Ref* refs = warp.program().refs.data() + op.first;
  uint64_t mask = (uint64_t{1} << op.flag) - 1;
  for_each_lane(active, [&](int lane) {
    uint64_t value = 0;
    for (uint32_t i = 0; i < op.count; ++i) {
      value |= (warp.value(refs[i], lane) & mask) << (i * op.flag);
    }
    warp.set_value(op.d, lane, value);
  });
  return Step::kNext;
}

Step unpack_vector(Warp& warp, const Op& op, uint32_t active) {
  const Ref* refs = warp.program().refs.data() + op.first;
  uint64_t mask = (uint64_t{1} << op.flag) - 1;
  for_each_lane(active, [&](int lane) {
    uint64_t value = warp.value(op.s[0], lane);
    for (uint32_t i = 0; i < op.count; ++i) {
      if (refs[i].present()) warp.set_value(refs[i], lane, value >> (i * op.flag) & mask);
    }
  });
  return Step::kNext;
}

Type element_type(Decoder& decoder, Type type, std::size_t count) {
  int bits = type_bits(type) / static_cast<int>(count);
  decoder.op.flag = static_cast<uint8_t>(bits);
  switch (bits) {
    case 8: return Type::kB8;
    case 16: return Type::kB16;
    case 32: return Type::kB32;
    default: decoder.fail("its vector is not supported");
  }
}

bool is_clock(const Operand& operand) {
  return operand.kind == Operand::kSpecial &&
         (operand.name == "%clock" || operand.name == "%clock64" || operand.name == "%clock_hi" ||
          operand.name == "%globaltimer" || operand.name == "%globaltimer_lo" ||
          operand.name == "%globaltimer_hi");
}

void decode_mov(Decoder& decoder) {
  Type type = decoder.modifiers.take_type();
  decoder.expect_count(2, 2);
  const Operand& to = decoder.operand(0);
  const Operand& from = decoder.operand(1);
  if (from.kind == Operand::kVector) {
    decoder.op.d = decoder.destination(to, type_bits(type));
    decoder.sources(from, element_type(decoder, type, from.elements.size()));
    decoder.op.run = pack_vector;
  } else if (to.kind == Operand::kVector) {
    decoder.op.s[0] = decoder.source(from, type);
    Type element = element_type(decoder, type, to.elements.size());
    decoder.destinations(to, type_bits(element));
    decoder.op.run = unpack_vector;
  } else if (is_clock(from)) {
    decoder.op.d = decoder.destination(to, type_bits(type));
    decoder.op.flag = from.name == "%clock_hi" || from.name == "%globaltimer_hi" ? 32 : 0;
    decoder.op.run = read_clock;
  } else {
    decode_uniform(decoder, type, 1);
    decoder.op.run = type == Type::kPred         ? move_predicate
                     : type_bits(type) == 64     ? apply<Copy, uint64_t, uint64_t>
                                                 : apply<Copy, uint32_t, uint32_t>;
  }
}

template <uint64_t kWindow>
struct ToGeneric {
  template <class T>
  static T call(T a) { return static_cast<T>(a | kWindow); }
};

struct FromGeneric {
  template <class T>
  static T call(T a) { return static_cast<T>(a & ~kWindowMask); }
};

void decode_cvta(Decoder& decoder) {
  bool from_generic = decoder.modifiers.take("to");
  Space space = take_space(decoder);
  Type type = decoder.modifiers.take_type();
  if (type_bits(type) != 64) decoder.fail("only 64-bit addresses are supported");
  decoder.expect_count(2, 2);
  decoder.op.d = decoder.destination(decoder.operand(0), 64);
  decoder.op.s[0] = decoder.source(decoder.operand(1), type);
  using U = uint64_t;
  bool windowed = space == Space::kShared || space == Space::kLocal;
  if (!windowed) {
    decoder.op.run = apply<Copy, U, U>;
  } else if (from_generic) {
    decoder.op.run = apply<FromGeneric, U, U>;
  } else {
    decoder.op.run = space == Space::kShared ? apply<ToGeneric<kSharedWindow>, U, U>
                                             : apply<ToGeneric<kLocalWindow>, U, U>;
  }
}

Step is_in_space(Warp& warp, const Op& op, uint32_t active) {
  uint32_t set = 0;
  for_each_lane(active, [&](int lane) {
    uint64_t address = warp.value(op.s[0], lane);
    uint64_t window = address & kWindowMask;
    Space space = window == kSharedWindow  ? Space::kShared
                  : window == kLocalWindow ? Space::kLocal
                                           : Space::kGlobal;
    // The shared memory of another CTA is in the window of shared::cluster only.
    bool inside = space != Space::kShared || op.form != nullptr ||
                  shared_rank(static_cast<uint32_t>(address)) == warp.cta().rank();
    if (inside && static_cast<uint8_t>(space) == op.flag) set |= 1u << lane;
  });
  warp.set_predicate(op.d, set, active);
  return Step::kNext;
}

void decode_isspacep(Decoder& decoder) {
  const auto& words = decoder.instruction().modifiers;
  if (std::find(words.begin(), words.end(), "shared::cluster") != words.end()) {
    decoder.form(true);
  }
  decoder.op.flag = static_cast<uint8_t>(take_space(decoder));
  decoder.expect_count(2, 2);
  decoder.op.d = decoder.destination(decoder.operand(0), 1);
  decoder.op.s[0] = decoder.source(decoder.operand(1), Type::kU64);
  decoder.op.run = is_in_space;
}

// The same offset in another CTA of the cluster.
Step map_address(Warp& warp, const Op& op, uint32_t active) {
  for_each_lane(active, [&](int lane) {
    uint64_t address = warp.value(op.s[0], lane);
    uint32_t rank = warp.lanes<uint32_t>(op.s[1])[lane];
    warp.cluster().cta(rank);
    uint32_t mapped = shared_address(rank, shared_offset(static_cast<uint32_t>(address)));
    warp.set_value(op.d, lane, (address & ~uint64_t{0xffffffff}) | mapped);
  });
  return Step::kNext;
}

void decode_mapa(Decoder& decoder) {
  decoder.modifiers.take("shared::cluster");
  Type type = decoder.modifiers.take_type();
  decoder.expect_count(3, 3);
  decoder.op.d = decoder.destination(decoder.operand(0), type_bits(type));
  decoder.op.s[0] = decoder.source(decoder.operand(1), type);
  decoder.op.s[1] = decoder.source(decoder.operand(2), Type::kU32);
  decoder.op.run = map_address;
}

Step rank_of(Warp& warp, const Op& op, uint32_t active) {
  for_each_lane(active, [&](int lane) {
    auto address = static_cast<uint32_t>(warp.value(op.s[0], lane));
    warp.lanes<uint32_t>(op.d)[lane] = shared_rank(address);
  });
  return Step::kNext;
}

void decode_getctarank(Decoder& decoder) {
  decoder.modifiers.take("shared::cluster");
  Type type = decoder.modifiers.take_type();
  decoder.expect_count(2, 2);
  decoder.op.d = decoder.destination(decoder.operand(0), 32);
  decoder.op.s[0] = decoder.source(decoder.operand(1), type);
  decoder.op.run = rank_of;
}

Step write_policy(Warp& warp, const Op& op, uint32_t active) {
  for_each_lane(active, [&](int lane) { warp.set_value(op.d, lane, 0); });
  return Step::kNext;
}

// A policy only steers caches; its value is never looked at.
void decode_createpolicy(Decoder& decoder) {
  Modifiers& modifiers = decoder.modifiers;
  int kind = modifiers.take_one({"fractional", "range", "cvt"});
  if (kind < 0) decoder.fail("it needs .fractional, .range or .cvt");
  modifiers.take_all({"global", "L2", "b64"});
  // A primary and a secondary priority.
  for (int i = 0; i < 2; ++i) {
    modifiers.take_one({"L2::evict_last", "L2::evict_normal", "L2::evict_first",
                        "L2::evict_unchanged"});
  }
  decoder.expect_count(1, 4);
  decoder.op.d = decoder.destination(decoder.operand(0), 64);
  decoder.op.run = write_policy;
}

void decode_activemask(Decoder& decoder) {
  decoder.modifiers.take_type();
  decoder.expect_count(1, 1);
  decoder.op.d = decoder.destination(decoder.operand(0), 32);
  decoder.op.run = read_active_mask;
}

}  // namespace

void add_move_ops(DecodeTable& table) {
  table["mov"] = decode_mov;
  table["cvta"] = decode_cvta;
  table["isspacep"] = decode_isspacep;
  table["mapa"] = decode_mapa;
  table["getctarank"] = decode_getctarank;
  table["createpolicy"] = decode_createpolicy;
  table["activemask"] = decode_activemask;
}

}  // namespace warploom::emulator
