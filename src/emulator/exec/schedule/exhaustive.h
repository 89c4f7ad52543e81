// Every schedule of a cluster, one after the other: a depth-first search through what can be done
// next, which executes the cluster from its beginning for each schedule.
//
// A warp runs on until it has executed an instruction that synchronises (Op::synchronises), or
// waits; in programs without data races other places to stop make no difference. Fragments of one
// warp take turns in a fixed order.

#ifndef WARPLOOM_EMULATOR_EXEC_SCHEDULE_EXHAUSTIVE_H_
#define WARPLOOM_EMULATOR_EXEC_SCHEDULE_EXHAUSTIVE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "emulator/exec/schedule/schedule.h"

namespace warploom::emulator {

// The choices of the schedule that is executed now, and those that are left.
class ChoiceTree {
 public:
  // A schedule interrupts warps that could go on at most so often.
  explicit ChoiceTree(uint32_t preemptions) : preemptions_(preemptions) {}

  uint32_t preemptions() const { return preemptions_; }

  // One of `options`, the first of them if the search has not been here.
  uint32_t choose(uint32_t options);
  // Notes that there were options which the limit of preemptions rules out.
  void cut() { cut_ = true; }
  bool was_cut() const { return cut_; }

  // Goes to the next schedule; false if there is none.
  bool advance();
  // The choices of the present schedule, such as "0 0 2".
  std::string describe() const;

 private:
  struct Choice {
    uint32_t taken;
    uint32_t options;
  };

  uint32_t preemptions_;
  std::vector<Choice> choices_;
  std::size_t depth_ = 0;  // choices that the present run has made
  bool cut_ = false;
};

// Makes the choices of `tree`, or, if it is nullptr, those of the first schedule.
std::unique_ptr<Scheduler> make_tree_scheduler(ChoiceTree* tree);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_SCHEDULE_EXHAUSTIVE_H_
