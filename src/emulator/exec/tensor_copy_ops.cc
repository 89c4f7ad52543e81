// cp.async.bulk.tensor and cp.reduce.async.bulk.tensor: issue; the data moves when they complete.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "emulator/async/tensor_map.h"
#include "emulator/exec/access.h"
#include "emulator/exec/complete_bytes.h"
#include "emulator/exec/copy_form.h"
#include "emulator/matrix/swizzle.h"

namespace warploom::emulator {
namespace {

using ptx::Operand;
using ptx::Space;

const BulkForm& form_of(const Op& op) { return *static_cast<const BulkForm*>(op.form); }

using Coordinates = std::array<int32_t, kTensorMapRank>;

Coordinates coordinates_of(const Warp& warp, const BulkForm& form, int lane) {
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
TensorMap map_of(Warp& warp, const BulkForm& form, const Address& address, int lane) {
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
  const BulkForm& form = form_of(op);
  Cluster& cluster = warp.cluster();
  for_each_lane(active, [&](int lane) {
    TensorMap map = map_of(warp, form, form.source, lane);
    Coordinates coordinates = coordinates_of(warp, form, lane);
    check_coordinates(warp, map, coordinates);
    uint64_t bytes = tensor_map_box_bytes(map);
    count_copy(warp, Path::kTensorMap, bytes, bytes * copy_targets(warp, form, lane));
    TicketPtr ticket = issue_copy(warp, op, lane, true);
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
  const BulkForm& form = form_of(op);
  Cluster& cluster = warp.cluster();
  for_each_lane(active, [&](int lane) {
    TensorMap map = map_of(warp, form, form.destination, lane);
    Coordinates coordinates = coordinates_of(warp, form, lane);
    check_coordinates(warp, map, coordinates);
    auto source = static_cast<uint32_t>(warp.address(form.source, lane));
    Reduction reduction = form.reduction;
    count_copy(warp, Path::kTensorMap, tensor_map_box_bytes(map), tensor_map_box_bytes(map));
    TicketPtr ticket = issue_copy(warp, op, lane, false);
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

Step nothing(Warp&, const Op&, uint32_t) { return Step::kNext; }

// "[map, {c0, c1}]"
Address take_tensor(Decoder& decoder, const Operand& operand, BulkForm& form) {
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

}  // namespace

void decode_tensor_copy(Decoder& decoder, bool reduces) {
  Modifiers& modifiers = decoder.modifiers;
  if (modifiers.take("prefetch")) {
    modifiers.take_all({"L2", "global", "1d", "2d", "3d", "4d", "5d", "tile", "tile::gather4",
                        "L2::cache_hint"});
    decoder.op.run = nothing;
    return;
  }
  BulkForm form;
  BulkOptions options = take_bulk_options(decoder, form);
  int rank = modifiers.take_one({"1d", "2d", "3d", "4d", "5d"}) + 1;
  modifiers.take("tile");
  bool load = form.to_shared;
  form.gathers = modifiers.take(load ? "tile::gather4" : "tile::scatter4");
  if (reduces) form.reduction = take_reduction(decoder);
  Address address = take_tensor(decoder, decoder.operand(load ? 1 : 0), form);
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
  take_completion(decoder, form, options, 2);
  decoder.form(form);
}

}  // namespace warploom::emulator
