#include "emulator/exec/machine/special.h"

#include <cstdint>
#include <string>

#include "emulator/base/device.h"
#include "emulator/exec/machine/cluster.h"

namespace warploom::emulator {
namespace {

using Value = uint64_t (*)(const Warp&, uint32_t lane);

struct Entry {
  std::string_view name;
  int bits;
  Value value;
};

uint64_t zero(const Warp&, uint32_t) { return 0; }

const Launch& launch(const Warp& warp) { return warp.cluster().launch(); }

uint32_t thread(const Warp& warp, uint32_t lane) { return warp.id() * kLanes + lane; }

uint32_t dynamic_shared(const Warp& warp) { return launch(warp).dynamic_shared; }

template <int kAxis>
uint64_t tid(const Warp& warp, uint32_t lane) {
  const Dim3& block = launch(warp).block;
  uint32_t index = thread(warp, lane);
  if (kAxis == 0) return index % block[0];
  if (kAxis == 1) return index / block[0] % block[1];
  return index / block[0] / block[1];
}

template <int kAxis>
uint64_t ntid(const Warp& warp, uint32_t) { return launch(warp).block[kAxis]; }

template <int kAxis>
uint64_t ctaid(const Warp& warp, uint32_t) { return warp.cta().id()[kAxis]; }

template <int kAxis>
uint64_t nctaid(const Warp& warp, uint32_t) { return launch(warp).grid[kAxis]; }

template <int kAxis>
uint64_t clusterid(const Warp& warp, uint32_t) { return warp.cluster().id()[kAxis]; }

template <int kAxis>
uint64_t nclusterid(const Warp& warp, uint32_t) {
  return launch(warp).grid[kAxis] / launch(warp).cluster[kAxis];
}

template <int kAxis>
uint64_t cluster_ctaid(const Warp& warp, uint32_t) {
  return warp.cta().id()[kAxis] % launch(warp).cluster[kAxis];
}

// Whether somebody asked for clusters; without, every CTA is one of its own.
uint64_t is_explicit_cluster(const Warp& warp, uint32_t) {
  return launch(warp).explicit_cluster ? 1 : 0;
}

template <int kAxis>
uint64_t cluster_nctaid(const Warp& warp, uint32_t) { return launch(warp).cluster[kAxis]; }

// CTAs are dealt to SMs in order; no kernel may rely on which one it gets.
uint64_t smid(const Warp& warp, uint32_t) {
  const Dim3& grid = launch(warp).grid;
  const Dim3& id = warp.cta().id();
  return (id[0] + grid[0] * (id[1] + grid[1] * id[2])) % multiprocessors(launch(warp).device);
}

#define WARPLOOM_AXES(name, function)                                                      \
  Entry{name ".x", 32, function<0>}, Entry{name ".y", 32, function<1>},                    \
      Entry{name ".z", 32, function<2>}

const Entry kEntries[] = {
    WARPLOOM_AXES("%tid", tid),
    WARPLOOM_AXES("%ntid", ntid),
    WARPLOOM_AXES("%ctaid", ctaid),
    WARPLOOM_AXES("%nctaid", nctaid),
    WARPLOOM_AXES("%clusterid", clusterid),
    WARPLOOM_AXES("%nclusterid", nclusterid),
    WARPLOOM_AXES("%cluster_ctaid", cluster_ctaid),
    WARPLOOM_AXES("%cluster_nctaid", cluster_nctaid),
    {"%laneid", 32, [](const Warp&, uint32_t lane) -> uint64_t { return lane; }},
    {"%warpid", 32, [](const Warp& warp, uint32_t) -> uint64_t { return warp.id(); }},
    {"%nwarpid", 32, [](const Warp&, uint32_t) -> uint64_t { return kMaxWarps; }},
    {"%smid", 32, smid},
    {"%nsmid", 32,
     [](const Warp& warp, uint32_t) -> uint64_t { return multiprocessors(launch(warp).device); }},
    {"%gridid", 64, zero},
    {"%cluster_ctarank", 32,
     [](const Warp& warp, uint32_t) -> uint64_t { return warp.cta().rank(); }},
    {"%cluster_nctarank", 32,
     [](const Warp& warp, uint32_t) -> uint64_t { return volume(launch(warp).cluster); }},
    {"%is_explicit_cluster", 1, is_explicit_cluster},
    {"%lanemask_eq", 32, [](const Warp&, uint32_t lane) -> uint64_t { return 1u << lane; }},
    {"%lanemask_lt", 32, [](const Warp&, uint32_t lane) -> uint64_t { return (1u << lane) - 1; }},
    {"%lanemask_le", 32, [](const Warp&, uint32_t lane) -> uint64_t { return (2u << lane) - 1; }},
    {"%lanemask_gt", 32,
     [](const Warp&, uint32_t lane) -> uint64_t { return ~((2u << lane) - 1); }},
    {"%lanemask_ge", 32,
     [](const Warp&, uint32_t lane) -> uint64_t { return ~((1u << lane) - 1); }},
    {"%dynamic_smem_size", 32,
     [](const Warp& warp, uint32_t) -> uint64_t { return dynamic_shared(warp); }},
    {"%total_smem_size", 32,
     [](const Warp& warp, uint32_t) -> uint64_t {
       return launch(warp).shared_bytes() - SharedMemory::kReserved;
     }},
    {"%aggr_smem_size", 32,
     [](const Warp& warp, uint32_t) -> uint64_t { return launch(warp).shared_bytes(); }},
    {"%reserved_smem_offset_begin", 32, zero},
    {"%reserved_smem_offset_end", 32,
     [](const Warp&, uint32_t) -> uint64_t { return SharedMemory::kReserved; }},
    {"%reserved_smem_offset_cap", 32,
     [](const Warp&, uint32_t) -> uint64_t { return SharedMemory::kReserved; }},
    // The kernel is not part of a graph that the device launches.
    {"%current_graph_exec", 64, zero},
    // Where cooperative groups look for the workspace of the grid.
    {"%envreg1", 32,
     [](const Warp& warp, uint32_t) -> uint64_t { return launch(warp).workspace >> 32; }},
    {"%envreg2", 32,
     [](const Warp& warp, uint32_t) -> uint64_t { return launch(warp).workspace & 0xffffffffu; }},
    {"WARP_SZ", 32, [](const Warp&, uint32_t) -> uint64_t { return kLanes; }},
};

#undef WARPLOOM_AXES

// Registers that the driver could give a meaning, and counters of performance, which count nothing
// here: "%envreg0" to "%envreg31", "%pm0" to "%pm7" and "%pm0_64" to "%pm7_64".
struct Family {
  std::string_view prefix;
  int count;
  std::string_view suffix;
  Entry entry;
};

constexpr Family kFamilies[] = {
    {"%envreg", 32, "", {"%envreg", 32, zero}},
    {"%pm", 8, "", {"%pm", 32, zero}},
    {"%pm", 8, "_64", {"%pm_64", 64, zero}},
};

bool is_member(const Family& family, std::string_view name) {
  for (int i = 0; i < family.count; ++i) {
    if (name == std::string(family.prefix) + std::to_string(i) + std::string(family.suffix)) {
      return true;
    }
  }
  return false;
}

const Entry* find(std::string_view name) {
  for (const Entry& entry : kEntries) {
    if (entry.name == name) return &entry;
  }
  for (const Family& family : kFamilies) {
    if (is_member(family, name)) return &family.entry;
  }
  return nullptr;
}

uint64_t variable_address(const ptx::Variable& variable, bool generic, const Warp& warp) {
  const Launch& launch = warp.cluster().launch();
  switch (variable.space) {
    case ptx::Space::kShared: {
      auto offset = static_cast<uint32_t>(variable.offset) + SharedMemory::kReserved;
      if (variable.is_dynamic()) offset = launch.dynamic_offset();
      uint64_t address = shared_address(warp.cta().rank(), offset);
      return generic ? kSharedWindow | address : address;
    }
    case ptx::Space::kLocal:
      return generic ? kLocalWindow | variable.offset : variable.offset;
    case ptx::Space::kParam:
      return reinterpret_cast<uint64_t>(launch.parameters) + variable.offset;
    default:
      return launch.global_base + variable.offset;
  }
}

}  // namespace

int special_bits(std::string_view name) {
  const Entry* entry = find(name);
  return entry != nullptr ? entry->bits : 0;
}

void fill_special(const Special& special, const Warp& warp) {
  const Entry* entry = special.variable == nullptr ? find(special.name) : nullptr;
  if (special.place.bits == 1) {
    warp.set_predicate(special.place, entry->value(warp, 0) != 0 ? kAllLanes : 0, kAllLanes);
    return;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    warp.set_value(special.place, lane,
                   entry != nullptr
                       ? entry->value(warp, static_cast<uint32_t>(lane))
                       : variable_address(*special.variable, special.generic, warp));
  }
}

}  // namespace warploom::emulator
