// Control flow, and instructions that need no action here.

#include "emulator/check/checker.h"
#include "emulator/exec/isa/control/families.h"
#include "emulator/exec/isa/lanes.h"
#include "emulator/exec/isa/memory_hints.h"
#include "emulator/exec/isa/movement/tensor_map_ops.h"
#include "emulator/exec/machine/cluster.h"

#include <cstdint>
#include <string>
#include <vector>

namespace warploom::emulator {
namespace {

void decode_bra(Decoder& decoder) {
  decoder.modifiers.take("uni");
  decoder.op.flow = Flow::kBranch;
  decoder.op.target = decoder.instruction().targets[0];
}

void decode_brx(Decoder& decoder) {
  decoder.modifiers.take("idx");
  decoder.modifiers.take("uni");
  const std::vector<int>& targets = decoder.instruction().targets;
  decoder.op.flow = Flow::kTable;
  decoder.op.first = static_cast<uint32_t>(decoder.tables().size());
  decoder.op.count = static_cast<uint32_t>(targets.size());
  decoder.tables().insert(decoder.tables().end(), targets.begin(), targets.end());
  decoder.op.s[0] = decoder.source(decoder.operand(0), Type::kU32);
}

void decode_exit(Decoder& decoder) { decoder.op.flow = Flow::kExit; }

void decode_ret(Decoder& decoder) {
  decoder.modifiers.take("uni");
  decoder.op.flow = decoder.function().is_entry ? Flow::kExit : Flow::kReturn;
}

Step trap(Warp&, const Op&, uint32_t) { fault("the kernel executed trap"); }

void decode_trap(Decoder& decoder) { decoder.op.run = trap; }

// No debugger is there that could resume the kernel.
Step breakpoint(Warp&, const Op&, uint32_t) { fault("the kernel executed brkpt"); }

void decode_brkpt(Decoder& decoder) { decoder.op.run = breakpoint; }

Step nothing(Warp&, const Op&, uint32_t) { return Step::kNext; }

Step yield(Warp&, const Op&, uint32_t) { return Step::kYield; }

void decode_nanosleep(Decoder& decoder) {
  decoder.modifiers.take_type();
  decoder.op.run = yield;
}

// Performance monitors count nothing here.
void decode_pmevent(Decoder& decoder) {
  bool mask = decoder.modifiers.take("mask");
  decoder.expect_count(1, 1);
  int64_t value = decoder.integer(decoder.operand(0));
  int64_t most = mask ? 0xffff : 15;
  if (value < 0 || value > most) decoder.fail("it takes 0 to " + std::to_string(most));
  decoder.op.run = nothing;
}

// Memory is sequentially consistent here, asynchronous operations included: fences matter to the
// checker only.
template <void (Checker::*kFence)(Warp&)>
Step fence(Warp& warp, const Op&, uint32_t) {
  if (Checker* checker = checker_of(warp.cluster())) (checker->*kFence)(warp);
  return Step::kNext;
}

Step fence_memory(Warp& warp, const Op& op, uint32_t) {
  if (Checker* checker = checker_of(warp.cluster())) {
    checker->fence_memory(warp, op, *static_cast<const MemoryFence*>(op.form));
  }
  return Step::kNext;
}

void decode_fence(Decoder& decoder) {
  Modifiers& modifiers = decoder.modifiers;
  const bool acquires = modifiers.take("acquire");
  MemoryFence form;
  form.releases = !acquires;
  form.acquires = !modifiers.take("release");
  form.scope = take_scope(modifiers);
  modifiers.take_all({"acq_rel", "sc", "gl", "sync_restrict::shared::cta",
                      "sync_restrict::shared::cluster"});
  if (modifiers.take("mbarrier_init")) {
    decoder.op.run = fence<&Checker::fence_inits>;
  } else if (modifiers.take("proxy")) {
    if (modifiers.take("tensormap::generic")) {
      decode_tensor_map_fence(decoder, acquires);
      return;
    }
    modifiers.take_all({"async", "async::generic", "alias", "global", "shared::cta",
                        "shared::cluster"});
    decoder.op.run = fence<&Checker::fence_proxy>;
  } else {
    decoder.form(form);
    decoder.op.run = fence_memory;
  }
}

// op.count: registers of a thread; op.flag: whether they become more.
Step set_max_registers(Warp& warp, const Op& op, uint32_t) {
  Cta& cta = warp.cta();
  if (!cta.registers().change(warp.id(), {op.count, op.flag != 0})) {
    warp.park({Wait::kRegisters, op.count});
    return Step::kRetry;
  }
  if (op.flag == 0) cta.wake_all(Wait::kRegisters);
  return Step::kNext;
}

void decode_setmaxnreg(Decoder& decoder) {
  int direction = decoder.modifiers.take_one({"dec", "inc"});
  if (direction < 0) decoder.fail("it needs .inc or .dec");
  decoder.modifiers.take_all({"sync", "aligned", "u32"});
  int64_t count = decoder.integer(decoder.operand(0));
  if (count < 24 || count > 256 || count % 8 != 0) {
    decoder.fail("the register count must be a multiple of 8 from 24 to 256");
  }
  decoder.op.flow = Flow::kSync;
  decoder.op.flag = static_cast<uint8_t>(direction);
  decoder.op.count = static_cast<uint32_t>(count);
  decoder.op.run = set_max_registers;
}

// A kernel starts when those before it have finished: waiting matters to the checker only.
void decode_griddepcontrol(Decoder& decoder) {
  int mode = decoder.modifiers.take_one({"launch_dependents", "wait"});
  if (mode < 0) decoder.fail("it needs .launch_dependents or .wait");
  decoder.op.run = mode == 0 ? nothing : fence<&Checker::wait_for_grids>;
}

}  // namespace

void add_control_ops(DecodeTable& table) {
  table["bra"] = decode_bra;
  table["brx"] = decode_brx;
  table["ret"] = decode_ret;
  table["exit"] = decode_exit;
  table["trap"] = decode_trap;
  table["brkpt"] = decode_brkpt;
  table["nanosleep"] = decode_nanosleep;
  table["pmevent"] = decode_pmevent;
  table["fence"] = decode_fence;
  table["membar"] = decode_fence;
  table["setmaxnreg"] = decode_setmaxnreg;
  table["griddepcontrol"] = decode_griddepcontrol;
}

}  // namespace warploom::emulator
