#include "emulator/ptx/types.h"

#include <array>
#include <cstddef>

namespace warploom::emulator {
namespace {

struct Entry {
  Type type;
  std::string_view name;
  int bits;
};

constexpr std::array kEntries = {
    Entry{Type::kNone, "", 0},          Entry{Type::kPred, "pred", 1},
    Entry{Type::kB8, "b8", 8},          Entry{Type::kB16, "b16", 16},
    Entry{Type::kB32, "b32", 32},       Entry{Type::kB64, "b64", 64},
    Entry{Type::kB128, "b128", 128},    Entry{Type::kU8, "u8", 8},
    Entry{Type::kU16, "u16", 16},       Entry{Type::kU32, "u32", 32},
    Entry{Type::kU64, "u64", 64},       Entry{Type::kS8, "s8", 8},
    Entry{Type::kS16, "s16", 16},       Entry{Type::kS32, "s32", 32},
    Entry{Type::kS64, "s64", 64},       Entry{Type::kF16, "f16", 16},
    Entry{Type::kF16x2, "f16x2", 32},   Entry{Type::kBf16, "bf16", 16},
    Entry{Type::kBf16x2, "bf16x2", 32}, Entry{Type::kTf32, "tf32", 32},
    Entry{Type::kF32, "f32", 32},       Entry{Type::kF32x2, "f32x2", 64},
    Entry{Type::kF64, "f64", 64},       Entry{Type::kE4m3, "e4m3", 8},
    Entry{Type::kE5m2, "e5m2", 8},      Entry{Type::kE4m3x2, "e4m3x2", 16},
    Entry{Type::kE5m2x2, "e5m2x2", 16}, Entry{Type::kE2m1, "e2m1", 4},
    Entry{Type::kE2m3, "e2m3", 6},      Entry{Type::kE3m2, "e3m2", 6},
    Entry{Type::kE2m1x2, "e2m1x2", 8},  Entry{Type::kE2m3x2, "e2m3x2", 16},
    Entry{Type::kE3m2x2, "e3m2x2", 16}, Entry{Type::kUe8m0, "ue8m0", 8},
    Entry{Type::kUe8m0x2, "ue8m0x2", 16}, Entry{Type::kS4, "s4", 4},
    Entry{Type::kU4, "u4", 4},          Entry{Type::kB1, "b1", 1},
    Entry{Type::kU16x2, "u16x2", 32},   Entry{Type::kS16x2, "s16x2", 32},
};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kEntries.size(); ++i) {
    if (kEntries[i].type != static_cast<Type>(i)) return false;
  }
  return true;
}
static_assert(in_order(), "the table is indexed by Type");

}  // namespace

Type parse_type(std::string_view name) {
  if (name.empty()) return Type::kNone;
  for (const Entry& entry : kEntries) {
    if (entry.name == name) return entry.type;
  }
  return Type::kNone;
}

std::string_view type_name(Type type) { return kEntries[static_cast<std::size_t>(type)].name; }

int type_bits(Type type) { return kEntries[static_cast<std::size_t>(type)].bits; }

bool is_signed(Type type) { return type >= Type::kS8 && type <= Type::kS64; }

bool is_float(Type type) { return type >= Type::kF16 && type <= Type::kF64; }

}  // namespace warploom::emulator
