#include "emulator/matrix/element.h"

#include <cstddef>
#include <cstring>
#include <string>

#include "emulator/base/fault.h"
#include "emulator/format/float16.h"

namespace warploom::emulator {
namespace {

// Like f16_to_f32 of format/float16.h: moved to the place of f32, the number is too small by the
// difference of the biases, here 120.
float e4m3_to_f32(uint8_t byte) {
  const uint32_t magnitude = byte & 0x7fu;
  const uint32_t sign = static_cast<uint32_t>(byte & 0x80u) << 24;
  const uint32_t bits = float_bits(bits_float(magnitude << 20) * 0x1p120f) | sign;
  return bits_float(select_bits(magnitude == 0x7f, 0x7fffffffu, bits));
}

// e5m2 is the upper half of f16.
float e5m2_to_f32(uint8_t byte) { return f16_to_f32(static_cast<uint16_t>(byte << 8)); }

template <class Raw, class Function>
void transform(const uint8_t* raw, int count, float* out, Function function) {
  for (int i = 0; i < count; ++i) {
    Raw value;
    std::memcpy(&value, raw + static_cast<size_t>(i) * sizeof(Raw), sizeof(Raw));
    out[i] = function(value);
  }
}

// `sign` is the bit that counts negative, or 0.
void widen_halves(const uint8_t* raw, int count, int sign, float* out) {
  for (int i = 0; i < count; ++i) {
    const int value = raw[i / 2] >> 4 * (i % 2) & 15;
    out[i] = static_cast<float>((value ^ sign) - sign);
  }
}

}  // namespace

int element_bits(Type type) {
  switch (type) {
    case Type::kTf32:
      return 32;
    case Type::kF16:
    case Type::kBf16:
      return 16;
    case Type::kE4m3:
    case Type::kE5m2:
    case Type::kS8:
    case Type::kU8:
      return 8;
    case Type::kS4:
    case Type::kU4:
      return 4;
    case Type::kB1:
      return 1;
    default:
      return 0;
  }
}

bool is_integer_element(Type type) {
  return type == Type::kS8 || type == Type::kU8 || type == Type::kS4 || type == Type::kU4 ||
         type == Type::kB1;
}

void widen(Type type, const uint8_t* raw, int count, float* out) {
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
    case Type::kS4:
      return widen_halves(raw, count, 8, out);
    case Type::kU4:
      return widen_halves(raw, count, 0, out);
    case Type::kE4m3:
      return transform<uint8_t>(raw, count, out, e4m3_to_f32);
    case Type::kE5m2:
      return transform<uint8_t>(raw, count, out, e5m2_to_f32);
    default:
      fault("%s is no type of a matrix element", std::string(type_name(type)).c_str());
  }
}

}  // namespace warploom::emulator
