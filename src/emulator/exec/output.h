// What a kernel prints.

#ifndef WARPLOOM_EMULATOR_EXEC_OUTPUT_H_
#define WARPLOOM_EMULATOR_EXEC_OUTPUT_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace warploom::emulator {

// Text of printf, kept until the launch ends. Clusters come in the order of their numbers, whatever
// the schedule was; within one the order is that of execution.
class Output {
 public:
  void add(uint64_t cluster, const std::string& text) {
    if (text.empty()) return;
    std::lock_guard<std::mutex> lock(mutex_);
    texts_[cluster] += text;
  }

  // Of the clusters up to `last`: what those after one that failed have printed is a matter of
  // luck.
  std::string text(uint64_t last) const {
    std::lock_guard<std::mutex> lock(mutex_);
    std::string result;
    for (const auto& [cluster, text] : texts_) {
      if (cluster <= last) result += text;
    }
    return result;
  }

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, std::string> texts_;
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_OUTPUT_H_
