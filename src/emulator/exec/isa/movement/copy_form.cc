#include "emulator/exec/isa/movement/copy_form.h"

#include <string_view>

namespace warploom::emulator {
namespace {

// Where the data comes from and goes to: the first of two spaces is the destination.
void take_direction(Decoder& decoder, BulkForm& form) {
  const auto& words = decoder.instruction().modifiers;
  std::vector<std::string_view> spaces;
  for (std::string_view word : words) {
    if (word == "global" || word == "shared::cta" || word == "shared::cluster") {
      spaces.push_back(word);
    }
  }
  if (spaces.size() != 2) decoder.fail("it needs two state spaces");
  form.to_shared = spaces[0] != "global";
  form.from_shared = spaces[1] != "global";
  decoder.modifiers.take(spaces[0]);
  decoder.modifiers.take(spaces[1]);
}

}  // namespace

TicketPtr issue_copy(Warp& warp, const Op& op, int lane, bool to_mbarrier) {
  Checker* checker = checker_of(warp.cluster());
  if (checker == nullptr) return nullptr;
  return to_mbarrier ? checker->issue(warp, op, lane)
                     : checker->issue_in_bulk_group(warp, op, lane);
}

void count_copy(const Warp& warp, Path path, uint64_t read, uint64_t written) {
  if (Counters* counters = warp.cluster().counters()) counters->moved(path, read, written);
}

uint32_t copy_targets(const Warp& warp, const BulkForm& form, int lane) {
  if (!form.multicast.present()) return 1;
  return static_cast<uint32_t>(
      __builtin_popcount(warp.lanes<uint32_t>(form.multicast)[lane] & 0xffff));
}

BulkOptions take_bulk_options(Decoder& decoder, BulkForm& form) {
  Modifiers& modifiers = decoder.modifiers;
  take_direction(decoder, form);
  form.pairs = modifiers.take_one({"cta_group::1", "cta_group::2"}) == 1;
  BulkOptions options;
  options.to_mbarrier = modifiers.take("mbarrier::complete_tx::bytes");
  if (!options.to_mbarrier && !modifiers.take("bulk_group")) {
    decoder.fail("it does not say how it completes");
  }
  options.multicast = modifiers.take("multicast::cluster");
  options.policy = modifiers.take("L2::cache_hint");
  return options;
}

void take_hints(Decoder& decoder, BulkForm& form, const BulkOptions& options, std::size_t next) {
  if (options.multicast) form.multicast = decoder.source(decoder.operand(next++), Type::kU16);
  if (options.policy) ++next;
  decoder.expect_count(next, next);
}

Reduction take_reduction(Decoder& decoder) {
  static constexpr Reduction kReductions[] = {
      Reduction::kAdd, Reduction::kMin, Reduction::kMax, Reduction::kInc,
      Reduction::kDec, Reduction::kAnd, Reduction::kOr,  Reduction::kXor};
  int index = decoder.modifiers.take_one({"add", "min", "max", "inc", "dec", "and", "or", "xor"});
  if (index < 0) decoder.fail("it needs an operation");
  return kReductions[index];
}

}  // namespace warploom::emulator
