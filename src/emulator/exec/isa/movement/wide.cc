#include "emulator/exec/isa/movement/wide.h"

#include <cstddef>
#include <cstring>
#include <vector>

#include "emulator/check/checker.h"
#include "emulator/exec/isa/access.h"
#include "emulator/exec/isa/lanes.h"
#include "emulator/exec/isa/memory_hints.h"
#include "emulator/exec/isa/movement/families.h"
#include "emulator/exec/machine/cluster.h"

namespace warploom::emulator {
namespace {

using ptx::Operand;

constexpr uint32_t kBytes = 16;

struct WideForm {
  ptx::Space space = ptx::Space::kGeneric;
  Ordering ordering;
  bool compares = false;  // atom.cas
};

const WideForm& form_of(const Op& op) { return *static_cast<const WideForm*>(op.form); }

void note(Warp& warp, const Op& op, uint32_t active, Touch touch) {
  Checker* checker = checker_of(warp.cluster());
  if (checker == nullptr) return;
  checker->generic(warp, op, active, form_of(op).space, kBytes, touch, form_of(op).ordering);
}

// Calls f(lane, memory) for the 16 bytes at the address of every active lane.
template <class F>
void for_each_place(Warp& warp, const Op& op, uint32_t active, F f) {
  for_each_lane(active, [&](int lane) {
    f(lane, resolve(warp, form_of(op).space, lane, warp.address(op, lane), kBytes, kBytes));
  });
}

Step load(Warp& warp, const Op& op, uint32_t active) {
  note(warp, op, active, Touch::kRead);
  Bits128* d = wide_lanes(warp, op.d);
  for_each_place(warp, op, active,
                 [&](int lane, const uint8_t* from) { std::memcpy(d + lane, from, kBytes); });
  return Step::kNext;
}

Step store(Warp& warp, const Op& op, uint32_t active) {
  note(warp, op, active, Touch::kWrite);
  const Bits128* s = wide_lanes(warp, op.s[0]);
  for_each_place(warp, op, active,
                 [&](int lane, uint8_t* to) { std::memcpy(to, s + lane, kBytes); });
  return Step::kNext;
}

Step exchange(Warp& warp, const Op& op, uint32_t active) {
  note(warp, op, active, Touch::kReadWrite);
  for_each_place(warp, op, active, [&](int lane, uint8_t* memory) {
    Bits128 old;
    std::memcpy(&old, memory, kBytes);
    const Bits128& first = wide_lanes(warp, op.s[0])[lane];
    if (!form_of(op).compares) {
      std::memcpy(memory, &first, kBytes);
    } else if (std::memcmp(&old, &first, kBytes) == 0) {
      std::memcpy(memory, wide_lanes(warp, op.s[1]) + lane, kBytes);
    }
    if (std::memcmp(&old, memory, kBytes) != 0) warp.cluster().note_change();
    wide_lanes(warp, op.d)[lane] = old;
  });
  return Step::kNext;
}

Step pack(Warp& warp, const Op& op, uint32_t active) {
  const uint64_t* low = warp.lanes<uint64_t>(op.s[0]);
  const uint64_t* high = warp.lanes<uint64_t>(op.s[1]);
  for_each_lane(active,
                [&](int lane) { wide_lanes(warp, op.d)[lane] = {low[lane], high[lane]}; });
  return Step::kNext;
}

Step unpack(Warp& warp, const Op& op, uint32_t active) {
  const Bits128* s = wide_lanes(warp, op.s[0]);
  const Ref* refs = warp.program().refs.data() + op.first;
  for_each_lane(active, [&](int lane) {
    if (refs[0].present()) warp.lanes<uint64_t>(refs[0])[lane] = s[lane].low;
    if (refs[1].present()) warp.lanes<uint64_t>(refs[1])[lane] = s[lane].high;
  });
  return Step::kNext;
}

Step copy(Warp& warp, const Op& op, uint32_t active) {
  const Bits128* s = wide_lanes(warp, op.s[0]);
  for_each_lane(active, [&](int lane) { wide_lanes(warp, op.d)[lane] = s[lane]; });
  return Step::kNext;
}

void decode_mov(Decoder& decoder) {
  decoder.modifiers.take_type();
  decoder.expect_count(2, 2);
  const Operand& to = decoder.operand(0);
  const Operand& from = decoder.operand(1);
  bool packs = from.kind == Operand::kVector;
  bool unpacks = to.kind == Operand::kVector;
  if ((packs ? from.elements.size() : unpacks ? to.elements.size() : 2) != 2) {
    decoder.fail("128 bits are two of 64");
  }
  if (!unpacks) decoder.op.d = decoder.destination(to, 128);
  if (packs) {
    for (std::size_t i = 0; i < 2; ++i) {
      decoder.op.s[i] = decoder.source(from.elements[i], Type::kB64);
    }
    decoder.op.run = pack;
    return;
  }
  decoder.op.s[0] = decoder.source(from, Type::kB128);
  if (unpacks) decoder.destinations(to, 64);
  decoder.op.run = unpacks ? unpack : copy;
}

// Takes all modifiers; what remains is unknown.
WideForm take_form(Decoder& decoder) {
  WideForm form;
  form.ordering = take_memory_hints(decoder);
  form.space = take_space(decoder);
  decoder.modifiers.take_type();
  return form;
}

void decode_load(Decoder& decoder) {
  bool policy = decoder.modifiers.take("L2::cache_hint");
  decoder.form(take_form(decoder));
  decoder.expect_count(2, policy ? 3 : 2);
  decoder.op.d = decoder.destination(decoder.operand(0), 128);
  decoder.op.address = decoder.address(decoder.operand(1));
  decoder.op.run = load;
}

void decode_store(Decoder& decoder) {
  bool policy = decoder.modifiers.take("L2::cache_hint");
  decoder.form(take_form(decoder));
  decoder.expect_count(2, policy ? 3 : 2);
  decoder.op.address = decoder.address(decoder.operand(0));
  decoder.op.s[0] = decoder.source(decoder.operand(1), Type::kB128);
  decoder.op.run = store;
}

void decode_atom(Decoder& decoder) {
  int index = decoder.modifiers.take_one({"exch", "cas"});
  if (index < 0) decoder.fail("128 bits are for .exch and .cas");
  bool policy = decoder.modifiers.take("L2::cache_hint");
  const Ordering ordering = take_atomic_ordering(decoder.modifiers);
  WideForm form = take_form(decoder);
  form.ordering = ordering;
  form.compares = index == 1;
  std::size_t sources = form.compares ? 2 : 1;
  decoder.expect_count(2 + sources, 2 + sources + (policy ? 1 : 0));
  decoder.op.d = decoder.destination(decoder.operand(0), 128);
  decoder.op.address = decoder.address(decoder.operand(1));
  for (std::size_t i = 0; i < sources; ++i) {
    decoder.op.s[i] = decoder.source(decoder.operand(2 + i), Type::kB128);
  }
  decoder.form(form);
  decoder.op.run = exchange;
}

}  // namespace

void add_wide_ops(DecodeTable& table) {
  table["mov:b128"] = decode_mov;
  table["ld:b128"] = decode_load;
  table["st:b128"] = decode_store;
  table["atom:b128"] = decode_atom;
}

}  // namespace warploom::emulator
