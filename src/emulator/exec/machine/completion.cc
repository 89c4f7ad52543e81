#include "emulator/exec/machine/completion.h"

#include <cstddef>
#include <string>

#include "emulator/exec/machine/warp.h"

namespace warploom::emulator {
namespace {

std::string in_operation(const Fault& error, const ptx::Instruction& issuer) {
  return format("%s (in the asynchronous operation of '%s', PTX line %d)", error.what(),
                issuer.text.c_str(), issuer.line);
}

}  // namespace


void CompletionQueue::add(const Op& issuer, std::function<void()> complete) {
  pending_.push_back({std::move(complete), &issuer, {nullptr, 0}, kNoPipeline});
}

void CompletionQueue::add_to_pipeline(uint64_t pipeline, const Op& issuer,
                                      std::function<void()> complete) {
  Operation operation{std::move(complete), &issuer, {nullptr, 0}, pipeline};
  auto [waiting, first] = pipelines_.try_emplace(pipeline);
  (first ? pending_ : waiting->second).push_back(std::move(operation));
}

void CompletionQueue::add_to_group(Warp& warp, int lane, const Op& issuer,
                                   std::function<void()> complete) {
  Thread thread{&warp, lane};
  uint64_t group = groups_[thread].committed;
  ++groups_[thread].pending[group];
  auto finish = [this, thread, group, &warp, work = std::move(complete)] {
    work();
    auto& pending = groups_[thread].pending;
    if (--pending[group] == 0) pending.erase(group);
    warp.wake(Wait::kBulkGroup, static_cast<uint64_t>(thread.second));
  };
  pending_.push_back({std::move(finish), &issuer, thread, kNoPipeline});
}

void CompletionQueue::commit_group(const Warp& warp, int lane) {
  ++groups_[{&warp, lane}].committed;
}

bool CompletionQueue::groups_done(const Warp& warp, int lane, uint32_t allowed) const {
  auto found = groups_.find({&warp, lane});
  if (found == groups_.end() || found->second.pending.empty()) return true;
  uint64_t oldest = found->second.pending.begin()->first;
  return oldest + allowed >= found->second.committed;
}

void CompletionQueue::complete_groups(const Warp& warp, int lane) {
  Thread thread{&warp, lane};
  for (std::size_t i = 0; i < pending_.size();) {
    if (pending_[i].thread == thread) {
      complete_at(i);
    } else {
      ++i;
    }
  }
}

// The next operation of a pipeline can complete.
void CompletionQueue::advance(uint64_t pipeline) {
  auto waiting = pipelines_.find(pipeline);
  if (waiting->second.empty()) {
    pipelines_.erase(waiting);
    return;
  }
  pending_.push_back(std::move(waiting->second.front()));
  waiting->second.pop_front();
}

void CompletionQueue::complete_at(std::size_t index) {
  Operation operation = std::move(pending_[index]);
  pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(index));
  if (operation.pipeline != kNoPipeline) advance(operation.pipeline);
  try {
    operation.complete();
  } catch (const OutOfBounds& error) {
    throw OutOfBounds(in_operation(error, *operation.issuer->source), error.address());
  } catch (const Fault& error) {
    throw Fault(in_operation(error, *operation.issuer->source), error.kind());
  }
}

}  // namespace warploom::emulator
