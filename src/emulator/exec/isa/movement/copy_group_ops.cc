// Groups of cp.async and of cp.async.bulk: commit_group and wait_group.

#include "emulator/exec/isa/movement/copy_form.h"

namespace warploom::emulator {
namespace {

// op.flag: 1 for the groups of cp.async.
int group_key(const Op& op, int lane) { return lane + (op.flag != 0 ? kCpAsyncGroups : 0); }

void note_commit(Checker& checker, Warp& warp, const Op& op, uint32_t active) {
  if (op.flag != 0) {
    checker.commit_copy_async(warp);
  } else {
    for_each_lane(active, [&](int lane) { checker.commit_bulk_group(warp, lane); });
  }
}

// s[0], op.count: as wait_group has them.
void note_wait(Checker& checker, Warp& warp, const Op& op, uint32_t active) {
  if (op.flag == 0) {
    for_each_lane(active, [&](int lane) {
      checker.wait_bulk_group(warp, lane, warp.lanes<uint32_t>(op.s[0])[lane], op.count != 0);
    });
  } else if (op.s[0].present()) {
    checker.wait_copy_async(warp, warp.lanes<uint32_t>(op.s[0])[__builtin_ctz(active)]);
  } else {
    checker.wait_copy_async_all(warp);
  }
}

Step commit_group(Warp& warp, const Op& op, uint32_t active) {
  for_each_lane(active, [&](int lane) {
    warp.cluster().completions().commit_group(warp, group_key(op, lane));
  });
  if (Checker* checker = checker_of(warp.cluster())) note_commit(*checker, warp, op, active);
  return Step::kNext;
}

// s[0]: how many groups may be pending; absent for wait_all, which takes uncommitted ones too.
// op.count: 1 if only the reads of the groups have to be done.
Step wait_group(Warp& warp, const Op& op, uint32_t active) {
  CompletionQueue& queue = warp.cluster().completions();
  int waits = -1;
  for_each_lane(active, [&](int lane) {
    int key = group_key(op, lane);
    if (!op.s[0].present()) {
      queue.complete_groups(warp, key);
    } else if (!queue.groups_done(warp, key, warp.lanes<uint32_t>(op.s[0])[lane])) {
      waits = key;
    }
  });
  if (waits < 0) {
    if (Checker* checker = checker_of(warp.cluster())) note_wait(*checker, warp, op, active);
    return Step::kNext;
  }
  warp.park({Wait::kBulkGroup, static_cast<uint64_t>(waits)});
  return Step::kRetry;
}

}  // namespace

bool decode_copy_group(Decoder& decoder, bool cp_async) {
  decoder.op.flag = cp_async ? 1 : 0;
  if (decoder.modifiers.take("commit_group")) {
    decoder.expect_count(0, 0);
    decoder.op.run = commit_group;
  } else if (decoder.modifiers.take("wait_all")) {
    decoder.op.run = wait_group;
  } else if (decoder.modifiers.take("wait_group")) {
    decoder.op.count = decoder.modifiers.take("read") ? 1 : 0;
    decoder.expect_count(1, 1);
    decoder.op.s[0] = decoder.source(decoder.operand(0), Type::kU32);
    decoder.op.run = wait_group;
  }
  return decoder.op.run != nullptr;
}

}  // namespace warploom::emulator
