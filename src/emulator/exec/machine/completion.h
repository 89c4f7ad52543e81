// Asynchronous operations that have been issued and not completed.

#ifndef WARPLOOM_EMULATOR_EXEC_MACHINE_COMPLETION_H_
#define WARPLOOM_EMULATOR_EXEC_MACHINE_COMPLETION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>

namespace warploom::emulator {

class Warp;
struct Op;

// The operations of one cluster. They complete in any order (PTX ISA, "Asynchronous operations"),
// but for those of a pipeline: these do in the order of their issue.
class CompletionQueue {
 public:
  using Thread = std::pair<const Warp*, int>;

  // `complete` does all the work, including what the operation signals.
  // `issuer` is the instruction that a fault names.
  void add(const Op& issuer, std::function<void()> complete);

  // An operation of the bulk group that the thread has open.
  void add_to_group(Warp& warp, int lane, const Op& issuer, std::function<void()> complete);
  void commit_group(const Warp& warp, int lane);
  // Whether all groups of the thread but the `allowed` latest ones have completed.
  bool groups_done(const Warp& warp, int lane, uint32_t allowed) const;

  // An operation that completes after those before it with the same `pipeline`. Numbers are free to
  // choose.
  void add_to_pipeline(uint64_t pipeline, const Op& issuer, std::function<void()> complete);

  // The operations that can complete next, the oldest first.
  bool empty() const { return pending_.empty(); }
  uint32_t count() const { return static_cast<uint32_t>(pending_.size()); }
  void complete(uint32_t index) { complete_at(index); }
  // Completes all operations in groups of a thread.
  void complete_groups(const Warp& warp, int lane);

 private:
  struct Groups {
    uint64_t committed = 0;                 // number of the group that is open
    std::map<uint64_t, uint32_t> pending;   // operations of each group that has some
  };

  static constexpr uint64_t kNoPipeline = UINT64_MAX;

  struct Operation {
    std::function<void()> complete;
    const Op* issuer;
    Thread thread;  // of an operation in a group
    uint64_t pipeline;
  };

  void complete_at(std::size_t index);
  void advance(uint64_t pipeline);

  std::deque<Operation> pending_;
  std::map<Thread, Groups> groups_;
  // Operations that wait for the one of their pipeline that is pending. There is no entry for a
  // pipeline without operations.
  std::map<uint64_t, std::deque<Operation>> pipelines_;
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_MACHINE_COMPLETION_H_
