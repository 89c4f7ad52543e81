// How the lanes of a warp meet at *.sync instructions.
//
// An *.aligned instruction needs all lanes that are alive, at one place in the program. Others have
// a member mask: the lanes that it names, and that have not exited, wait for each other until each
// has executed the same instruction with the same mask, be it at different places (PTX ISA,
// "shfl.sync", "match.sync", "bar.warp.sync"). Lanes of one fragment may give different masks; each
// group of equal masks is one operation.

#include <cstddef>
#include <cstdint>

#include "emulator/base/lanes.h"
#include "emulator/exec/machine/cluster.h"
#include "emulator/exec/machine/warp.h"

namespace warploom::emulator {
namespace {

// s[3] of instructions with a member mask is a second destination.
constexpr int kSources = 3;

// Instances of one instruction with the same qualifiers.
bool is_same(const Op& a, const Op& b) {
  return a.run == b.run && a.flag == b.flag && a.s[0].bits == b.s[0].bits;
}

uint32_t lanes_with(const uint32_t* values, uint32_t lanes, uint32_t value) {
  uint32_t equal = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    equal |= static_cast<uint32_t>(values[lane] == value) << lane;
  }
  return equal & lanes;
}

void copy_lanes(const Warp& warp, Ref from, Ref to, uint32_t lanes) {
  if (from.bits == 1) {
    warp.set_predicate(to, warp.predicate(from), lanes);
    return;
  }
  for_each_lane(lanes, [&](int lane) { warp.set_value(to, lane, warp.value(from, lane)); });
}

}  // namespace

Step Warp::run_sync(Fragment& fragment, const Op& op, uint32_t mask) {
  return op.members.present() ? meet_members(fragment, op, mask) : meet_warp(fragment, op, mask);
}

Step Warp::meet_warp(Fragment& fragment, const Op& op, uint32_t mask) {
  if (alive_ == mask) return op.run(*this, op, mask);
  uint32_t present = mask;
  for (const Fragment& other : fragments_) {
    if (other.state == Fragment::kParked && other.wait.kind == Wait::kLanes &&
        other.pc == fragment.pc) {
      present |= other.lanes;
    }
  }
  if ((alive_ & ~present) != 0) {
    park({Wait::kLanes, 0});
    return Step::kRetry;
  }
  // The others take part now; each goes on by itself.
  Step step = op.run(*this, op, present);
  for (Fragment& other : fragments_) {
    if (&other == &fragment || other.state != Fragment::kParked ||
        other.wait.kind != Wait::kLanes || other.pc != fragment.pc) {
      continue;
    }
    if (step == Step::kNext || step == Step::kYield) {
      other.pc += 1;
      other.wait = Wait{};
      set_state(other, Fragment::kReady);
    } else {
      other.wait = fragment.wait;
      if (step == Step::kPark) other.pc += 1;
    }
  }
  return step;
}

Step Warp::meet_members(Fragment& fragment, const Op& op, uint32_t mask) {
  const uint32_t* masks = lanes<uint32_t>(op.members);
  uint32_t waiting = 0;
  for (uint32_t left = mask; left != 0;) {
    const uint32_t members = masks[__builtin_ctz(left)];
    const uint32_t group = lanes_with(masks, left, members);
    left &= ~group;
    if ((group & ~members) != 0) {
      fault_of(FaultKind::kBarrier,
               "the lanes 0x%08x execute this with the member mask 0x%08x, which does not name "
               "them: PTX leaves undefined what happens. Fix: a mask that has all lanes that "
               "execute the instruction, and no others",
               group & ~members, members);
    }
    if (!meet(fragment, op, group, members)) waiting |= group;
  }
  return waiting == 0 ? Step::kNext : wait_for_members(fragment, op, waiting);
}

// Bit i: fragment i waits with this mask at an instance of this instruction.
uint32_t Warp::waiting_fragments(const Op& op, uint32_t members) const {
  uint32_t result = 0;
  for (uint32_t left = parked_; left != 0; left &= left - 1) {
    const int index = __builtin_ctz(left);
    const Fragment& other = fragments_[static_cast<std::size_t>(index)];
    if (other.wait.kind != Wait::kMembers || other.wait.key != members) continue;
    if (is_same(program_->ops[static_cast<std::size_t>(other.pc)], op)) result |= 1u << index;
  }
  return result;
}

uint32_t Warp::missing_members(const Fragment& fragment) const {
  const auto members = static_cast<uint32_t>(fragment.wait.key);
  const Op& op = program_->ops[static_cast<std::size_t>(fragment.pc)];
  uint32_t present = fragment.lanes;
  for (uint32_t left = waiting_fragments(op, members); left != 0; left &= left - 1) {
    present |= fragments_[static_cast<std::size_t>(__builtin_ctz(left))].lanes;
  }
  return members & alive_ & ~present;
}

// Executes the instruction for a group of lanes and those that wait for them; false if some of the
// members have not arrived.
bool Warp::meet(const Fragment& fragment, const Op& op, uint32_t group, uint32_t members) {
  if ((members & alive_ & ~group) == 0) {
    op.run(*this, op, group);
    return true;
  }
  const uint32_t others = waiting_fragments(op, members);
  uint32_t present = group;
  bool elsewhere = false;
  for (uint32_t left = others; left != 0; left &= left - 1) {
    const Fragment& other = fragments_[static_cast<std::size_t>(__builtin_ctz(left))];
    present |= other.lanes;
    elsewhere |= other.pc != fragment.pc;
  }
  if ((members & alive_ & ~present) != 0) return false;
  if (elsewhere && op.s[0].present()) {
    exchange(op, group, others, present);
  } else {
    op.run(*this, op, present);
  }
  for (uint32_t left = others; left != 0; left &= left - 1) {
    Fragment& other = fragments_[static_cast<std::size_t>(__builtin_ctz(left))];
    other.pc += 1;
    other.wait = Wait{};
    set_state(other, Fragment::kReady);
  }
  return true;
}

// Executes one instruction whose lanes are at instances with different registers.
void Warp::exchange(const Op& op, uint32_t group, uint32_t others, uint32_t present) {
  const MeetingPlace& place = program_->meeting;
  auto for_each_instance = [&](auto f) {
    f(op, group);
    for (uint32_t left = others; left != 0; left &= left - 1) {
      const Fragment& other = fragments_[static_cast<std::size_t>(__builtin_ctz(left))];
      f(program_->ops[static_cast<std::size_t>(other.pc)], other.lanes);
    }
  };
  Op joint = op;
  for (int i = 0; i < kSources; ++i) {
    if (op.s[i].present()) joint.s[i] = place.at(i, op.s[i].bits);
  }
  joint.s[kSources] = place.at(kSources, 1);
  joint.d = place.at(MeetingPlace::kDestination, op.d.bits);
  for_each_instance([&](const Op& from, uint32_t lanes) {
    for (int i = 0; i < kSources; ++i) {
      if (from.s[i].present()) copy_lanes(*this, from.s[i], joint.s[i], lanes);
    }
  });
  op.run(*this, joint, present);
  for_each_instance([&](const Op& to, uint32_t lanes) {
    copy_lanes(*this, joint.d, to.d, lanes);
    if (to.s[kSources].present()) copy_lanes(*this, joint.s[kSources], to.s[kSources], lanes);
  });
}

// Each group of equal masks waits by itself. The other lanes of the fragment go on: those that wait
// may need them.
Step Warp::wait_for_members(Fragment& fragment, const Op& op, uint32_t waiting) {
  const uint32_t* masks = lanes<uint32_t>(op.members);
  fragment.lanes &= ~waiting;
  while (waiting != 0) {
    const uint32_t members = masks[__builtin_ctz(waiting)];
    const uint32_t group = lanes_with(masks, waiting, members);
    waiting &= ~group;
    const bool stays = fragment.lanes == 0;
    if (stays) fragment.lanes = group;
    Fragment& waiter = stays ? fragment : add_fragment(group, fragment.pc, fragment.join);
    waiter.wait = {Wait::kMembers, members};
    set_state(waiter, Fragment::kParked);
  }
  return fragment.state == Fragment::kParked ? Step::kRetry : Step::kNext;
}

}  // namespace warploom::emulator
