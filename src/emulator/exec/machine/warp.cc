#include "emulator/exec/machine/warp.h"

#include <algorithm>
#include <cstddef>

#include "emulator/exec/machine/cluster.h"
#include "emulator/exec/machine/counters.h"
#include "emulator/exec/machine/special.h"

namespace warploom::emulator {

Warp::Warp(Cta& cta, uint32_t id, uint32_t lanes)
    : cta_(&cta),
      cluster_(&cta.cluster()),
      program_(&cta.cluster().launch().program),
      literals_(const_cast<uint8_t*>(program_->literals.data())),
      id_(id),
      alive_(lanes) {
  // Aligned to cache lines.
  const std::vector<uint8_t>& start_file = program_->file;
  std::size_t words = start_file.size() / 8 + 8;
  file_storage_.reset(new uint64_t[words]);
  auto start = (reinterpret_cast<uintptr_t>(file_storage_.get()) + 63) & ~uintptr_t{63};
  file_ = reinterpret_cast<uint8_t*>(start);
  std::copy(start_file.begin(), start_file.end(), file_);
  for (const Special& special : program_->specials) fill_special(special, *this);
  local_bytes_ = program_->function->local_bytes;
  local_.resize(local_bytes_ * kLanes);
  add_fragment(lanes, 0, -1);
}

uint8_t* Warp::local(int lane, uint64_t offset, uint32_t count) {
  uint64_t size = local_bytes_;
  if (count > size || offset > size - count) {
    fault("%u bytes at local offset 0x%llx are out of bounds: a thread has %llu bytes", count,
          static_cast<unsigned long long>(offset), static_cast<unsigned long long>(size));
  }
  return local_.data() + static_cast<uint64_t>(lane) * size + offset;
}

void Warp::set_state(Fragment& fragment, Fragment::State state) {
  fragment.state = state;
  uint32_t bit = 1u << (&fragment - fragments_.data());
  ready_ = state == Fragment::kReady ? ready_ | bit : ready_ & ~bit;
  parked_ = state == Fragment::kParked ? parked_ | bit : parked_ & ~bit;
}

Fragment& Warp::add_fragment(uint32_t lanes, int32_t pc, int32_t join) {
  for (Fragment& fragment : fragments_) {
    if (fragment.state != Fragment::kFree) continue;
    fragment = Fragment{};
    fragment.lanes = lanes;
    fragment.pc = pc;
    fragment.join = join;
    set_state(fragment, Fragment::kReady);
    return fragment;
  }
  fault("internal error: a warp has more fragments than lanes");
}

void Warp::remove(Fragment& fragment) {
  fragment.lanes = 0;
  set_state(fragment, Fragment::kFree);
}

void Warp::park(Wait wait) {
  current_->wait = wait;
  set_state(*current_, Fragment::kParked);
}

void Warp::wake(Wait::Kind kind, uint64_t key) {
  for (uint32_t left = parked_; left != 0; left &= left - 1) {
    Fragment& fragment = fragments_[static_cast<std::size_t>(__builtin_ctz(left))];
    if (fragment.wait.kind == kind && fragment.wait.key == key) {
      fragment.wait = Wait{};
      set_state(fragment, Fragment::kReady);
    }
  }
}

void Warp::wake_all(Wait::Kind kind) {
  for (uint32_t left = parked_; left != 0; left &= left - 1) {
    Fragment& fragment = fragments_[static_cast<std::size_t>(__builtin_ctz(left))];
    if (fragment.wait.kind != kind) continue;
    fragment.wait = Wait{};
    set_state(fragment, Fragment::kReady);
  }
}

const Op* Warp::current_op() const {
  auto pc = static_cast<std::size_t>(fragments_[last_].pc);
  return pc < program_->ops.size() ? &program_->ops[pc] : nullptr;
}

int32_t Warp::make_join(int32_t pc, int32_t parent, uint32_t expected) {
  auto unused = std::find_if(joins_.begin(), joins_.end(),
                             [](const Join& join) { return join.expected == 0; });
  if (unused == joins_.end()) unused = joins_.insert(joins_.end(), Join{});
  *unused = Join{pc, pc, parent, expected, 0};
  return static_cast<int32_t>(unused - joins_.begin());
}

// The lanes of `fragment` have reached the instruction where its join is.
void Warp::arrive(Fragment& fragment) {
  int32_t index = fragment.join;
  joins_[static_cast<std::size_t>(index)].arrived |= fragment.lanes;
  remove(fragment);
  release(index);
}

// Lets the lanes of a join go on if all of them have arrived.
void Warp::release(int32_t index) {
  Join& join = joins_[static_cast<std::size_t>(index)];
  if (join.expected == 0 || join.arrived != join.expected) return;
  Join done = join;
  join.expected = 0;
  add_fragment(done.arrived, done.resume, done.parent);
}

void Warp::split(Fragment& fragment, const Op& op, uint32_t taken) {
  int32_t next = fragment.pc + 1;
  uint32_t others = fragment.lanes & ~taken;
  int32_t join = fragment.join;
  bool same = join >= 0 && joins_[static_cast<std::size_t>(join)].pc == op.join;
  if (op.join >= 0 && !same) join = make_join(op.join, join, fragment.lanes);
  fragment.lanes = others;
  fragment.pc = next;
  fragment.join = join;
  add_fragment(taken, op.target, join);
}

void Warp::jump_table(Fragment& fragment, const Op& op) {
  const uint32_t* index = lanes<uint32_t>(op.s[0]);
  uint32_t left = fragment.lanes;
  int32_t join = fragment.join;
  bool same = join >= 0 && joins_[static_cast<std::size_t>(join)].pc == op.join;
  bool diverges = false;
  uint32_t first = index[__builtin_ctz(left)];
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!(left >> lane & 1)) continue;
    if (index[lane] >= op.count) fault("index %u is beyond a table of %u", index[lane], op.count);
    diverges |= index[lane] != first;
  }
  const int32_t* targets = program_->tables.data() + op.first;
  if (!diverges) {
    fragment.pc = targets[first];
    return;
  }
  if (op.join >= 0 && !same) join = make_join(op.join, join, fragment.lanes);
  remove(fragment);
  while (left != 0) {
    uint32_t chosen = index[__builtin_ctz(left)];
    uint32_t group = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      if ((left >> lane & 1) && index[lane] == chosen) group |= 1u << lane;
    }
    add_fragment(group, targets[chosen], join);
    left &= ~group;
  }
}

void Warp::exit(Fragment& fragment, uint32_t lanes) {
  alive_ &= ~lanes;
  fragment.lanes &= ~lanes;
  fragment.pc += 1;
  int32_t join = fragment.join;
  if (fragment.lanes == 0) remove(fragment);
  while (join >= 0) {
    Join& exited = joins_[static_cast<std::size_t>(join)];
    int32_t parent = exited.parent;
    exited.expected &= ~lanes;
    release(join);
    join = parent;
  }
  // Who waited for these lanes at a *.sync instruction looks again.
  wake_all(Wait::kLanes);
  wake_all(Wait::kMembers);
  cta_->on_exit(*this);
}

// Fragments take turns, so that one that spins cannot starve another.
uint32_t Warp::next_fragment() const {
  uint32_t later = ready_ & ~((2u << last_) - 1);
  return static_cast<uint32_t>(__builtin_ctz(later != 0 ? later : ready_));
}

bool Warp::is_at_join(const Fragment& fragment) const {
  return fragment.join >= 0 && joins_[static_cast<std::size_t>(fragment.join)].pc == fragment.pc;
}

uint32_t Warp::run(uint32_t budget, bool to_sync) {
  last_ = next_fragment();
  Fragment& fragment = fragments_[last_];
  current_ = &fragment;
  stop_ = Stop::kElsewhere;
  bool counts = cluster_->counters() != nullptr;
  uint32_t executed = counts    ? (to_sync ? run_fragment<true, true>(fragment, budget)
                                           : run_fragment<false, true>(fragment, budget))
                      : to_sync ? run_fragment<true, false>(fragment, budget)
                                : run_fragment<false, false>(fragment, budget);
  current_ = nullptr;
  return executed;
}

template <bool kToSync, bool kCounts>
uint32_t Warp::run_fragment(Fragment& fragment, uint32_t budget) {
  const Op* ops = program_->ops.data();
  [[maybe_unused]] Counters* counters = cluster_->counters();
  uint32_t executed = 0;
  while (executed < budget && fragment.state == Fragment::kReady) {
    if (is_at_join(fragment)) {
      arrive(fragment);
      break;
    }
    const Op& op = ops[fragment.pc];
    uint32_t mask = fragment.lanes;
    if (op.guard >= 0) {
      uint32_t guard = *reinterpret_cast<const uint32_t*>(file_ + op.guard);
      mask &= op.guard_negated ? ~guard : guard;
    }
    executed_ = ++executed;
    if constexpr (kCounts) counters->before(*this, op, mask);
    Step step = Step::kNext;
    if (op.flow == Flow::kStraight) {
      if (mask != 0) step = op.run(*this, op, mask);
      if (step != Step::kRetry) fragment.pc += 1;
    } else if (op.flow == Flow::kBranch) {
      if (mask == fragment.lanes) {
        fragment.pc = op.target;
      } else if (mask == 0) {
        fragment.pc += 1;
      } else {
        split(fragment, op, mask);
      }
    } else if (op.flow == Flow::kSync) {
      if (mask != 0) step = run_sync(fragment, op, mask);
      if (step != Step::kRetry) fragment.pc += 1;
    } else if (op.flow == Flow::kTable) {
      if (mask != fragment.lanes && mask != 0) fault("a guarded brx.idx may not diverge");
      if (mask == 0) {
        fragment.pc += 1;
      } else {
        jump_table(fragment, op);
      }
    } else if (mask == 0) {
      fragment.pc += 1;
    } else if (op.flow == Flow::kCall) {
      call(fragment, op, mask);
    } else if (op.flow == Flow::kReturn) {
      return_from(fragment, mask);
    } else {
      exit(fragment, mask);
    }
    if constexpr (kCounts) counters->after(*this, op, step);
    if (step != Step::kNext || (kToSync && op.synchronises)) {
      stop_ = step == Step::kYield ? Stop::kYield : Stop::kSync;
      break;
    }
  }
  return executed;
}

const Op* Warp::next_op() const {
  const Fragment& fragment = fragments_[next_fragment()];
  return is_at_join(fragment) ? nullptr : &program_->ops[static_cast<std::size_t>(fragment.pc)];
}

uint32_t Warp::next_lanes() const {
  const Op* op = next_op();
  if (op == nullptr) return 0;
  uint32_t mask = fragments_[next_fragment()].lanes;
  if (op->guard < 0) return mask;
  uint32_t guard = *reinterpret_cast<const uint32_t*>(file_ + op->guard);
  return mask & (op->guard_negated ? ~guard : guard);
}

std::vector<uint8_t> Warp::state() const {
  std::vector<uint8_t> result(file_, file_ + program_->file.size());
  auto append = [&](auto value) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
    result.insert(result.end(), bytes, bytes + sizeof(value));
  };
  append(last_);
  append(alive_);
  for (const Fragment& fragment : fragments_) {
    append(fragment.state);
    if (fragment.state == Fragment::kFree) continue;
    append(fragment.lanes);
    append(fragment.pc);
    append(fragment.join);
    append(fragment.wait.kind);
    append(fragment.wait.key);
  }
  for (const Join& join : joins_) {
    append(join.expected);
    if (join.expected == 0) continue;
    append(join.pc);
    append(join.resume);
    append(join.parent);
    append(join.arrived);
  }
  return result;
}

}  // namespace warploom::emulator
