// The mbarrier instructions; the states of mbarriers are in async/mbarrier.h.

#include "emulator/async/mbarrier.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "emulator/check/checker.h"
#include "emulator/exec/isa/access.h"
#include "emulator/exec/isa/control/families.h"
#include "emulator/exec/isa/lanes.h"
#include "emulator/exec/machine/cluster.h"

namespace warploom::emulator {
namespace {

struct MbarrierForm {
  ptx::Space space = ptx::Space::kGeneric;
  bool expect = false;    // arrive.expect_tx: s[0] is a number of bytes
  bool parity = false;    // the wait compares the parity of the phase
  bool suspends = false;  // try_wait
  bool relaxed = false;
};

const MbarrierForm& form_of(const Op& op) { return *static_cast<const MbarrierForm*>(op.form); }

uint32_t address_of(const Warp& warp, const Op& op, int lane) {
  return shared_from(form_of(op).space, warp.address(op, lane));
}

uint32_t argument(const Warp& warp, const Op& op, int lane, uint32_t missing) {
  return op.s[0].present() ? warp.lanes<uint32_t>(op.s[0])[lane] : missing;
}

void note_arrival(Warp& warp, const Op& op, int lane, uint32_t address, uint64_t before) {
  Checker* checker = checker_of(warp.cluster());
  if (checker == nullptr) return;
  uint64_t after;
  std::memcpy(&after, warp.cluster().shared_at(address, 8), sizeof(after));
  checker->mbarrier_arrive(warp, op, lane, address, before, after, form_of(op).relaxed);
}

using Transition = uint64_t (*)(uint64_t state, uint32_t argument);

// Changes the state once for every active lane; the destination gets the state before.
template <Transition kTransition>
Step change(Warp& warp, const Op& op, uint32_t active) {
  for_each_lane(active, [&](int lane) {
    uint32_t value = argument(warp, op, lane, 1);
    bool expect = form_of(op).expect;
    uint32_t address = address_of(warp, op, lane);
    uint64_t before = warp.cluster().update_mbarrier(address, [&](uint64_t state) {
      return expect ? kTransition(mbarrier_expect_tx(state, value), 1) : kTransition(state, value);
    });
    note_arrival(warp, op, lane, address, before);
    if (op.d.present()) warp.set_value(op.d, lane, before);
  });
  return Step::kNext;
}

// An address that has held an mbarrier may hold another one: what is there does not count.
Step initialize(Warp& warp, const Op& op, uint32_t active) {
  for_each_lane(active, [&](int lane) {
    uint32_t address = address_of(warp, op, lane);
    uint32_t count = argument(warp, op, lane, 1);
    warp.cluster().update_mbarrier(address, [&](uint64_t) { return mbarrier_init(count); });
    if (Checker* checker = checker_of(warp.cluster())) {
      checker->mbarrier_init(warp, op, lane, address);
    }
  });
  return Step::kNext;
}

Step invalidate(Warp& warp, const Op& op, uint32_t active) {
  for_each_lane(active, [&](int lane) {
    uint32_t address = address_of(warp, op, lane);
    warp.cluster().update_mbarrier(address, mbarrier_inval);
    if (Checker* checker = checker_of(warp.cluster())) {
      checker->mbarrier_inval(warp, op, lane, address);
    }
  });
  return Step::kNext;
}

// Lanes that wait for one barrier with one result are one event. Returns whether a try_wait should
// give up, as it may at any time.
bool note_wait(Warp& warp, const Op& op, uint32_t active, uint32_t done) {
  Checker* checker = checker_of(warp.cluster());
  if (checker == nullptr) return false;
  bool gives_up = false;
  uint32_t address = 0;
  bool result = false;
  for (uint32_t left = active; left != 0; left &= left - 1) {
    int lane = __builtin_ctz(left);
    uint32_t next = address_of(warp, op, lane);
    bool next_result = (done >> lane & 1) != 0;
    if (left != active && next == address && next_result == result) continue;
    address = next;
    result = next_result;
    gives_up |= checker->mbarrier_wait(warp, op, lane, address, result, form_of(op).relaxed);
  }
  return gives_up;
}

Step wait(Warp& warp, const Op& op, uint32_t active) {
  const MbarrierForm& form = form_of(op);
  uint32_t done = 0;
  for_each_lane(active, [&](int lane) {
    uint32_t address = address_of(warp, op, lane);
    uint64_t state;
    std::memcpy(&state, warp.cluster().shared_at(address, 8), sizeof(state));
    bool complete = form.parity
                        ? mbarrier_phase_done(state, warp.lanes<uint32_t>(op.s[0])[lane] & 1)
                        : mbarrier_phase_done_token(state, warp.lanes<uint64_t>(op.s[0])[lane]);
    done |= static_cast<uint32_t>(complete) << lane;
  });
  bool gives_up = note_wait(warp, op, active, done);
  if (done == 0 && form.suspends && !gives_up) {
    // All lanes of one instruction wait at one barrier, but for programs that nobody writes.
    uint32_t address = address_of(warp, op, __builtin_ctz(active));
    bool same = true;
    for_each_lane(active, [&](int lane) { same &= address_of(warp, op, lane) == address; });
    if (same) {
      if (shared_rank(address) != warp.cta().rank()) {
        fault("a thread waits at the mbarrier 0x%x of another CTA", address);
      }
      warp.park({Wait::kMbarrier, address});
      return Step::kRetry;
    }
  }
  warp.set_predicate(op.d, done, active);
  return done == active ? Step::kNext : Step::kYield;
}

Step pending_count(Warp& warp, const Op& op, uint32_t active) {
  for_each_lane(active, [&](int lane) {
    warp.lanes<uint32_t>(op.d)[lane] = mbarrier_pending(warp.lanes<uint64_t>(op.s[0])[lane]);
  });
  return Step::kNext;
}

void take_order(Decoder& decoder, MbarrierForm& form) {
  form.relaxed = decoder.modifiers.take("relaxed");
  decoder.modifiers.take_all({"release", "acquire", "cta", "cluster", "b64"});
}

// op [address], argument
void decode_plain(Decoder& decoder, Run run, std::size_t least, std::size_t most) {
  decoder.expect_count(least, most);
  decoder.op.address = decoder.address(decoder.operand(0));
  if (decoder.count() == 2) decoder.op.s[0] = decoder.source(decoder.operand(1), Type::kU32);
  decoder.op.run = run;
}

// op state, [address], argument
void decode_arrive(Decoder& decoder, MbarrierForm& form, bool drop) {
  form.expect = decoder.modifiers.take("expect_tx");
  bool no_complete = decoder.modifiers.take("noComplete");
  decoder.expect_count(2, 3);
  decoder.op.d = decoder.destination(decoder.operand(0), 64);
  decoder.op.address = decoder.address(decoder.operand(1));
  if (decoder.count() == 3) decoder.op.s[0] = decoder.source(decoder.operand(2), Type::kU32);
  if (form.expect && decoder.count() != 3) decoder.fail("it needs a number of bytes");
  decoder.op.run = drop && no_complete ? change<mbarrier_arrive_drop_no_complete>
                   : drop              ? change<mbarrier_arrive_drop>
                   : no_complete       ? change<mbarrier_arrive_no_complete>
                                       : change<mbarrier_arrive>;
}

void decode_wait(Decoder& decoder, MbarrierForm& form) {
  form.parity = decoder.modifiers.take("parity");
  decoder.expect_count(3, 4);
  decoder.op.d = decoder.destination(decoder.operand(0), 1);
  decoder.op.address = decoder.address(decoder.operand(1));
  decoder.op.s[0] = decoder.source(decoder.operand(2), form.parity ? Type::kU32 : Type::kB64);
  decoder.op.run = wait;
}

void decode_mbarrier(Decoder& decoder) {
  std::string kind = decoder.modifiers.take_first();
  MbarrierForm form;
  if (kind == "pending_count") {
    decoder.modifiers.take_type();
    decoder.expect_count(2, 2);
    decoder.op.d = decoder.destination(decoder.operand(0), 32);
    decoder.op.s[0] = decoder.source(decoder.operand(1), Type::kB64);
    decoder.op.run = pending_count;
    return;
  }
  take_order(decoder, form);
  form.space = take_space(decoder);
  if (kind == "init") {
    decode_plain(decoder, initialize, 2, 2);
  } else if (kind == "inval") {
    decode_plain(decoder, invalidate, 1, 1);
  } else if (kind == "expect_tx") {
    decode_plain(decoder, change<mbarrier_expect_tx>, 2, 2);
  } else if (kind == "complete_tx") {
    decode_plain(decoder, change<mbarrier_complete_tx>, 2, 2);
  } else if (kind == "arrive" || kind == "arrive_drop") {
    decode_arrive(decoder, form, kind == "arrive_drop");
  } else if (kind == "test_wait" || kind == "try_wait") {
    form.suspends = kind == "try_wait";
    decode_wait(decoder, form);
  } else {
    decoder.fail("it is not supported");
  }
  decoder.form(form);
}

}  // namespace

void add_mbarrier_ops(DecodeTable& table) { table["mbarrier"] = decode_mbarrier; }

}  // namespace warploom::emulator
