// Applies a function of C++ values to the lanes of a warp.

#ifndef WARPLOOM_EMULATOR_EXEC_ISA_LANES_H_
#define WARPLOOM_EMULATOR_EXEC_ISA_LANES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "emulator/base/lanes.h"
#include "emulator/exec/isa/decoder.h"
#include "emulator/exec/machine/warp.h"

// Tells the compiler that no iteration of the next loop depends on another one.
#if defined(__clang__)
#define WARPLOOM_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define WARPLOOM_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

namespace warploom::emulator {

// What one element of type T takes in the register file.
template <class T>
using Storage = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <class T>
T unpack(Storage<T> stored) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(stored);
  } else {
    T value;
    std::memcpy(&value, &stored, sizeof(value));
    return value;
  }
}

template <class T>
Storage<T> pack(T value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<Storage<T>>(static_cast<std::make_unsigned_t<T>>(value));
  } else {
    Storage<T> stored = 0;
    std::memcpy(&stored, &value, sizeof(value));
    return stored;
  }
}

// d[lane] = F::call(s0[lane], s1[lane], ...) for the active lanes. A source may be the destination
// itself, which is no obstacle to vector instructions: elements do not depend on other elements.
template <class F, class R, class... A, std::size_t... I>
inline void apply_lanes(Warp& warp, const Op& op, uint32_t active, std::index_sequence<I...>) {
  Storage<R>* d = warp.lanes<Storage<R>>(op.d);
  auto compute = [&](int lane) {
    return pack<R>(F::call(unpack<A>(warp.lanes<Storage<A>>(op.s[I])[lane])...));
  };
  if (active == kAllLanes) {
    WARPLOOM_INDEPENDENT_ITERATIONS
    for (int lane = 0; lane < kLanes; ++lane) d[lane] = compute(lane);
  } else {
    for (int lane = 0; lane < kLanes; ++lane) {
      if (active >> lane & 1) d[lane] = compute(lane);
    }
  }
}

// The Run of an instruction with result R and sources A...
template <class F, class R, class... A>
Step apply(Warp& warp, const Op& op, uint32_t active) {
  apply_lanes<F, R, A...>(warp, op, active, std::index_sequence_for<A...>{});
  return Step::kNext;
}

template <class T>
struct TypeTag {
  using type = T;
};

// Calls f(TypeTag<T>) with the C++ integer that a type stands for; false if it is none.
template <class F>
bool with_integer(Type type, F f) {
  switch (type) {
    case Type::kU8: case Type::kB8: f(TypeTag<uint8_t>{}); return true;
    case Type::kU16: case Type::kB16: f(TypeTag<uint16_t>{}); return true;
    case Type::kU32: case Type::kB32: f(TypeTag<uint32_t>{}); return true;
    case Type::kU64: case Type::kB64: f(TypeTag<uint64_t>{}); return true;
    case Type::kS8: f(TypeTag<int8_t>{}); return true;
    case Type::kS16: f(TypeTag<int16_t>{}); return true;
    case Type::kS32: f(TypeTag<int32_t>{}); return true;
    case Type::kS64: f(TypeTag<int64_t>{}); return true;
    default: return false;
  }
}

// Decodes "op.type d, s0, s1, ..." where all values have one type.
inline void decode_uniform(Decoder& decoder, Type type, std::size_t sources) {
  decoder.expect_count(sources + 1, sources + 1);
  decoder.op.d = decoder.destination(decoder.operand(0), type == Type::kPred ? 1 : type_bits(type));
  for (std::size_t i = 0; i < sources; ++i) {
    decoder.op.s[i] = decoder.source(decoder.operand(i + 1), type);
  }
}

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_ISA_LANES_H_
