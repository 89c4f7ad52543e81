// What a kernel prints.

#ifndef WARPLOOM_EMULATOR_EXEC_MACHINE_OUTPUT_H_
#define WARPLOOM_EMULATOR_EXEC_MACHINE_OUTPUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <string>

namespace warploom::emulator {

// Text of printf, kept until the launch ends. Clusters come in the order of their numbers, whatever
// the schedule was; within one the order is that of execution.
class Output {
 public:
  // Of a launch, as on a device whose limit nobody changes (CUDA C++ Programming Guide, "Formatted
  // Output"). There the last megabyte is kept, here the first.
  static constexpr std::size_t kMostBytes = 1 << 20;

  // Adds to the text of one cluster.
  static void append(std::string& text, const std::string& more) {
    text.append(more, 0, kMostBytes + 1 - std::min(text.size(), kMostBytes + 1));
  }

  void add(uint64_t cluster, const std::string& text) {
    if (text.empty()) return;
    std::lock_guard<std::mutex> lock(mutex_);
    append(texts_[cluster], text);
    bytes_ += text.size();
    // Later clusters are left out, whatever the schedule: the first ones fill the megabyte.
    while (bytes_ - texts_.rbegin()->second.size() > kMostBytes) {
      bytes_ -= texts_.rbegin()->second.size();
      texts_.erase(std::prev(texts_.end()));
    }
  }

  // Of the clusters up to `last`: what those after one that failed have printed is a matter of
  // luck.
  std::string text(uint64_t last) const {
    std::lock_guard<std::mutex> lock(mutex_);
    std::string result;
    for (const auto& [cluster, text] : texts_) {
      if (cluster <= last) append(result, text);
    }
    if (result.size() > kMostBytes) {
      result.resize(kMostBytes);
      result += "\n[warploom emulator: what the launch prints beyond 1 MiB is left out]\n";
    }
    return result;
  }

 private:
  mutable std::mutex mutex_;
  std::size_t bytes_ = 0;  // of all texts
  std::map<uint64_t, std::string> texts_;
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_MACHINE_OUTPUT_H_
