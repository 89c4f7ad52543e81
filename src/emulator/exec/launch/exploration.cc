#include "emulator/exec/launch/exploration.h"

#include <algorithm>
#include <cinttypes>
#include <optional>

#include "emulator/base/fault.h"
#include "emulator/base/json.h"
#include "emulator/exec/schedule/exhaustive.h"
#include "emulator/memory/memory_snapshot.h"

namespace warploom::emulator {
namespace {

// Executes a launch again and again and compares what it leaves in memory.
class Comparison {
 public:
  explicit Comparison(const Explored& launch) : launch_(launch), before_(launch.memory) {}

  // The schedule that was executed, in words.
  using Name = std::function<std::string()>;

  // Whether to go on.
  bool run(const SchedulerSource& schedulers, bool one_thread, const Name& name) {
    if (first_) before_.restore();
    ++schedules_;
    std::string problem = launch_.execute(schedulers, one_thread);
    if (!problem.empty()) {
      problem_ = problem + "\nThis is schedule " + std::to_string(schedules_) + ": " + name() + ".";
    } else if (!first_) {
      first_.emplace(launch_.memory);
      first_name_ = name();
    } else {
      compare(name());
    }
    return problem_.empty();
  }

  // Leaves memory as the first schedule does, unless something went wrong.
  Exploration finish(const std::string& mode, bool complete, JsonObject json) {
    if (problem_.empty() && first_) first_->restore();
    json.add("kernel", json_string(launch_.program.function->name))
        .add("mode", json_string(mode))
        .add("schedules", schedules_)
        .add("complete", std::string(complete && problem_.empty() ? "true" : "false"))
        .add("problem", json_string(problem_))
        .add("note", json_string(note_));
    return {problem_, json.text()};
  }

  uint64_t schedules() const { return schedules_; }
  void note(const std::string& text) {
    if (note_.empty()) note_ = text;
  }

 private:
  void compare(const std::string& name) {
    std::string difference = first_->difference();
    if (difference.empty()) return;
    std::string text = "the results depend on the schedule: " + difference + ", under schedule " +
                       std::to_string(schedules_) + " (" + name + ") and the first one (" +
                       first_name_ + ")";
    if (launch_.program.sums_in_any_order) {
      note(text + "; the kernel adds floating-point numbers atomically, in any order");
    } else {
      problem_ = "in kernel " + launch_.program.function->name + " " + text;
    }
  }

  const Explored& launch_;
  MemorySnapshot before_;
  std::optional<MemorySnapshot> first_;  // what the first schedule left
  std::string first_name_;
  uint64_t schedules_ = 0;
  std::string problem_;
  std::string note_;
};

}  // namespace

Exploration explore(const Explored& launch, const Schedule& base, uint64_t count) {
  Comparison comparison(launch);
  Schedule schedule = base;
  for (uint64_t i = 0; i < count; ++i) {
    if (i != 0) {
      schedule.strategy = static_cast<Strategy>(i % kStrategies);
      schedule.seed = base.seed + i;
      // There is one schedule of this strategy only.
      bool again = schedule.strategy == Strategy::kRoundRobin && i > kStrategies;
      if (again) schedule.strategy = Strategy::kRandom;
    }
    auto name = [&] { return describe_schedule(schedule); };
    if (!comparison.run(schedulers_of(schedule), false, name)) break;
  }
  return comparison.finish("explore", false, JsonObject());
}

Exploration explore_exhaustively(const Explored& launch, uint64_t most, uint32_t preemptions) {
  Comparison comparison(launch);
  bool complete = true, bounded = false, good = true;
  // A grid that is not legal has no clusters: executing it tells why.
  uint64_t clusters = std::max<uint64_t>(launch.clusters, 1);
  for (uint64_t searched = 0; searched < clusters && good && complete; ++searched) {
    ChoiceTree tree(preemptions);
    bool left = true;
    while (left && good) {
      if (comparison.schedules() == most) {
        complete = false;
        break;
      }
      auto schedulers = [&](uint64_t cluster) {
        return make_tree_scheduler(cluster == searched ? &tree : nullptr);
      };
      auto name = [&] {
        return format("cluster %" PRIu64 ", choices %s", searched, tree.describe().c_str());
      };
      good = comparison.run(schedulers, true, name);
      left = tree.advance();
    }
    bounded |= tree.was_cut();
  }
  if (launch.clusters > 1 && launch.program.couples_clusters) {
    complete = false;
    comparison.note("the clusters communicate, and their turns were not searched");
  }
  JsonObject json;
  json.add("preemptions", preemptions).add("bounded", std::string(bounded ? "true" : "false"));
  return comparison.finish("exhaustive", complete, json);
}

}  // namespace warploom::emulator
