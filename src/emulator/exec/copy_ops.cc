// cp.async, cp.async.bulk and cp.async.bulk.tensor: issue; the data moves when they complete.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "emulator/async/bulk_copy.h"
#include "emulator/async/mbarrier.h"
#include "emulator/async/tensor_map.h"
#include "emulator/check/checker.h"
#include "emulator/exec/access.h"
#include "emulator/exec/cluster.h"
#include "emulator/exec/complete_bytes.h"
#include "emulator/exec/counters.h"
#include "emulator/exec/lanes.h"
#include "emulator/matrix/swizzle.h"

namespace warploom::emulator {
namespace {

using ptx::Operand;
using ptx::Space;

// cp.async groups of a lane are counted apart from its bulk groups.
constexpr int kCpAsyncGroups = kLanes;

struct CopyForm {
  Address destination;
  Address source;
  Address mbarrier;      // present: completion is counted there; absent: in a bulk group
  Ref bytes;
  Ref source_bytes;      // of cp.async; the rest is zero
  Ref ignore_source;     // predicate of cp.async
  Ref multicast;         // mask of CTAs
  bool pairs = false;    // .cta_group::2
  bool gathers = false;  // .tile::gather4 or .tile::scatter4
  bool to_shared = false;
  bool from_shared = false;
  Reduction reduction = Reduction::kNone;
  Type type = Type::kNone;
  std::vector<Ref> coordinates;
};

const CopyForm& form_of(const Op& op) { return *static_cast<const CopyForm*>(op.form); }

TicketPtr issue(Warp& warp, const Op& op, int lane, bool to_mbarrier) {
  Checker* checker = warp.cluster().checker();
  if (checker == nullptr) return nullptr;
  return to_mbarrier ? checker->issue(warp, op, lane)
                     : checker->issue_in_bulk_group(warp, op, lane);
}

// The CTA whose mbarrier counts what arrives in `destination`: that CTA itself or, with
// .cta_group::2, the one of its pair that is even or odd as that of `mbarrier` is.
uint32_t signalled_rank(const CopyForm& form, uint32_t destination, uint32_t mbarrier) {
  return form.pairs ? (destination & ~1u) | (mbarrier & 1u) : destination;
}

// Calls issue(destination, mbarrier) for every CTA that a load goes to: the same offsets in each.
template <class Issue>
void for_each_target(Warp& warp, const CopyForm& form, int lane, Issue issue) {
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

// CTAs that a copy goes to.
uint32_t targets(const Warp& warp, const CopyForm& form, int lane) {
  if (!form.multicast.present()) return 1;
  return static_cast<uint32_t>(
      __builtin_popcount(warp.lanes<uint32_t>(form.multicast)[lane] & 0xffff));
}

void count(const Warp& warp, Path path, uint64_t read, uint64_t written) {
  if (Counters* counters = warp.cluster().counters()) counters->moved(path, read, written);
}

void check_bulk_alignment(uint64_t destination, uint64_t source, uint32_t bytes) {
  if ((destination | source | bytes) & 15) {
    fault("addresses and size of a bulk copy must be multiples of 16: to 0x%llx, from 0x%llx, "
          "%u bytes",
          static_cast<unsigned long long>(destination), static_cast<unsigned long long>(source),
          bytes);
  }
}

void note_bulk(Cluster& cluster, const CopyForm& form, const Ticket& ticket, uint64_t to,
               uint64_t from, uint32_t bytes) {
  Checker& checker = *cluster.checker();
  if (form.from_shared) {
    checker.async_shared(ticket, static_cast<uint32_t>(from), bytes, Touch::kRead);
  } else {
    checker.async_global(ticket, from, bytes, Touch::kRead);
  }
  Touch touch = form.reduction == Reduction::kNone ? Touch::kWrite : Touch::kReadWrite;
  if (form.to_shared) {
    checker.async_shared(ticket, static_cast<uint32_t>(to), bytes, touch);
  } else {
    checker.async_global(ticket, to, bytes, touch);
  }
}

Step bulk_copy(Warp& warp, const Op& op, uint32_t active) {
  const CopyForm& form = form_of(op);
  Cluster& cluster = warp.cluster();
  for_each_lane(active, [&](int lane) {
    uint32_t bytes = warp.lanes<uint32_t>(form.bytes)[lane];
    uint64_t source = warp.address(form.source, lane);
    uint64_t destination = warp.address(form.destination, lane);
    check_bulk_alignment(destination, source, bytes);
    count(warp, Path::kBulk, bytes, uint64_t{bytes} * targets(warp, form, lane));
    const GlobalMemory& global = cluster.launch().memory;
    bool to_mbarrier = form.mbarrier.base.present();
    TicketPtr ticket = issue(warp, op, lane, to_mbarrier);
    auto move = [&form, &cluster, &global, source, bytes, ticket](uint64_t to) {
      const uint8_t* from = form.from_shared
                                ? cluster.shared_at(static_cast<uint32_t>(source), bytes)
                                : global.at(source, bytes);
      uint8_t* into = form.to_shared ? cluster.shared_at(static_cast<uint32_t>(to), bytes)
                                     : global.at(to, bytes);
      if (ticket != nullptr) note_bulk(cluster, form, *ticket, to, source, bytes);
      if (form.reduction == Reduction::kNone) {
        std::memcpy(into, from, bytes);
      } else {
        bulk_reduce(form.type, form.reduction, into, from, bytes);
      }
    };
    if (!to_mbarrier) {
      cluster.completions().add_to_group(warp, lane, op, [=] { move(destination); });
      return;
    }
    for_each_target(warp, form, lane, [&](uint32_t target, uint32_t mbarrier) {
      cluster.completions().add(op, [=, &cluster] {
        if (ticket != nullptr) cluster.checker()->complete_on(*ticket, mbarrier);
        move(target);
        complete_bytes(cluster, mbarrier, bytes, ticket);
      });
    });
  });
  return Step::kNext;
}

using Coordinates = std::array<int32_t, kTensorMapRank>;

Coordinates coordinates_of(const Warp& warp, const CopyForm& form, int lane) {
  Coordinates result{};
  for (std::size_t i = 0; i < form.coordinates.size(); ++i) {
    result[i] = static_cast<int32_t>(warp.lanes<uint32_t>(form.coordinates[i])[lane]);
  }
  return result;
}

// An H200 refuses other coordinates as an illegal instruction.
constexpr int kCoordinateBytes = 16;

void check_coordinates(const Warp& warp, const TensorMap& map, const Coordinates& coordinates) {
  int64_t distance = int64_t{coordinates[0]} * map.element_bytes;
  if (warp.cluster().launch().device.major == 9 && distance % kCoordinateBytes != 0) {
    fault("coordinate %d of dimension 0 is %lld bytes from the start of the tensor: it must be a "
          "multiple of %d",
          coordinates[0], static_cast<long long>(distance), kCoordinateBytes);
  }
}

// The descriptor is read when the instruction is issued.
TensorMap map_of(Warp& warp, const CopyForm& form, const Address& address, int lane) {
  const uint8_t* place = resolve(warp, Space::kGeneric, lane, warp.address(address, lane),
                                 kTensorMapBytes, 64);
  const TensorMap& map = tensor_map_at(place);
  if (form.gathers) return gather4(map);
  if (map.rank != form.coordinates.size()) {
    fault("the tensor map has rank %d, the instruction %zu coordinates", map.rank,
          form.coordinates.size());
  }
  return map;
}

// A load fills all of its box in shared memory.
void note_load(Checker& checker, const Ticket& ticket, const TensorMap& map,
               const Coordinates& coordinates, uint32_t target) {
  tensor_rows(map, coordinates.data(), [&](const TensorRow& row) {
    checker.async_global(ticket, row.address, row.bytes, Touch::kRead);
  });
  checker.async_shared(ticket, target, tensor_map_box_bytes(map), Touch::kWrite);
}

// A store reads only what lies in the tensor.
void note_store(Checker& checker, const Ticket& ticket, const TensorMap& map,
                const Coordinates& coordinates, uint32_t source, Reduction reduction) {
  Touch touch = reduction == Reduction::kNone ? Touch::kWrite : Touch::kReadWrite;
  tensor_rows(map, coordinates.data(), [&](const TensorRow& row) {
    checker.async_global(ticket, row.address, row.bytes, touch);
    for (uint32_t i = 0; i < row.bytes;) {
      uint32_t chunk = std::min(16 - (row.shared + i) % 16, row.bytes - i);
      uint32_t place = swizzle(shared_offset(source) + row.shared + i, map.swizzle_row_bytes);
      checker.async_shared(ticket, shared_address(shared_rank(source), place), chunk,
                           Touch::kRead);
      i += chunk;
    }
  });
}

Step tensor_to_shared(Warp& warp, const Op& op, uint32_t active) {
  const CopyForm& form = form_of(op);
  Cluster& cluster = warp.cluster();
  for_each_lane(active, [&](int lane) {
    TensorMap map = map_of(warp, form, form.source, lane);
    Coordinates coordinates = coordinates_of(warp, form, lane);
    check_coordinates(warp, map, coordinates);
    uint64_t bytes = tensor_map_box_bytes(map);
    count(warp, Path::kTensorMap, bytes, bytes * targets(warp, form, lane));
    TicketPtr ticket = issue(warp, op, lane, true);
    for_each_target(warp, form, lane, [&](uint32_t target, uint32_t mbarrier) {
      cluster.completions().add(op, [=, &cluster] {
        if (ticket != nullptr) {
          cluster.checker()->complete_on(*ticket, mbarrier);
          note_load(*cluster.checker(), *ticket, map, coordinates, target);
        }
        tensor_load(map, coordinates.data(), cluster.launch().memory,
                    cluster.cta(shared_rank(target)).shared(), shared_offset(target));
        complete_bytes(cluster, mbarrier, tensor_map_box_bytes(map), ticket);
      });
    });
  });
  return Step::kNext;
}

Step tensor_to_global(Warp& warp, const Op& op, uint32_t active) {
  const CopyForm& form = form_of(op);
  Cluster& cluster = warp.cluster();
  for_each_lane(active, [&](int lane) {
    TensorMap map = map_of(warp, form, form.destination, lane);
    Coordinates coordinates = coordinates_of(warp, form, lane);
    check_coordinates(warp, map, coordinates);
    auto source = static_cast<uint32_t>(warp.address(form.source, lane));
    Reduction reduction = form.reduction;
    count(warp, Path::kTensorMap, tensor_map_box_bytes(map), tensor_map_box_bytes(map));
    TicketPtr ticket = issue(warp, op, lane, false);
    cluster.completions().add_to_group(warp, lane, op, [=, &cluster] {
      if (ticket != nullptr) {
        note_store(*cluster.checker(), *ticket, map, coordinates, source, reduction);
      }
      tensor_store(map, coordinates.data(), cluster.launch().memory,
                   cluster.cta(shared_rank(source)).shared(), shared_offset(source), reduction);
    });
  });
  return Step::kNext;
}

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
  if (Checker* checker = warp.cluster().checker()) note_commit(*checker, warp, op, active);
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
    if (Checker* checker = warp.cluster().checker()) note_wait(*checker, warp, op, active);
    return Step::kNext;
  }
  warp.park({Wait::kBulkGroup, static_cast<uint64_t>(waits)});
  return Step::kRetry;
}

Step copy_async(Warp& warp, const Op& op, uint32_t active) {
  const CopyForm& form = form_of(op);
  for_each_lane(active, [&](int lane) {
    uint32_t bytes = warp.lanes<uint32_t>(form.bytes)[lane];
    uint32_t available = form.source_bytes.present()
                             ? warp.lanes<uint32_t>(form.source_bytes)[lane]
                             : bytes;
    if (form.ignore_source.present() && (warp.predicate(form.ignore_source) >> lane & 1)) {
      available = 0;
    }
    count(warp, Path::kCopyAsync, available, bytes);
    if (available > bytes) fault("cp.async reads %u bytes and writes %u", available, bytes);
    uint8_t* to =
        resolve(warp, Space::kShared, lane, warp.address(form.destination, lane), bytes, bytes);
    const uint8_t* from =
        available == 0 ? nullptr
                       : resolve(warp, Space::kGlobal, lane, warp.address(form.source, lane),
                                 available, bytes);
    Checker* checker = warp.cluster().checker();
    TicketPtr ticket = checker != nullptr ? checker->issue_copy_async(warp, op, lane) : nullptr;
    uint64_t source = warp.address(form.source, lane);
    auto target = static_cast<uint32_t>(warp.address(form.destination, lane));
    warp.cluster().completions().add_to_group(warp, lane + kCpAsyncGroups, op, [=] {
      if (ticket != nullptr) {
        checker->async_global(*ticket, source, available, Touch::kRead);
        checker->async_shared(*ticket, target, bytes, Touch::kWrite);
      }
      if (available != 0) std::memcpy(to, from, available);
      std::memset(to + available, 0, bytes - available);
    });
  });
  return Step::kNext;
}

// The arrival is triggered when the copies before it have completed; here that is at once.
// Without .noinc the pending count is raised first, so that the phase's arrivals do not change.
Step copy_async_arrive(Warp& warp, const Op& op, uint32_t active) {
  for_each_lane(active, [&](int lane) {
    warp.cluster().completions().complete_groups(warp, lane + kCpAsyncGroups);
    if (op.flag == 0) return;
    auto address = static_cast<uint32_t>(warp.address(op, lane));
    Checker* checker = warp.cluster().checker();
    TicketPtr ticket = checker != nullptr ? checker->copy_async_done(warp, op, lane) : nullptr;
    uint64_t before = warp.cluster().update_mbarrier(
        address, [](uint64_t state) { return mbarrier_arrive(state, 1); });
    if (ticket == nullptr) return;
    uint64_t after;
    std::memcpy(&after, warp.cluster().shared_at(address, 8), sizeof(after));
    checker->mbarrier_signal(*ticket, address, before, after);
  });
  return Step::kNext;
}

Step nothing(Warp&, const Op&, uint32_t) { return Step::kNext; }

void decode_group(Decoder& decoder, bool cp_async) {
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
}

void decode_copy_async(Decoder& decoder) {
  Modifiers& modifiers = decoder.modifiers;
  decode_group(decoder, true);
  if (decoder.op.run != nullptr) return;
  if (modifiers.take("mbarrier")) {
    modifiers.take("arrive");
    decoder.op.flag = modifiers.take("noinc") ? 1 : 0;
    take_space(decoder);
    modifiers.take("b64");
    decoder.op.address = decoder.address(decoder.operand(0));
    decoder.op.run = copy_async_arrive;
    return;
  }
  modifiers.take_all({"ca", "cg", "shared", "shared::cta", "global", "L2::64B", "L2::128B",
                      "L2::256B"});
  bool policy = modifiers.take("L2::cache_hint");
  CopyForm form;
  decoder.expect_count(3, policy ? 5 : 4);
  form.destination = decoder.address(decoder.operand(0));
  form.source = decoder.address(decoder.operand(1));
  form.bytes = decoder.source(decoder.operand(2), Type::kU32);
  if (decoder.count() > (policy ? 4u : 3u)) {
    const Operand& extra = decoder.operand(3);
    bool predicate = extra.kind == Operand::kRegister && decoder.destination(extra, 0).bits == 1;
    if (predicate) {
      form.ignore_source = decoder.predicate(extra);
    } else {
      form.source_bytes = decoder.source(extra, Type::kU32);
    }
  }
  decoder.form(form);
  decoder.op.run = copy_async;
}

// Where the data comes from and goes to: the first of two spaces is the destination.
void take_direction(Decoder& decoder, CopyForm& form) {
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

Reduction take_reduction(Decoder& decoder) {
  static constexpr Reduction kReductions[] = {
      Reduction::kAdd, Reduction::kMin, Reduction::kMax, Reduction::kInc,
      Reduction::kDec, Reduction::kAnd, Reduction::kOr,  Reduction::kXor};
  int index = decoder.modifiers.take_one({"add", "min", "max", "inc", "dec", "and", "or", "xor"});
  if (index < 0) decoder.fail("it needs an operation");
  return kReductions[index];
}

// "[map, {c0, c1}]"
Address take_tensor(Decoder& decoder, const Operand& operand, CopyForm& form) {
  if (operand.kind != Operand::kAddress || operand.elements.size() != 2) {
    decoder.fail("it needs a tensor map with coordinates");
  }
  const Operand& list = operand.elements[1];
  if (list.kind == Operand::kVector) {
    for (const Operand& element : list.elements) {
      form.coordinates.push_back(decoder.source(element, Type::kS32));
    }
  } else {
    form.coordinates.push_back(decoder.source(list, Type::kS32));
  }
  return decoder.address(operand);
}

void decode_bulk(Decoder& decoder, bool reduces) {
  Modifiers& modifiers = decoder.modifiers;
  if (!reduces) decode_group(decoder, false);
  if (decoder.op.run != nullptr) return;
  bool tensor = modifiers.take("tensor");
  if (modifiers.take("prefetch")) {
    modifiers.take_all({"L2", "global", "1d", "2d", "3d", "4d", "5d", "tile", "tile::gather4",
                        "L2::cache_hint"});
    decoder.op.run = nothing;
    return;
  }
  CopyForm form;
  take_direction(decoder, form);
  int rank = modifiers.take_one({"1d", "2d", "3d", "4d", "5d"}) + 1;
  modifiers.take("tile");
  form.gathers = modifiers.take(form.to_shared ? "tile::gather4" : "tile::scatter4");
  form.pairs = modifiers.take_one({"cta_group::1", "cta_group::2"}) == 1;
  bool to_mbarrier = modifiers.take("mbarrier::complete_tx::bytes");
  if (!to_mbarrier && !modifiers.take("bulk_group")) {
    decoder.fail("it does not say how it completes");
  }
  bool multicast = modifiers.take("multicast::cluster");
  bool policy = modifiers.take("L2::cache_hint");
  if (reduces) form.reduction = take_reduction(decoder);
  if (reduces && !tensor) {
    modifiers.take("noftz");
    form.type = modifiers.take_type();
    check_reduction(form.type, form.reduction);
  }
  std::size_t next = 2;
  if (tensor) {
    bool load = form.to_shared;
    const Operand& map = decoder.operand(load ? 1 : 0);
    Address address = take_tensor(decoder, map, form);
    Address shared = decoder.address(decoder.operand(load ? 0 : 1));
    form.source = load ? address : shared;
    form.destination = load ? shared : address;
    if (form.gathers && (rank != 2 || reduces || form.coordinates.size() != 5)) {
      decoder.fail("four rows are for .2d, with the coordinates of the column and of each row");
    }
    if (!form.gathers && static_cast<int>(form.coordinates.size()) != rank) {
      decoder.fail("the number of coordinates differs from the rank");
    }
    decoder.op.run = load ? tensor_to_shared : tensor_to_global;
  } else {
    form.destination = decoder.address(decoder.operand(0));
    form.source = decoder.address(decoder.operand(1));
    form.bytes = decoder.source(decoder.operand(next++), Type::kU32);
    decoder.op.run = bulk_copy;
  }
  if (to_mbarrier) form.mbarrier = decoder.address(decoder.operand(next++));
  if (multicast) form.multicast = decoder.source(decoder.operand(next++), Type::kU16);
  if (policy) ++next;
  decoder.expect_count(next, next);
  decoder.form(form);
}

void decode_cp(Decoder& decoder) {
  bool reduces = decoder.modifiers.take("reduce");
  if (!decoder.modifiers.take("async")) decoder.fail("it is not supported");
  if (decoder.modifiers.take("bulk")) {
    decode_bulk(decoder, reduces);
  } else {
    decode_copy_async(decoder);
  }
}

}  // namespace

void add_copy_ops(DecodeTable& table) { table["cp"] = decode_cp; }

}  // namespace warploom::emulator
