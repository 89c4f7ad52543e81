#include "emulator/exec/schedule/deadlock.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "emulator/async/mbarrier.h"
#include "emulator/check/checker.h"
#include "emulator/exec/machine/cluster.h"
#include "emulator/exec/machine/describe_op.h"

namespace warploom::emulator {
namespace {

// Reports stay readable: a CTA of 1024 threads has 32 warps, a cluster 16 times as many.
constexpr std::size_t kMostBytes = 6000;
constexpr std::size_t kMostWho = 400;

std::string place_of(const Warp& warp) {
  const Dim3& id = warp.cta().id();
  return format("CTA (%u, %u, %u) warp %u", id[0], id[1], id[2], warp.id());
}

std::string describe_mbarrier(const Warp& warp, const Fragment& fragment, const Op& op) {
  auto address = static_cast<uint32_t>(fragment.wait.key);
  uint64_t state;
  std::memcpy(&state, warp.cluster().shared_at(address, 8), sizeof(state));
  int lane = __builtin_ctz(fragment.lanes);
  std::string parity;
  if (op.s[0].bits == 32) {
    parity = format(" for parity %u", warp.lanes<uint32_t>(op.s[0])[lane] & 1);
  }
  const Checker* checker = checker_of(warp.cluster());
  std::string history = checker != nullptr ? checker->mbarrier_history(address) : "";
  return format("waits%s of the mbarrier at shared 0x%x (%s%s)", parity.c_str(), address,
                mbarrier_describe(state).c_str(), history.c_str());
}

std::string holders(const Warp& warp) {
  return warp.cta().tensor_memory().allocator().describe();
}

std::string describe_wait(const Warp& warp, const Fragment& fragment, const Op& op) {
  switch (fragment.wait.kind) {
    case Wait::kNothing:
      return "can go on";
    case Wait::kLanes:
      return format("waits for other lanes of the warp (alive 0x%08x)", warp.alive());
    case Wait::kMembers:
      return format("waits for the lanes 0x%08x, which its member mask 0x%08x names, to execute the "
                    "same instruction with the same mask",
                    warp.missing_members(fragment), static_cast<uint32_t>(fragment.wait.key));
    case Wait::kMbarrier:
      return describe_mbarrier(warp, fragment, op);
    case Wait::kNamedBarrier: {
      auto barrier = static_cast<uint32_t>(fragment.wait.key);
      return format("waits at barrier %u (%s)", barrier,
                    warp.cta().barriers().describe(barrier).c_str());
    }
    case Wait::kClusterBarrier:
      return "waits at the cluster barrier";
    case Wait::kWarpgroup:
      return "waits for the other warps of its warpgroup to issue wgmma";
    case Wait::kBulkGroup:
      return "waits for bulk copies";
    case Wait::kRegisters:
      return warp.cta().registers().describe(warp.id(),
                                             static_cast<uint32_t>(fragment.wait.key));
    case Wait::kTensorMemory:
      return warp.cta().tensor_memory().allocator().is_asking()
                 ? format("waits for columns of tensor memory in both CTAs of its pair (this one "
                          "holds %s), and for the tcgen05.alloc of the other",
                          holders(warp).c_str())
                 : format("waits for columns of tensor memory; the CTA holds %s",
                          holders(warp).c_str());
  }
  return "";
}

// A fragment that was parked behind its instruction waits at the one before.
const Op& waiting_op(const Warp& warp, const Fragment& fragment) {
  auto pc = static_cast<std::size_t>(fragment.pc);
  bool parked_behind =
      fragment.wait.kind == Wait::kWarpgroup ||
      (fragment.wait.kind == Wait::kNamedBarrier && warp.program().ops[pc].flow != Flow::kSync);
  bool behind = pc > 0 && parked_behind;
  return warp.program().ops[behind ? pc - 1 : pc];
}

}  // namespace

std::string locate(const std::string& message, const Warp& warp) {
  const Op* op = warp.current_op();
  std::string where = op == nullptr ? "" : ", " + describe_op(warp.program(), *op);
  return format("%s (kernel %s, %s%s)", message.c_str(), warp.program().function->name.c_str(),
                place_of(warp).c_str(), where.c_str());
}

// Warps that wait for the same come behind the first of them if there is no room for all.
std::string describe_warps(const std::vector<Warp*>& warps) {
  std::string result;
  std::vector<std::pair<std::string, std::string>> waits;  // for what, and who
  for (const Warp* warp : warps) {
    for (const Fragment& fragment : warp->fragments()) {
      if (fragment.state == Fragment::kFree) continue;
      const Op& op = waiting_op(*warp, fragment);
      const std::string who = format("%s lanes 0x%08x", place_of(*warp).c_str(), fragment.lanes);
      const std::string wait = describe_wait(*warp, fragment, op) + " at " +
                               describe_op(warp->program(), op);
      result += "\n  " + who + " " + wait;
      auto same = std::find_if(waits.begin(), waits.end(),
                               [&](const auto& other) { return other.first == wait; });
      if (same == waits.end()) {
        waits.emplace_back(wait, who);
      } else if (same->second.size() < kMostWho) {
        same->second += ", " + who;
      } else if (same->second.back() != '.') {
        same->second += " ...";
      }
    }
  }
  if (result.size() <= kMostBytes) return result;
  result.clear();
  for (const auto& [wait, who] : waits) {
    if (result.size() > kMostBytes) return result + "\n  ...";
    result += "\n  " + who + " " + wait;
  }
  return result;
}

}  // namespace warploom::emulator
