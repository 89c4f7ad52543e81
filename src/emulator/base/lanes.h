// The lanes of a warp, and sets of them: bit i of a mask is lane i.

#ifndef WARPLOOM_EMULATOR_BASE_LANES_H_
#define WARPLOOM_EMULATOR_BASE_LANES_H_

#include <cstdint>

namespace warploom::emulator {

constexpr int kLanes = 32;
constexpr uint32_t kAllLanes = 0xffffffffu;

// Calls f(lane) for every lane of the mask.
template <class F>
inline void for_each_lane(uint32_t mask, F f) {
  for (uint32_t left = mask; left != 0; left &= left - 1) f(__builtin_ctz(left));
}

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_BASE_LANES_H_
