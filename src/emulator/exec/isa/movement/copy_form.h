// What the instructions that copy asynchronously share: cp.async.bulk with and without tensor maps.

#ifndef WARPLOOM_EMULATOR_EXEC_ISA_MOVEMENT_COPY_FORM_H_
#define WARPLOOM_EMULATOR_EXEC_ISA_MOVEMENT_COPY_FORM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "emulator/async/bulk_copy.h"
#include "emulator/async/tensor_map.h"
#include "emulator/check/checker.h"
#include "emulator/exec/isa/decoder.h"
#include "emulator/exec/isa/lanes.h"
#include "emulator/exec/machine/cluster.h"
#include "emulator/exec/machine/counters.h"
#include "emulator/memory/memory.h"

namespace warploom::emulator {

// cp.async groups of a lane are counted apart from its bulk groups.
constexpr int kCpAsyncGroups = kLanes;

// An instruction of cp.async.bulk.
struct BulkForm {
  Address destination;
  Address source;
  Address mbarrier;      // present: completion is counted there; absent: in a bulk group
  Ref bytes;
  Ref multicast;         // mask of CTAs
  bool pairs = false;    // .cta_group::2
  bool gathers = false;  // .tile::gather4 or .tile::scatter4
  bool to_shared = false;
  bool from_shared = false;
  Reduction reduction = Reduction::kNone;
  Type type = Type::kNone;
  TensorMode mode = TensorMode::kTiled;
  std::vector<Ref> coordinates;
  std::vector<Ref> offsets;  // of im2col
};

// What the checker knows of the operation; nullptr if nothing is checked.
TicketPtr issue_copy(Warp& warp, const Op& op, int lane, bool to_mbarrier);

// Tells the counters, if there are any.
void count_copy(const Warp& warp, Path path, uint64_t read, uint64_t written);

// CTAs that a copy goes to.
uint32_t copy_targets(const Warp& warp, const BulkForm& form, int lane);

// The CTA whose mbarrier counts what arrives in `destination`: that CTA itself or, with
// .cta_group::2, the one of its pair that is even or odd as that of `mbarrier` is.
inline uint32_t signalled_rank(const BulkForm& form, uint32_t destination, uint32_t mbarrier) {
  return form.pairs ? (destination & ~1u) | (mbarrier & 1u) : destination;
}

// Calls issue(destination, mbarrier) for every CTA that a load goes to: the same offsets in each.
template <class Issue>
void for_each_target(Warp& warp, const BulkForm& form, int lane, Issue issue) {
  auto destination = static_cast<uint32_t>(warp.address(form.destination, lane));
  auto mbarrier = static_cast<uint32_t>(warp.address(form.mbarrier, lane));
  if (!form.multicast.present()) {
    const uint32_t to = shared_rank(destination), signals = shared_rank(mbarrier);
    if (signalled_rank(form, to, signals) != signals) {
      fault("the destination is in the CTA of rank %u and the mbarrier in that of rank %u; they "
            "must be in the same CTA%s",
            to, signals, form.pairs ? " or pair of CTAs" : ", or in a pair with .cta_group::2");
    }
    issue(destination, mbarrier);
    return;
  }
  uint32_t mask = warp.lanes<uint32_t>(form.multicast)[lane] & 0xffff;
  if (mask == 0) fault("the multicast mask is zero");
  for_each_lane(mask, [&](int rank) {
    auto target = static_cast<uint32_t>(rank);
    issue(shared_address(target, shared_offset(destination)),
          shared_address(signalled_rank(form, target, shared_rank(mbarrier)),
                         shared_offset(mbarrier)));
  });
}

// --- Decoding ---

// commit_group and wait_group, of cp.async or of cp.async.bulk; false if it is neither.
bool decode_copy_group(Decoder& decoder, bool cp_async);

// Where the data comes from and goes to, how the copy completes, and its hints.
struct BulkOptions {
  bool to_mbarrier = false;
  bool multicast = false;
  bool policy = false;
};
BulkOptions take_bulk_options(Decoder& decoder, BulkForm& form);

// The operands after the mbarrier, from the one at `next` on.
void take_hints(Decoder& decoder, BulkForm& form, const BulkOptions& options, std::size_t next);

Reduction take_reduction(Decoder& decoder);

// What follows "cp.async", "cp.async.bulk" (or "cp.reduce.async.bulk") and these with ".tensor".
void decode_copy_async(Decoder& decoder);
void decode_bulk_copy(Decoder& decoder, bool reduces);
void decode_tensor_copy(Decoder& decoder, bool reduces);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_ISA_MOVEMENT_COPY_FORM_H_
