// Clusters of a grid that have not started.

#ifndef WARPLOOM_EMULATOR_EXEC_MACHINE_CLUSTER_SOURCE_H_
#define WARPLOOM_EMULATOR_EXEC_MACHINE_CLUSTER_SOURCE_H_

#include <atomic>
#include <cstdint>
#include <optional>

namespace warploom::emulator {

// Hands each out once: to the device, which starts it, or to a cluster that cancels its launch and
// does its work (clusterlaunchcontrol).
class ClusterSource {
 public:
  explicit ClusterSource(uint64_t count) : count_(count) {}

  // The number of the next cluster; nothing if all have been handed out.
  std::optional<uint64_t> take() {
    uint64_t number = next_.fetch_add(1);
    if (number < count_) return number;
    next_ = count_;
    return std::nullopt;
  }

  bool empty() const { return next_ >= count_; }

 private:
  uint64_t count_;
  std::atomic<uint64_t> next_{0};
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_MACHINE_CLUSTER_SOURCE_H_
