// clusterlaunchcontrol: a cluster takes over the work of one that has not started (PTX ISA,
// "Parallel Synchronization and Communication Instructions").
//
// The response is opaque to programs. Here its words are the coordinates of the first CTA of the
// cluster whose launch was cancelled, and whether there was one.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "emulator/check/checker.h"
#include "emulator/exec/isa/access.h"
#include "emulator/exec/isa/complete_bytes.h"
#include "emulator/exec/isa/control/families.h"
#include "emulator/exec/isa/lanes.h"
#include "emulator/exec/isa/movement/wide.h"
#include "emulator/exec/machine/cluster.h"

namespace warploom::emulator {
namespace {

using Response = std::array<uint32_t, 4>;
constexpr uint32_t kBytes = sizeof(Response);

struct CancelForm {
  Address mbarrier;
  ptx::Space space = ptx::Space::kGeneric;
  bool multicast = false;
};

Response cancel(const Cluster& cluster) {
  const Launch& launch = cluster.launch();
  std::optional<uint64_t> number =
      cluster.source() != nullptr ? cluster.source()->take() : std::nullopt;
  if (!number) return Response{};
  const Dim3& shape = launch.cluster;
  Dim3 id = GridShape(launch).id(*number);
  return {id[0] * shape[0], id[1] * shape[1], id[2] * shape[2], 1};
}

void respond(Cluster& cluster, const Response& response, uint32_t address, uint32_t mbarrier,
             const TicketPtr& ticket) {
  if (ticket != nullptr) {
    checker_of(cluster)->complete_on(*ticket, mbarrier);
    checker_of(cluster)->async_shared(*ticket, address, kBytes, Touch::kWrite);
  }
  std::memcpy(cluster.shared_at(address, kBytes), response.data(), kBytes);
  complete_bytes(cluster, mbarrier, kBytes, ticket);
}

Step try_cancel(Warp& warp, const Op& op, uint32_t active) {
  const auto& form = *static_cast<const CancelForm*>(op.form);
  Cluster& cluster = warp.cluster();
  for_each_lane(active, [&](int lane) {
    uint32_t address = shared_from(form.space, warp.address(op, lane));
    uint32_t mbarrier = shared_from(form.space, warp.address(form.mbarrier, lane));
    if (address % kBytes != 0) {
      fault("lane %d: the address 0x%x is not a multiple of %u", lane, address, kBytes);
    }
    Checker* checker = checker_of(cluster);
    TicketPtr ticket = checker != nullptr ? checker->issue(warp, op, lane) : nullptr;
    bool multicast = form.multicast;
    cluster.completions().add(op, [=, &cluster] {
      Response response = cancel(cluster);
      uint32_t first = multicast ? 0 : shared_rank(address);
      uint32_t last = multicast ? cluster.size() - 1 : first;
      for (uint32_t rank = first; rank <= last; ++rank) {
        respond(cluster, response, shared_address(rank, shared_offset(address)),
                shared_address(rank, shared_offset(mbarrier)), ticket);
      }
    });
  });
  return Step::kNext;
}

uint32_t word(const Bits128& response, std::size_t index) {
  uint64_t half = index < 2 ? response.low : response.high;
  return static_cast<uint32_t>(half >> (32 * (index % 2)));
}

Step is_canceled(Warp& warp, const Op& op, uint32_t active) {
  const Bits128* responses = wide_lanes(warp, op.s[0]);
  uint32_t set = 0;
  for_each_lane(active, [&](int lane) {
    set |= static_cast<uint32_t>(word(responses[lane], 3) != 0) << lane;
  });
  warp.set_predicate(op.d, set, active);
  return Step::kNext;
}

// op.flag: the first coordinate; op.count registers get it and those that follow.
Step first_cta(Warp& warp, const Op& op, uint32_t active) {
  const Bits128* responses = wide_lanes(warp, op.s[0]);
  const Ref* refs = warp.program().refs.data() + op.first;
  for_each_lane(active, [&](int lane) {
    if (word(responses[lane], 3) == 0) {
      fault("the coordinates of a request that did not cancel a cluster are undefined");
    }
    for (uint32_t i = 0; i < op.count; ++i) {
      uint32_t value = i == 3 ? 0 : word(responses[lane], op.flag + i);
      if (refs[i].present()) warp.lanes<uint32_t>(refs[i])[lane] = value;
    }
  });
  return Step::kNext;
}

void decode_try_cancel(Decoder& decoder) {
  Modifiers& modifiers = decoder.modifiers;
  modifiers.take("try_cancel");
  if (!modifiers.take("async") || !modifiers.take("mbarrier::complete_tx::bytes")) {
    decoder.fail("it needs .async and .mbarrier::complete_tx::bytes");
  }
  CancelForm form;
  form.multicast = modifiers.take("multicast::cluster::all");
  form.space = take_space(decoder);
  if (modifiers.take_type() != Type::kB128) decoder.fail("it needs .b128");
  decoder.expect_count(2, 2);
  decoder.op.address = decoder.address(decoder.operand(0));
  form.mbarrier = decoder.address(decoder.operand(1));
  decoder.form(form);
  decoder.op.run = try_cancel;
}

void decode_query_cancel(Decoder& decoder) {
  Modifiers& modifiers = decoder.modifiers;
  modifiers.take("query_cancel");
  decoder.expect_count(2, 2);
  decoder.op.s[0] = decoder.source(decoder.operand(1), Type::kB128);
  if (modifiers.take("is_canceled")) {
    modifiers.take_all({"pred", "b128"});
    decoder.op.d = decoder.destination(decoder.operand(0), 1);
    decoder.op.run = is_canceled;
    return;
  }
  int axis = modifiers.take_one({"get_first_ctaid::x", "get_first_ctaid::y", "get_first_ctaid::z",
                                 "get_first_ctaid"});
  if (axis < 0) decoder.fail("it needs .is_canceled or .get_first_ctaid");
  modifiers.take_all({"v4", "b32", "b128"});
  decoder.op.flag = static_cast<uint8_t>(axis == 3 ? 0 : axis);
  decoder.destinations(decoder.operand(0), 32);
  if (decoder.op.count != (axis == 3 ? 4u : 1u)) {
    decoder.fail("it has a wrong number of registers");
  }
  decoder.op.run = first_cta;
}

}  // namespace

void add_launch_control_ops(DecodeTable& table) {
  table["clusterlaunchcontrol.try_cancel"] = decode_try_cancel;
  table["clusterlaunchcontrol.query_cancel"] = decode_query_cancel;
}

}  // namespace warploom::emulator
