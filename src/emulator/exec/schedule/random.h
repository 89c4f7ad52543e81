// The source of every choice of the scheduler: the same seed gives the same schedule everywhere.

#ifndef WARPLOOM_EMULATOR_EXEC_SCHEDULE_RANDOM_H_
#define WARPLOOM_EMULATOR_EXEC_SCHEDULE_RANDOM_H_

#include <cstdint>

namespace warploom::emulator {

// SplitMix64.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }

  // Uniform in [0, bound).
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>((next() >> 32) * bound >> 32); }

 private:
  uint64_t state_;
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_SCHEDULE_RANDOM_H_
