#include "emulator/async/bulk_copy.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

#include "emulator/base/fault.h"
#include "emulator/format/float16.h"

namespace warploom::emulator {
namespace {

const char* reduction_name(Reduction reduction) {
  constexpr const char* kNames[] = {"", "add", "min", "max", "inc", "dec", "and", "or", "xor"};
  return kNames[static_cast<int>(reduction)];
}

// Memory types that are computed in another one.
struct Half {
  uint16_t bits;
  static float load(Half half) { return f16_to_f32(half.bits); }
  static Half store(float value) { return {f32_to_f16(value)}; }
};

struct Brain {
  uint16_t bits;
  static float load(Brain brain) { return bf16_to_f32(brain.bits); }
  static Brain store(float value) { return {f32_to_bf16(value)}; }
};

template <class T, class Combine>
void each(uint8_t* destination, const uint8_t* source, uint32_t bytes, Combine combine) {
  for (uint32_t offset = 0; offset < bytes; offset += sizeof(T)) {
    T old, value;
    std::memcpy(&old, destination + offset, sizeof(T));
    std::memcpy(&value, source + offset, sizeof(T));
    old = combine(old, value);
    std::memcpy(destination + offset, &old, sizeof(T));
  }
}

// Memory gives one NaN of f32, and an f64 that is not a number as it is.
float add(float old, float value) {
  float sum = old + value;
  return std::isnan(sum) ? bits_float(0x7fffffffu) : sum;
}

double add(double old, double value) {
  return std::isnan(value) ? value : std::isnan(old) ? old : old + value;
}

template <class T>
T combine_numbers(Reduction reduction, T old, T value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (reduction == Reduction::kAdd) return add(old, value);
    // A number wins over NaN.
    if (std::isnan(old)) return value;
    if (std::isnan(value)) return old;
    return reduction == Reduction::kMin ? std::fmin(old, value) : std::fmax(old, value);
  } else {
    using Unsigned = std::make_unsigned_t<T>;
    switch (reduction) {
      case Reduction::kAdd:
        return static_cast<T>(static_cast<Unsigned>(old) + static_cast<Unsigned>(value));
      case Reduction::kMin:
        return old < value ? old : value;
      case Reduction::kMax:
        return old > value ? old : value;
      case Reduction::kInc:
        return old >= value ? 0 : old + 1;
      case Reduction::kDec:
        return old == 0 || old > value ? value : old - 1;
      case Reduction::kAnd:
        return old & value;
      case Reduction::kOr:
        return old | value;
      default:
        return old ^ value;
    }
  }
}

template <class T>
void reduce(Reduction reduction, uint8_t* destination, const uint8_t* source, uint32_t bytes) {
  each<T>(destination, source, bytes,
          [=](T old, T value) { return combine_numbers<T>(reduction, old, value); });
}

template <class T>
void reduce_wide(Reduction reduction, uint8_t* destination, const uint8_t* source,
                 uint32_t bytes) {
  each<T>(destination, source, bytes, [=](T old, T value) {
    return T::store(combine_numbers<float>(reduction, T::load(old), T::load(value)));
  });
}

using Function = void (*)(Reduction, uint8_t*, const uint8_t*, uint32_t);

constexpr uint32_t bit(Reduction reduction) { return 1u << static_cast<int>(reduction); }
constexpr uint32_t kAdd = bit(Reduction::kAdd);
constexpr uint32_t kMinMax = bit(Reduction::kMin) | bit(Reduction::kMax);
constexpr uint32_t kIncDec = bit(Reduction::kInc) | bit(Reduction::kDec);
constexpr uint32_t kBitwise =
    bit(Reduction::kAnd) | bit(Reduction::kOr) | bit(Reduction::kXor);

// Which reductions a type has. A tensor map has no bit types, so that the integers of the same size
// take their place.
struct Entry {
  Type type;
  uint32_t reductions;
  Function function;
};

constexpr Entry kEntries[] = {
    {Type::kU32, kAdd | kMinMax | kIncDec | kBitwise, reduce<uint32_t>},
    {Type::kS32, kAdd | kMinMax | kBitwise, reduce<int32_t>},
    {Type::kU64, kAdd | kMinMax | kBitwise, reduce<uint64_t>},
    {Type::kS64, kMinMax | kBitwise, reduce<int64_t>},
    {Type::kB32, kBitwise, reduce<uint32_t>},
    {Type::kB64, kBitwise, reduce<uint64_t>},
    {Type::kF16, kAdd | kMinMax, reduce_wide<Half>},
    {Type::kBf16, kAdd | kMinMax, reduce_wide<Brain>},
    {Type::kF32, kAdd, reduce<float>},
    {Type::kF64, kAdd, reduce<double>},
};

const Entry& entry_of(Type type, Reduction reduction) {
  for (const Entry& entry : kEntries) {
    if (entry.type == type && (entry.reductions & bit(reduction)) != 0) return entry;
  }
  fault("a bulk copy cannot reduce %s with .%s", std::string(type_name(type)).c_str(),
        reduction_name(reduction));
}

}  // namespace

void check_reduction(Type type, Reduction reduction) {
  if (reduction != Reduction::kNone) entry_of(type, reduction);
}

void bulk_reduce(Type type, Reduction reduction, uint8_t* destination, const uint8_t* source,
                 uint32_t bytes) {
  if (reduction == Reduction::kNone) {
    std::memcpy(destination, source, bytes);
  } else {
    entry_of(type, reduction).function(reduction, destination, source, bytes);
  }
}

}  // namespace warploom::emulator
