// The sixteen barriers of a CTA (PTX ISA, "bar, barrier").

#ifndef WARPLOOM_EMULATOR_ASYNC_NAMED_BARRIER_H_
#define WARPLOOM_EMULATOR_ASYNC_NAMED_BARRIER_H_

#include <array>
#include <cstdint>
#include <string>

namespace warploom::emulator {

class NamedBarriers {
 public:
  static constexpr uint32_t kCount = 16;

  // `threads` arrive at a barrier that expects `expected` threads; 0 means all that are alive.
  // Returns whether that completes the barrier, which is then ready for its next use.
  bool arrive(uint32_t barrier, uint32_t threads, uint32_t expected, uint32_t alive);

  // A barrier for all threads that completes because `alive` got smaller; kCount if none does.
  uint32_t completed_by_exit(uint32_t alive);

  // Predicates of bar.red: combined by the arrivals, read by those who wait.
  struct Reduction {
    uint32_t any = 0;
    uint32_t all = 1;
    uint32_t count = 0;
  };
  void contribute(uint32_t barrier, uint32_t threads, uint32_t true_threads);
  const Reduction& result(uint32_t barrier) const { return results_[barrier]; }

  std::string describe(uint32_t barrier) const;

 private:
  void complete(uint32_t barrier);

  struct State {
    uint32_t arrived = 0;
    uint32_t expected = 0;
  };
  std::array<State, kCount> states_;
  std::array<Reduction, kCount> open_;
  std::array<Reduction, kCount> results_;
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_ASYNC_NAMED_BARRIER_H_
