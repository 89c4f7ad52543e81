// ld, st and their relatives (PTX ISA, "Data Movement and Conversion Instructions").
//
// Every warp's accesses take effect at once and in order, which is stronger than any of the memory
// orders that the instructions name. Caching hints have no effect.

#include "emulator/exec/isa/access.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "emulator/check/checker.h"
#include "emulator/exec/isa/lanes.h"
#include "emulator/exec/isa/memory_hints.h"
#include "emulator/exec/isa/movement/families.h"
#include "emulator/exec/machine/cluster.h"

namespace warploom::emulator {
namespace {

using ptx::Space;

struct AccessForm {
  Space space = Space::kGeneric;
  uint32_t bytes = 0;  // of one lane
  Ordering ordering;
};

void note(Warp& warp, const Op& op, uint32_t active, Touch touch) {
  Checker* checker = checker_of(warp.cluster());
  if (checker == nullptr) return;
  const auto& form = *static_cast<const AccessForm*>(op.form);
  checker->generic(warp, op, active, form.space, form.bytes, touch, form.ordering);
}

// T is the type in memory, S the storage of the registers, which may be wider.
template <class T, class S>
Step load(Warp& warp, const Op& op, uint32_t active) {
  const auto& form = *static_cast<const AccessForm*>(op.form);
  const Ref* refs = warp.program().refs.data() + op.first;
  note(warp, op, active, Touch::kRead);
  for_each_lane(active, [&](int lane) {
    const uint8_t* from =
        resolve(warp, form.space, lane, warp.address(op, lane), form.bytes, form.bytes);
    for (uint32_t i = 0; i < op.count; ++i) {
      T value;
      std::memcpy(&value, from + i * sizeof(T), sizeof(T));
      if (refs[i].present()) warp.lanes<S>(refs[i])[lane] = static_cast<S>(value);
    }
  });
  return Step::kNext;
}

template <class T, class S>
Step store(Warp& warp, const Op& op, uint32_t active) {
  const auto& form = *static_cast<const AccessForm*>(op.form);
  const Ref* refs = warp.program().refs.data() + op.first;
  note(warp, op, active, Touch::kWrite);
  for_each_lane(active, [&](int lane) {
    uint8_t* to = resolve(warp, form.space, lane, warp.address(op, lane), form.bytes, form.bytes);
    for (uint32_t i = 0; i < op.count; ++i) {
      T value = static_cast<T>(warp.lanes<S>(refs[i])[lane]);
      std::memcpy(to + i * sizeof(T), &value, sizeof(T));
    }
  });
  return Step::kNext;
}

struct Access {
  AccessForm form;
  Type type;
  uint32_t count;
  bool cache_policy;
};

Access take_access(Decoder& decoder) {
  Access access;
  access.form.ordering = take_memory_hints(decoder);
  access.cache_policy = decoder.modifiers.take("L2::cache_hint");
  access.form.space = take_space(decoder);
  int vector = decoder.modifiers.take_one({"v2", "v4", "v8"});
  access.count = vector < 0 ? 1 : 2u << vector;
  access.type = decoder.modifiers.take_type();
  int bits = type_bits(access.type);
  if (bits < 8 || bits > 64) decoder.fail("its type is not supported");
  access.form.bytes = access.count * static_cast<uint32_t>(bits) / 8;
  return access;
}

// Parameters of device functions, and what is passed to them, lie in the frame of the thread.
Space space_of(const Decoder& decoder, Space space, const ptx::Operand& address) {
  if (space != Space::kParam) return space;
  const ptx::Operand& base = address.elements[0];
  bool local = base.kind == ptx::Operand::kVariable ? base.variable->space == Space::kLocal
                                                    : !decoder.function().is_entry;
  return local ? Space::kLocal : space;
}

// Registers may be wider than what is loaded; all of a vector have one width.
int storage_of(const Decoder& decoder, const Ref* refs, uint32_t count, int least) {
  int bits = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (!refs[i].present()) continue;
    if (bits != 0 && refs[i].bits != bits) decoder.fail("its registers have different widths");
    bits = refs[i].bits;
  }
  if (bits == 0) bits = least <= 32 ? 32 : 64;
  if (bits == 1 || bits < least) decoder.fail("its registers are too narrow");
  return bits;
}

// A signed load extends the sign to the width of the register.
template <class T>
Run select_load(int bits) {
  if (bits == 64) return load<T, uint64_t>;
  if constexpr (sizeof(T) <= 4) return load<T, uint32_t>;
  return nullptr;
}

template <class T>
Run select_store(int bits) {
  if (bits == 64) return store<T, uint64_t>;
  if constexpr (sizeof(T) <= 4) return store<T, uint32_t>;
  return nullptr;
}

// Integer that carries the bits of a type.
Type carrier(Type type) {
  if (is_signed(type)) return type;
  switch (type_bits(type)) {
    case 8: return Type::kU8;
    case 16: return Type::kU16;
    case 32: return Type::kU32;
    default: return Type::kU64;
  }
}

void decode_load(Decoder& decoder) {
  Access access = take_access(decoder);
  decoder.expect_count(2, access.cache_policy ? 3 : 2);
  decoder.destinations(decoder.operand(0), 0);
  decoder.op.address = decoder.address(decoder.operand(1));
  access.form.space = space_of(decoder, access.form.space, decoder.operand(1));
  if (decoder.op.count != access.count) decoder.fail("it has a wrong number of registers");
  decoder.form(access.form);
  int bits = storage_of(decoder, decoder.refs().data() + decoder.op.first, access.count,
                        type_bits(access.type));
  with_integer(carrier(access.type), [&](auto tag) {
    decoder.op.run = select_load<typename decltype(tag)::type>(bits);
  });
}

// Registers of any width that is enough, and literals as wide as these.
void stored_values(Decoder& decoder, Type type) {
  const ptx::Operand& operand = decoder.operand(1);
  bool vector = operand.kind == ptx::Operand::kVector;
  std::vector<ptx::Operand> values = vector ? operand.elements : std::vector{operand};
  decoder.op.first = static_cast<uint32_t>(decoder.refs().size());
  decoder.op.count = static_cast<uint32_t>(values.size());
  int bits = type_bits(type);
  for (const ptx::Operand& value : values) {
    bool is_register = value.kind == ptx::Operand::kRegister;
    decoder.refs().push_back(is_register ? decoder.destination(value, 0) : Ref{});
    if (is_register) bits = std::max<int>(bits, decoder.refs().back().bits);
  }
  Type wide = bits > 32 && type_bits(type) <= 32 ? Type::kB64 : type;
  for (std::size_t i = 0; i < values.size(); ++i) {
    Ref& ref = decoder.refs()[decoder.op.first + i];
    if (!ref.present()) ref = decoder.source(values[i], wide);
  }
}

void decode_store(Decoder& decoder) {
  Access access = take_access(decoder);
  decoder.expect_count(2, access.cache_policy ? 3 : 2);
  decoder.op.address = decoder.address(decoder.operand(0));
  access.form.space = space_of(decoder, access.form.space, decoder.operand(0));
  stored_values(decoder, access.type);
  if (decoder.op.count != access.count) decoder.fail("it has a wrong number of registers");
  decoder.form(access.form);
  int bits = storage_of(decoder, decoder.refs().data() + decoder.op.first, access.count,
                        type_bits(access.type));
  with_integer(carrier(access.type), [&](auto tag) {
    decoder.op.run = select_store<typename decltype(tag)::type>(bits);
  });
}

Step nothing(Warp&, const Op&, uint32_t) { return Step::kNext; }

// Prefetches move nothing that a program can see.
void decode_prefetch(Decoder& decoder) {
  take_space(decoder);
  decoder.modifiers.take_all({"L1", "L2", "tensormap", "L2::evict_last", "L2::evict_normal"});
  decoder.op.run = nothing;
}

// Hints about 128 bytes in the L2 cache. What discard leaves in memory is undefined: here, what was
// there.
void decode_cache_line(Decoder& decoder) {
  take_space(decoder);
  decoder.modifiers.take_all({"L2", "L2::evict_normal"});
  decoder.expect_count(2, 2);
  decoder.op.address = decoder.address(decoder.operand(0));
  if (decoder.integer(decoder.operand(1)) != 128) decoder.fail("the size must be 128");
  decoder.op.run = nothing;
}

}  // namespace

void add_load_store_ops(DecodeTable& table) {
  table["ld"] = decode_load;
  table["ldu"] = decode_load;
  table["st"] = decode_store;
  table["prefetch"] = decode_prefetch;
  table["prefetchu"] = decode_prefetch;
  table["discard"] = decode_cache_line;
  table["applypriority"] = decode_cache_line;
}

}  // namespace warploom::emulator
