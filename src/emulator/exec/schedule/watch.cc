#include "emulator/exec/schedule/watch.h"

#include <algorithm>

#include "emulator/base/fault.h"

namespace warploom::emulator {
namespace {

using Clock = std::chrono::steady_clock;
// Later times would overflow the clock.
constexpr double kMostSeconds = 1e9;

}  // namespace

Watch::Watch(double seconds, const std::atomic<bool>* interrupted)
    : seconds_(seconds), interrupted_(interrupted) {
  std::chrono::duration<double> limit(std::min(seconds, kMostSeconds));
  end_ = seconds > 0 ? Clock::now() + std::chrono::duration_cast<Clock::duration>(limit)
                     : Clock::time_point::max();
}

void Watch::check(uint64_t cluster) const {
  if (cluster > first_failed()) throw Abandoned();
  if (interrupted_ != nullptr && interrupted_->load(std::memory_order_relaxed)) {
    fault("the launch was interrupted");
  }
  if (end_ != Clock::time_point::max() && Clock::now() > end_) {
    fault("the launch did not end within its time limit of %g seconds "
          "(WARPLOOM_EMULATOR_SECONDS)",
          seconds_);
  }
}

void Watch::fail(uint64_t cluster) {
  uint64_t before = first_failed();
  while (cluster < before && !first_failed_.compare_exchange_weak(before, cluster)) {
  }
}

}  // namespace warploom::emulator
