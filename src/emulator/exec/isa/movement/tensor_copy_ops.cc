// cp.async.bulk.tensor and cp.reduce.async.bulk.tensor: issue; the data moves when they complete.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "emulator/async/tensor_copy.h"
#include "emulator/async/tensor_map.h"
#include "emulator/exec/isa/access.h"
#include "emulator/exec/isa/complete_bytes.h"
#include "emulator/exec/isa/movement/copy_form.h"

namespace warploom::emulator {
namespace {

using ptx::Operand;
using ptx::Space;

const BulkForm& form_of(const Op& op) { return *static_cast<const BulkForm*>(op.form); }

TensorPlace place_of(const Warp& warp, const BulkForm& form, int lane) {
  TensorPlace result;
  for (std::size_t i = 0; i < form.coordinates.size(); ++i) {
    result.at[i] = static_cast<int32_t>(warp.lanes<uint32_t>(form.coordinates[i])[lane]);
  }
  for (std::size_t i = 0; i < form.offsets.size(); ++i) {
    result.offsets[i] = static_cast<uint16_t>(warp.lanes<uint32_t>(form.offsets[i])[lane]);
  }
  return result;
}

// An H200 refuses other coordinates as an illegal instruction.
constexpr int kCoordinateBytes = 16;
constexpr uint32_t kMapAlignment = 64;

void check_place(const Warp& warp, const TensorMap& map, const TensorPlace& place) {
  check_tensor_place(map, place);
  int64_t distance = int64_t{place.at[0]} * map.unit_bytes / map.unit_elements;
  if (warp.cluster().launch().device.major == 9 && distance % kCoordinateBytes != 0) {
    fault("coordinate %d of dimension 0 is %lld bytes from the start of the tensor: it must be a "
          "multiple of %d",
          place.at[0], static_cast<long long>(distance), kCoordinateBytes);
  }
}

const char* mode_name(TensorMode mode) {
  static constexpr const char* kNames[] = {".tile", ".im2col", ".im2col::w", ".im2col::w::128"};
  return kNames[static_cast<int>(mode)];
}

// The descriptor is read when the instruction is issued.
TensorMap map_of(Warp& warp, const Op& op, const Address& address, int lane) {
  const BulkForm& form = form_of(op);
  const uint64_t place_address = warp.address(address, lane);
  const uint8_t* bytes =
      resolve(warp, Space::kGeneric, lane, place_address, kTensorMapBytes, kMapAlignment);
  if ((place_address & kWindowMask) != 0) {
    fault("the tensor map at 0x%llx lies in shared or local memory: it has to be in global memory "
          "or a parameter",
          static_cast<unsigned long long>(place_address));
  }
  if (Checker* checker = checker_of(warp.cluster())) {
    checker->use_tensor_map(warp, op, lane, place_address);
  }
  TensorMap map = tensor_map_at(bytes);
  if (form.gathers) return gather4(map);
  if (map.rank != form.coordinates.size()) {
    fault("the tensor map has rank %d, the instruction %zu coordinates", map.rank,
          form.coordinates.size());
  }
  if (map.mode != form.mode) {
    fault("the tensor map is for %s, the instruction is %s", mode_name(map.mode),
          mode_name(form.mode));
  }
  return map;
}

// Bytes of a row in shared memory, from the one at `begin` of the box on.
void note_chunks(Checker& checker, const Ticket& ticket, const TensorMap& map, uint32_t box,
                 uint32_t begin, uint32_t bytes, Touch touch) {
  for (uint32_t i = 0; i < bytes;) {
    uint32_t chunk = std::min(16 - (begin + i) % 16, bytes - i);
    uint32_t place = tensor_swizzle(map, shared_offset(box) + begin + i);
    checker.async_shared(ticket, shared_address(shared_rank(box), place), chunk, touch);
    i += chunk;
  }
}

// A load fills all of its box in shared memory.
void note_load(Checker& checker, const Ticket& ticket, const TensorMap& map,
               const TensorPlace& place, uint32_t target) {
  tensor_rows(map, place, [&](const TensorRow& row) {
    checker.async_global(ticket, row.address, row.bytes, Touch::kRead);
  });
  const auto rows = static_cast<uint32_t>(tensor_map_rows(map, tensor_halo(map, place)));
  const uint32_t bytes = tensor_map_row_bytes(map), pitch = tensor_map_row_pitch(map);
  if (bytes == pitch) {
    checker.async_shared(ticket, target, rows * pitch, Touch::kWrite);
    return;
  }
  for (uint32_t row = 0; row < rows; ++row) {
    note_chunks(checker, ticket, map, target, row * pitch, bytes, Touch::kWrite);
  }
}

// A store reads only what lies in the tensor.
void note_store(Checker& checker, const Ticket& ticket, const TensorMap& map,
                const TensorPlace& place, uint32_t source, Reduction reduction) {
  Touch touch = reduction == Reduction::kNone ? Touch::kWrite : Touch::kReadWrite;
  tensor_rows(map, place, [&](const TensorRow& row) {
    checker.async_global(ticket, row.address, row.bytes, touch);
    note_chunks(checker, ticket, map, source, row.shared, row.shared_bytes, Touch::kRead);
  });
}

// A load reads, and a store moves, only what lies in the tensor.
uint64_t bytes_in_tensor(const TensorMap& map, const TensorPlace& place) {
  uint64_t bytes = 0;
  tensor_rows(map, place, [&](const TensorRow& row) { bytes += row.bytes; });
  return bytes;
}

Step tensor_to_shared(Warp& warp, const Op& op, uint32_t active) {
  const BulkForm& form = form_of(op);
  Cluster& cluster = warp.cluster();
  for_each_lane(active, [&](int lane) {
    TensorMap map = map_of(warp, op, form.source, lane);
    check_tensor_copy(map, TensorDirection::kLoad, Reduction::kNone);
    TensorPlace place = place_of(warp, form, lane);
    check_place(warp, map, place);
    for_each_target(warp, form, lane, [&](uint32_t target, uint32_t) {
      check_tensor_offset(map, place, cluster.cta(shared_rank(target)).shared(),
                          shared_offset(target));
    });
    const auto bytes =
        static_cast<uint32_t>(tensor_map_box_bytes(map, tensor_halo(map, place)));
    if (cluster.counters() != nullptr) {
      count_copy(warp, Path::kTensorMap, bytes_in_tensor(map, place),
                 uint64_t{bytes} * copy_targets(warp, form, lane));
    }
    TicketPtr ticket = issue_copy(warp, op, lane, true);
    for_each_target(warp, form, lane, [&](uint32_t target, uint32_t mbarrier) {
      cluster.completions().add(op, [=, &cluster] {
        if (ticket != nullptr) {
          checker_of(cluster)->complete_on(*ticket, mbarrier);
          note_load(*checker_of(cluster), *ticket, map, place, target);
        }
        tensor_load(map, place, cluster.launch().memory,
                    cluster.cta(shared_rank(target)).shared(), shared_offset(target));
        complete_bytes(cluster, mbarrier, bytes, ticket);
      });
    });
  });
  return Step::kNext;
}

Step tensor_to_global(Warp& warp, const Op& op, uint32_t active) {
  const BulkForm& form = form_of(op);
  Cluster& cluster = warp.cluster();
  for_each_lane(active, [&](int lane) {
    TensorMap map = map_of(warp, op, form.destination, lane);
    check_tensor_copy(map, TensorDirection::kStore, form.reduction);
    TensorPlace place = place_of(warp, form, lane);
    check_place(warp, map, place);
    auto source = static_cast<uint32_t>(warp.address(form.source, lane));
    check_tensor_offset(map, place, cluster.cta(shared_rank(source)).shared(),
                        shared_offset(source));
    Reduction reduction = form.reduction;
    if (cluster.counters() != nullptr) {
      const uint64_t bytes = bytes_in_tensor(map, place);
      count_copy(warp, Path::kTensorMap, bytes, bytes);
    }
    TicketPtr ticket = issue_copy(warp, op, lane, false);
    cluster.completions().add_to_group(warp, lane, op, [=, &cluster] {
      if (ticket != nullptr) {
        note_store(*checker_of(cluster), *ticket, map, place, source, reduction);
      }
      tensor_store(map, place, cluster.launch().memory,
                   cluster.cta(shared_rank(source)).shared(), shared_offset(source), reduction);
    });
  });
  return Step::kNext;
}

Step prefetch(Warp& warp, const Op& op, uint32_t active) {
  const BulkForm& form = form_of(op);
  for_each_lane(active, [&](int lane) {
    TensorMap map = map_of(warp, op, form.source, lane);
    check_place(warp, map, place_of(warp, form, lane));
  });
  return Step::kNext;
}

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

// How boxes are formed; a store of im2col has no offsets.
void take_mode(Decoder& decoder, BulkForm& form, bool load) {
  Modifiers& modifiers = decoder.modifiers;
  modifiers.take("tile");
  form.gathers = modifiers.take(load ? "tile::gather4" : "tile::scatter4");
  if (!load) {
    if (modifiers.take("im2col_no_offs")) form.mode = TensorMode::kIm2col;
    return;
  }
  static constexpr TensorMode kModes[] = {TensorMode::kIm2col, TensorMode::kIm2colWide,
                                          TensorMode::kIm2colWide128};
  int index = modifiers.take_one({"im2col", "im2col::w", "im2col::w::128"});
  if (index >= 0) form.mode = kModes[index];
}

void check_shape(Decoder& decoder, const BulkForm& form, int rank, bool reduces) {
  if (form.gathers && (rank != 2 || reduces || form.coordinates.size() != 5)) {
    decoder.fail("four rows are for .2d, with the coordinates of the column and of each row");
  }
  if (!form.gathers && static_cast<int>(form.coordinates.size()) != rank) {
    decoder.fail("the number of coordinates differs from the rank");
  }
  if (form.mode != TensorMode::kTiled && rank < 3) {
    decoder.fail("im2col takes tensors of 3 to 5 dimensions");
  }
}

// Those of im2col are one for each dimension between channels and images; im2col::w has a halo and
// an offset.
void take_offsets(Decoder& decoder, const Operand& operand, BulkForm& form, int rank) {
  const std::size_t count = form.mode == TensorMode::kIm2col ? rank - 2u : 2u;
  std::vector<const Operand*> elements;
  if (operand.kind == Operand::kVector) {
    for (const Operand& element : operand.elements) elements.push_back(&element);
  } else {
    elements.push_back(&operand);
  }
  if (elements.size() != count) {
    decoder.fail("it needs " + std::to_string(count) + " offsets of im2col");
  }
  for (const Operand* element : elements) {
    form.offsets.push_back(decoder.source(*element, Type::kU16));
  }
}

// A prefetch is checked as the copy of its form would be, and moves nothing.
void decode_prefetch(Decoder& decoder) {
  Modifiers& modifiers = decoder.modifiers;
  modifiers.take_all({"L2", "global"});
  const bool policy = modifiers.take("L2::cache_hint");
  BulkForm form;
  const int rank = modifiers.take_one({"1d", "2d", "3d", "4d", "5d"}) + 1;
  take_mode(decoder, form, true);
  form.source = take_tensor(decoder, decoder.operand(0), form);
  check_shape(decoder, form, rank, false);
  std::size_t next = 1;
  if (form.mode != TensorMode::kTiled) take_offsets(decoder, decoder.operand(next++), form, rank);
  if (policy) ++next;
  decoder.expect_count(next, next);
  decoder.op.run = prefetch;
  decoder.form(form);
}

}  // namespace

void decode_tensor_copy(Decoder& decoder, bool reduces) {
  Modifiers& modifiers = decoder.modifiers;
  if (modifiers.take("prefetch")) {
    decode_prefetch(decoder);
    return;
  }
  BulkForm form;
  BulkOptions options = take_bulk_options(decoder, form);
  const bool load = form.to_shared;
  const int rank = modifiers.take_one({"1d", "2d", "3d", "4d", "5d"}) + 1;
  take_mode(decoder, form, load);
  if (reduces) form.reduction = take_reduction(decoder);
  Address address = take_tensor(decoder, decoder.operand(load ? 1 : 0), form);
  Address shared = decoder.address(decoder.operand(load ? 0 : 1));
  form.source = load ? address : shared;
  form.destination = load ? shared : address;
  check_shape(decoder, form, rank, reduces);
  decoder.op.run = load ? tensor_to_shared : tensor_to_global;
  std::size_t next = 2;
  if (options.to_mbarrier) form.mbarrier = decoder.address(decoder.operand(next++));
  if (load && form.mode != TensorMode::kTiled) {
    take_offsets(decoder, decoder.operand(next++), form, rank);
  }
  take_hints(decoder, form, options, next);
  decoder.form(form);
}

}  // namespace warploom::emulator
