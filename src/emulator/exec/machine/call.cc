#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "emulator/base/fault.h"
#include "emulator/base/lanes.h"
#include "emulator/exec/machine/call_form.h"
#include "emulator/exec/machine/warp.h"
#include "emulator/ptx/limits.h"

namespace warploom::emulator {
namespace {

uint32_t total_bytes(const std::vector<Passed>& list) {
  uint32_t bytes = 0;
  for (const Passed& passed : list) bytes += passed.bytes;
  return bytes;
}

// Values on their way between caller and callee: both may use the same registers and variables.
class Parcel {
 public:
  Parcel(Warp& warp, const std::vector<Passed>& from, uint32_t lanes) : bytes_(total_bytes(from)) {
    content_.resize(std::size_t{bytes_} * kLanes);
    for_each_lane(lanes, [&](int lane) {
      uint8_t* to = at(lane);
      for (const Passed& passed : from) {
        if (passed.in_memory) {
          std::memcpy(to, warp.local(lane, warp.value(passed.value, lane), passed.bytes),
                      passed.bytes);
        } else {
          uint64_t value = warp.value(passed.value, lane);
          std::memcpy(to, &value, passed.bytes);
        }
        to += passed.bytes;
      }
    });
  }

  void deliver(Warp& warp, const std::vector<Passed>& into, uint32_t lanes) {
    for_each_lane(lanes, [&](int lane) {
      const uint8_t* from = at(lane);
      for (const Passed& passed : into) {
        if (passed.in_memory) {
          std::memcpy(warp.local(lane, warp.value(passed.value, lane), passed.bytes), from,
                      passed.bytes);
        } else if (passed.value.present()) {
          uint64_t value = 0;
          std::memcpy(&value, from, passed.bytes);
          warp.set_value(passed.value, lane, value);
        }
        from += passed.bytes;
      }
    });
  }

 private:
  uint8_t* at(int lane) { return content_.data() + bytes_ * static_cast<std::size_t>(lane); }

  uint32_t bytes_;
  std::vector<uint8_t> content_;
};

std::size_t words_of(Ref ref) { return ref.bits == 1 ? 1 : ref.bits / 32u * kLanes; }

std::vector<uint32_t> save(const Warp& warp, const std::vector<Ref>& values) {
  std::vector<uint32_t> saved;
  for (Ref ref : values) {
    const uint32_t* from = warp.lanes<uint32_t>(ref);
    saved.insert(saved.end(), from, from + words_of(ref));
  }
  return saved;
}

void restore(const Warp& warp, const std::vector<Ref>& values, const std::vector<uint32_t>& saved,
             uint32_t lanes) {
  const uint32_t* from = saved.data();
  for (Ref ref : values) {
    uint32_t* to = warp.lanes<uint32_t>(ref);
    if (ref.bits == 1) {
      warp.set_predicate(ref, *from, lanes);
    } else {
      std::size_t words = ref.bits / 32u;
      for_each_lane(lanes, [&](int lane) {
        std::size_t at = static_cast<std::size_t>(lane) * words;
        std::memcpy(to + at, from + at, words * 4);
      });
    }
    from += words_of(ref);
  }
}

std::vector<uint32_t> sizes(const std::vector<Passed>& list) {
  std::vector<uint32_t> result;
  for (const Passed& passed : list) result.push_back(passed.bytes);
  return result;
}

// Of a thread: frames, and registers that recursive functions save.
void check_stack(uint64_t bytes) {
  if (bytes <= ptx::kMostLocalBytes) return;
  fault("a thread needs %" PRIu64 " bytes of local memory for its calls; %" PRIu64 " are allowed",
        bytes, ptx::kMostLocalBytes);
}

// The function at an address that a kernel calls.
int find_callee(const Program& program, const CallForm& form, uint64_t address) {
  const int place = program.find_function(function_index(address));
  if (place > 0) {
    const ProgramFunction& function = program.functions[static_cast<std::size_t>(place)];
    std::string why = mismatch(form, sizes(function.inputs), sizes(function.outputs));
    if (!why.empty()) {
      fault("the call of %s is not possible: %s", function.source->name.c_str(), why.c_str());
    }
    return place;
  }
  fault("the call goes to 0x%" PRIx64 ", which is not the address of a function", address);
}

}  // namespace

const Call* Warp::innermost_call(int32_t join) const {
  while (join >= 0) {
    const Join& candidate = joins_[static_cast<std::size_t>(join)];
    if (candidate.pc == Join::kCall) return &calls_[static_cast<std::size_t>(join)];
    join = candidate.parent;
  }
  return nullptr;
}

void Warp::reserve_local(uint64_t bytes) {
  if (bytes <= local_bytes_) return;
  uint64_t grown = std::max(bytes, std::min(2 * local_bytes_, ptx::kMostLocalBytes));
  std::vector<uint8_t> larger(grown * kLanes);
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    std::copy_n(local_.data() + lane * local_bytes_, local_bytes_, larger.data() + lane * grown);
  }
  local_.swap(larger);
  local_bytes_ = grown;
}

void Warp::call(Fragment& fragment, const Op& op, uint32_t lanes) {
  const auto& form = *static_cast<const CallForm*>(op.form);
  int32_t after = fragment.pc + 1;
  int32_t parent = fragment.join;
  uint32_t all = fragment.lanes;
  std::array<int, kLanes> callees;
  int first = __builtin_ctz(lanes);
  bool diverges = lanes != all;
  for_each_lane(lanes, [&](int lane) {
    int callee = form.callee;
    if (callee < 0) callee = find_callee(*program_, form, value(op.s[0], lane));
    callees[static_cast<std::size_t>(lane)] = callee;
    diverges |= callee != callees[static_cast<std::size_t>(first)];
  });
  // Lanes that call different functions, or none, meet behind the call.
  if (diverges) parent = make_join(after, parent, all);
  remove(fragment);
  if (lanes != all) add_fragment(all & ~lanes, after, parent);
  while (lanes != 0) {
    int callee = callees[static_cast<std::size_t>(__builtin_ctz(lanes))];
    uint32_t group = 0;
    for_each_lane(lanes, [&](int lane) {
      if (callees[static_cast<std::size_t>(lane)] == callee) group |= 1u << lane;
    });
    enter(op, callee, group, after, parent);
    lanes &= ~group;
  }
}

void Warp::enter(const Op& site, int callee, uint32_t lanes, int32_t after, int32_t parent) {
  const Call* outer = innermost_call(parent);
  const ProgramFunction& caller =
      program_->functions[static_cast<std::size_t>(outer != nullptr ? outer->callee : 0)];
  const ProgramFunction& function = program_->functions[static_cast<std::size_t>(callee)];
  Call call;
  call.site = &site;
  call.callee = callee;
  call.frame = (outer != nullptr ? outer->frame : 0) + caller.frame_bytes();
  call.depth = (outer != nullptr ? outer->depth : 0) + 1;
  if (call.depth > kMostCalls) {
    fault("the call of %s is nested %u calls deep; %u are allowed", function.source->name.c_str(),
          call.depth, kMostCalls);
  }
  if (caller.recursive) call.saved = save(*this, caller.values);
  call.stack = (outer != nullptr ? outer->stack : 0) + caller.frame_bytes() +
               call.saved.size() * sizeof(uint32_t) / kLanes;
  check_stack(call.stack + function.frame_bytes());
  reserve_local(call.frame + function.frame_bytes());
  Parcel arguments(*this, static_cast<const CallForm*>(site.form)->inputs, lanes);
  for (const auto& address : function.addresses) {
    uint64_t place = call.frame + address.offset;
    for_each_lane(lanes, [&](int lane) {
      set_value(address.place, lane, address.generic ? kLocalWindow | place : place);
    });
  }
  arguments.deliver(*this, function.inputs, lanes);
  int32_t join = make_join(Join::kCall, parent, lanes);
  joins_[static_cast<std::size_t>(join)].resume = after;
  calls_.resize(joins_.size());
  calls_[static_cast<std::size_t>(join)] = std::move(call);
  add_fragment(lanes, function.entry, join);
}

void Warp::return_from(Fragment& fragment, uint32_t lanes) {
  int32_t join = fragment.join;
  while (joins_[static_cast<std::size_t>(join)].pc != Join::kCall) {
    Join& skipped = joins_[static_cast<std::size_t>(join)];
    int32_t parent = skipped.parent;
    skipped.expected &= ~lanes;
    release(join);
    join = parent;
  }
  const Call& call = calls_[static_cast<std::size_t>(join)];
  const Call* outer = innermost_call(joins_[static_cast<std::size_t>(join)].parent);
  const ProgramFunction& caller =
      program_->functions[static_cast<std::size_t>(outer != nullptr ? outer->callee : 0)];
  const auto& form = *static_cast<const CallForm*>(call.site->form);
  Parcel results(*this, program_->functions[static_cast<std::size_t>(call.callee)].outputs, lanes);
  if (!call.saved.empty()) restore(*this, caller.values, call.saved, lanes);
  results.deliver(*this, form.outputs, lanes);
  fragment.lanes &= ~lanes;
  fragment.pc += 1;
  if (fragment.lanes == 0) remove(fragment);
  joins_[static_cast<std::size_t>(join)].arrived |= lanes;
  release(join);
}

}  // namespace warploom::emulator
