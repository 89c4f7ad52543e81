// Uses of registers that wgmma and tcgen05.ld read and write while other instructions go on.

#include <string>

#include "emulator/base/fault.h"
#include "emulator/check/checker.h"
#include "emulator/exec/machine/describe_op.h"

namespace warploom::emulator {

void Checker::registers(Warp& warp, const Op& op, const WatchedOp& watched) {
  WarpState& own = state(warp);
  RegisterTags& tags = own.registers;
  if (tags.tags.empty()) tags.tags.resize(program_.accumulators->registers);
  if (watched.kind == WatchedOp::kMultiply) {
    check_multiply(warp, op, watched);
    return;
  }
  if (watched.kind == WatchedOp::kMove) {
    RegisterTags::Tag tag;
    if (watched.reads.size() == 1) tag = tags.tags[watched.reads[0]];
    for (uint32_t number : watched.reads) {
      RegisterTags::Tag& from = tags.tags[number];
      if (!tags.is_loading(from)) continue;
      tag.load = from.load;
      tag.loader = from.loader;
      from.copied = true;
    }
    tag.copied = false;
    for (uint32_t number : watched.writes) tags.tags[number] = tag;
    return;
  }
  check_loading(warp, op, watched);
  if (watched.kind == WatchedOp::kTensorLoad) {
    for (uint32_t number : watched.writes) {
      tags.tags[number] = {0, 0, tags.fences + 1, op_index(op), 0, 0,
                           tags.load_waits + 1, op_index(op), false};
    }
    return;
  }
  Stamp done{warpgroup_of(warp).dimension, 0};
  for (uint32_t number : watched.reads) {
    RegisterTags::Tag& tag = tags.tags[number];
    tag.read = tags.fences + 1;
    tag.reader = op_index(op);
    done.clock = tag.group;
    if (tag.group == 0 || own.known.base.knows(done)) continue;
    const Op* multiply = &program_.ops[tag.multiply];
    if (!log_.is_new(Finding::kRegisterRace, &op, multiply)) break;
    report(Finding::kRegisterRace, &op, multiply,
           format("%s reads an accumulator of %s, which may not have been written yet. Fix: "
                  "wgmma.wait_group (0, or as many as were committed after it) before the result "
                  "is used",
                  describe(mark_of(warp, op)).c_str(),
                  describe_op(program_, *multiply).c_str()));
    break;
  }
  for (uint32_t number : watched.writes) {
    tags.tags[number] = {0, 0, tags.fences + 1, op_index(op), 0, 0, 0, 0, false};
  }
}

// Nobody may touch what a tcgen05.ld writes before the wait; another tcgen05.ld may not, either,
// but gives nobody a wrong value.
void Checker::check_loading(Warp& warp, const Op& op, const WatchedOp& watched) {
  const RegisterTags& tags = state(warp).registers;
  auto missing = [&](const RegisterTags::Tag& tag, const char* verb) {
    const Op* load = &program_.ops[tag.loader];
    if (!log_.is_new(Finding::kTensorMemory, &op, load)) return;
    report(
        Finding::kTensorMemory, &op, load,
        format("%s %s a register that %s loads, and tcgen05.wait::ld is missing between the two: "
               "the value may not have arrived yet. Fix: tcgen05.wait::ld before the register "
               "is used",
               describe(mark_of(warp, op)).c_str(), verb, describe_op(program_, *load).c_str()));
  };
  for (uint32_t number : watched.reads) {
    const RegisterTags::Tag& tag = tags.tags[number];
    if (tags.is_loading(tag)) return missing(tag, "reads");
  }
  if (watched.kind == WatchedOp::kTensorLoad) return;
  for (uint32_t number : watched.writes) {
    const RegisterTags::Tag& tag = tags.tags[number];
    if (tags.is_loading(tag) && !tag.copied) return missing(tag, "overwrites");
  }
}

void Checker::wait_tensor_loads(Warp& warp) { ++state(warp).registers.load_waits; }

// The registers of a wgmma are its own once a fence has come after other instructions wrote them,
// or read its accumulators; the first wgmma of a warp needs one in any case.
void Checker::check_multiply(Warp& warp, const Op& op, const WatchedOp& watched) {
  WarpState& own = state(warp);
  RegisterTags& tags = own.registers;
  auto missing = [&](const Op* writer) {
    if (!log_.is_new(Finding::kRegisterRace, &op, writer)) return;
    std::string what =
        writer == nullptr
            ? std::string("is the first wgmma of its warp and no wgmma.fence comes before it")
            : format("uses a register that %s has used since the last wgmma.fence",
                     describe_op(program_, *writer).c_str());
    report(Finding::kRegisterRace, &op, writer,
           format("%s %s. Fix: wgmma.fence between the two", describe(mark_of(warp, op)).c_str(),
                  what.c_str()));
  };
  if (tags.fences == 0) missing(nullptr);
  auto check = [&](const std::vector<uint32_t>& numbers) {
    for (uint32_t number : numbers) {
      const RegisterTags::Tag& tag = tags.tags[number];
      if (tags.fences == 0 || tag.touched != tags.fences + 1) continue;
      missing(&program_.ops[tag.writer]);
      return;
    }
  };
  check(watched.reads);
  check(watched.writes);
  for (uint32_t number : watched.writes) {
    const RegisterTags::Tag& tag = tags.tags[number];
    if (tags.fences == 0 || tag.read != tags.fences + 1) continue;
    missing(&program_.ops[tag.reader]);
    break;
  }
  for (uint32_t number : watched.writes) {
    tags.tags[number] = {own.wgmma_commits + 1, op_index(op), 0, 0, 0, 0, 0, 0, false};
  }
}

void Checker::fence_wgmma(Warp& warp) { ++state(warp).registers.fences; }

Access Checker::mark_of(const Warp& warp, const Op& op) const {
  Access mark;
  mark.cluster = id_;
  mark.op = op_index(op) & 0xffffff;
  mark.thread = thread_of(warp, 0);
  return mark;
}

}  // namespace warploom::emulator
