#include "emulator/exec/machine/counters.h"

#include <algorithm>

#include "emulator/base/lanes.h"
#include "emulator/exec/machine/cluster.h"

namespace warploom::emulator {
namespace {

constexpr const char* kPathNames[kPaths] = {"global",     "shared",       "distributed shared",
                                            "local",      "cp.async",     "bulk",
                                            "tensor map", "tensor memory"};

// Shared memory serves 32 banks of 4 bytes at a time (CUDA C++ Programming Guide, "Shared Memory").
constexpr uint32_t kBanks = 32;
constexpr uint32_t kBankBytes = 4;
constexpr uint32_t kWavefrontBytes = kBanks * kBankBytes;

Path path_of(const Warp& warp, ptx::Space space, uint64_t* address) {
  if (space == ptx::Space::kGeneric) {
    uint64_t window = *address & kWindowMask;
    space = window == kSharedWindow  ? ptx::Space::kShared
            : window == kLocalWindow ? ptx::Space::kLocal
                                     : ptx::Space::kGlobal;
  }
  if (space == ptx::Space::kLocal) return Path::kLocal;
  if (space != ptx::Space::kShared) return Path::kGlobal;
  *address &= ~kWindowMask;
  bool own = shared_rank(static_cast<uint32_t>(*address)) == warp.cta().rank();
  return own ? Path::kShared : Path::kDistributedShared;
}

}  // namespace

const char* path_name(Path path) { return kPathNames[static_cast<int>(path)]; }

std::vector<LaneAccess> lane_accesses_of(const Program& program) {
  std::vector<LaneAccess> result;
  for (const Op& op : program.ops) result.push_back(lane_access_of(*op.source));
  return result;
}

Counters::Counters(const Program& program, const std::vector<LaneAccess>& accesses)
    : program_(&program), accesses_(&accesses), ops_(program.ops.size()) {}

std::size_t Counters::index(const Op& op) const {
  return static_cast<std::size_t>(&op - program_->ops.data());
}

// The lanes of one wavefront are those whose accesses fit into it without conflicts: all for up to
// 4 bytes a lane, half of them for 8, a quarter for 16. Lanes that read one word share it.
void Counters::shared_access(const LaneAccess& form, const uint32_t* addresses, uint32_t lanes,
                             OpCount* count) const {
  bool atomic = form.reads && form.writes;
  uint32_t together = kWavefrontBytes / std::max(form.bytes, kBankBytes);
  for (uint32_t first = 0; first < kLanes; first += together) {
    std::array<std::array<uint32_t, kLanes>, kBanks> words;
    std::array<uint32_t, kBanks> load{};
    uint32_t most = 0;
    for (uint32_t lane = first; lane < first + together; ++lane) {
      if (!(lanes >> lane & 1)) continue;
      for (uint32_t byte = 0; byte < form.bytes; byte += kBankBytes) {
        uint32_t word = (addresses[lane] + byte) / kBankBytes;
        uint32_t bank = word % kBanks;
        auto known = words[bank].begin() + load[bank];
        bool shares = !atomic && std::find(words[bank].begin(), known, word) != known;
        if (!shares) words[bank][load[bank]++] = word;
        most = std::max(most, load[bank]);
      }
    }
    count->wavefronts += most;
    count->ideal += most != 0 ? 1 : 0;
  }
}

void Counters::access(const Warp& warp, const Op& op, const LaneAccess& form, uint32_t lanes) {
  std::array<uint32_t, kLanes> shared{};
  uint32_t shared_lanes = 0;
  for_each_lane(lanes & form.lanes, [&](int lane) {
    uint64_t address = warp.address(op, lane);
    Path path = path_of(warp, form.space, &address);
    moved(path, form.reads ? form.bytes : 0, form.writes ? form.bytes : 0);
    if (path != Path::kShared) return;
    shared[static_cast<std::size_t>(lane)] = static_cast<uint32_t>(address);
    shared_lanes |= 1u << lane;
  });
  if (shared_lanes != 0) shared_access(form, shared.data(), shared_lanes, &ops_[index(op)]);
}

void Counters::before(const Warp& warp, const Op& op, uint32_t lanes) {
  const LaneAccess& form = (*accesses_)[index(op)];
  bool in_memory = form.space != ptx::Space::kParam && form.space != ptx::Space::kConst;
  if (form.kind != LaneAccess::kNone && in_memory) access(warp, op, form, lanes);
}

void Counters::after(const Warp& warp, const Op& op, Step step) {
  OpCount& count = ops_[index(op)];
  if (step != Step::kNext) ++count.unready;
  if (step == Step::kRetry) return;  // it is executed, and counted, again
  ++count.executed;
  if (warps_.size() <= warp.id()) warps_.resize(warp.id() + 1);
  ++warps_[warp.id()];
}

void Counters::moved(Path path, uint64_t read, uint64_t written) {
  Traffic& traffic = traffic_[static_cast<std::size_t>(path)];
  traffic.read += read;
  traffic.written += written;
}

void Counters::accessed(const Warp& warp, ptx::Space space, uint64_t address, uint64_t read,
                        uint64_t written) {
  moved(path_of(warp, space, &address), read, written);
}

void Counters::add(const Counters& other) {
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    ops_[i].executed += other.ops_[i].executed;
    ops_[i].unready += other.ops_[i].unready;
    ops_[i].wavefronts += other.ops_[i].wavefronts;
    ops_[i].ideal += other.ops_[i].ideal;
    ops_[i].flops += other.ops_[i].flops;
  }
  warps_.resize(std::max(warps_.size(), other.warps_.size()));
  for (std::size_t i = 0; i < other.warps_.size(); ++i) warps_[i] += other.warps_[i];
  for (std::size_t i = 0; i < kPaths; ++i) {
    traffic_[i].read += other.traffic_[i].read;
    traffic_[i].written += other.traffic_[i].written;
  }
}

}  // namespace warploom::emulator
