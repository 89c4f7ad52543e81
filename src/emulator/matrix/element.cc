#include "emulator/matrix/element.h"

#include <array>
#include <cstring>

#include "emulator/format/float16.h"
#include "emulator/format/float_format.h"

namespace warploom::emulator {
namespace {

using ByteTable = std::array<float, 256>;

ByteTable make_table(Type type) {
  const FloatFormat& from = *float_format(type);
  const FloatFormat& to = *float_format(Type::kF32);
  ByteTable table{};
  for (uint32_t bits = 0; bits < table.size(); ++bits) {
    const uint64_t wide = encode(to, decode(from, bits), Rounding::kRn, false);
    table[bits] = bits_float(static_cast<uint32_t>(wide));
  }
  return table;
}

template <class Raw, class Function>
void transform(const uint8_t* raw, int count, float* out, Function function) {
  for (int i = 0; i < count; ++i) {
    Raw value;
    std::memcpy(&value, raw + static_cast<size_t>(i) * sizeof(Raw), sizeof(Raw));
    out[i] = function(value);
  }
}

}  // namespace

int element_bytes(Type type) {
  switch (type) {
    case Type::kTf32:
      return 4;
    case Type::kF16:
    case Type::kBf16:
      return 2;
    case Type::kE4m3:
    case Type::kE5m2:
    case Type::kS8:
    case Type::kU8:
      return 1;
    default:
      return 0;
  }
}

bool is_integer_element(Type type) { return type == Type::kS8 || type == Type::kU8; }

void widen(Type type, const uint8_t* raw, int count, float* out) {
  static const ByteTable e4m3 = make_table(Type::kE4m3);
  static const ByteTable e5m2 = make_table(Type::kE5m2);
  switch (type) {
    case Type::kF16:
      return transform<uint16_t>(raw, count, out, f16_to_f32);
    case Type::kBf16:
      return transform<uint16_t>(raw, count, out, bf16_to_f32);
    case Type::kTf32:
      return transform<uint32_t>(raw, count, out,
                                 [](uint32_t bits) { return bits_float(bits & 0xffffe000u); });
    case Type::kS8:
      return transform<int8_t>(raw, count, out, [](int8_t value) -> float { return value; });
    case Type::kU8:
      return transform<uint8_t>(raw, count, out, [](uint8_t value) -> float { return value; });
    default:
      const ByteTable& table = type == Type::kE4m3 ? e4m3 : e5m2;
      return transform<uint8_t>(raw, count, out, [&](uint8_t bits) { return table[bits]; });
  }
}

}  // namespace warploom::emulator
