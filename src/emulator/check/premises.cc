// What an access takes for granted besides its order: that the CTA whose shared memory it touches
// has started, that the launch before is over, that memory read by ld.global.nc stays as it is.

#include <algorithm>

#include "emulator/check/checker.h"
#include "emulator/exec/machine/cluster.h"
#include "emulator/memory/memory_footprint.h"

namespace warploom::emulator {
namespace {

bool is_constant_load(const Op& op) {
  const std::vector<std::string>& words = op.source->modifiers;
  return op.source->opcode == "ld" && std::find(words.begin(), words.end(), "nc") != words.end();
}

}  // namespace

// A CTA of the cluster has started if anything of it is known. Relaxed reads of what a peer has
// written count as well, whatever orders they make (CUDA C++ Programming Guide, "Distributed Shared
// Memory": "all the thread blocks have started executing").
void Checker::check_started(const Actor& actor, uint32_t address) {
  const uint32_t first = shared_rank(address) * warps_per_cta_;
  const WarpState& own = warps_[actor.mark.thread / kLanes];
  if (!own.acquirable.empty()) return;
  for (uint32_t warp = first; warp < first + warps_per_cta_; ++warp) {
    const uint32_t dimension = warps_[warp].dimension;
    for (const VectorClock* known :
         {&actor.known->base, &own.executed, &own.acquirable_known.base}) {
      if (known->at(dimension) != 0) return;
    }
  }
  if (!log_.is_new(Finding::kNotStarted, actor.op, nullptr)) return;
  report(Finding::kNotStarted, actor.op, nullptr,
         format("%s accesses %s, and nothing says that this CTA has started. Fix: barrier.cluster "
                "(arrive and wait) of all CTAs before the first access to another one's memory",
                describe(actor.mark).c_str(), place_of(address).c_str()));
}

// A programmatic dependent launch may start before the launch before it has ended.
void Checker::check_grids(const Actor& actor, uint64_t address, uint64_t bytes, Touch touch) {
  const MemoryFootprint* before = checks_.before;
  if (before == nullptr || actor.known->base.knows(grids_over_)) return;
  const bool written = before->writes(address, bytes);
  if (!written && (touch == Touch::kRead || !before->reads(address, bytes))) return;
  if (!log_.is_new(Finding::kMissingGridWait, actor.op, nullptr)) return;
  report(Finding::kMissingGridWait, actor.op, nullptr,
         format("%s %s %s, which the launch before, of %s, %s and may not have done yet: this is a "
                "programmatic dependent launch. Fix: griddepcontrol.wait "
                "(cudaGridDependencySynchronize) before this access",
                describe(actor.mark).c_str(), touch == Touch::kRead ? "reads" : "writes",
                global_place_of(address).c_str(), before->kernel.c_str(),
                written ? "writes" : "reads"));
}

void Checker::wait_for_grids(Warp& warp) {
  WarpState& own = state(warp);
  own.known.base.raise(grids_over_);
  own.snapshot = nullptr;
}

// PTX ISA, "ld.global.nc": the memory has to be read-only for the kernel. `reads`: the read is the
// access that is checked now.
void Checker::check_constant(const Access& read, const Access& write, bool reads,
                             const Where& where) {
  if (where.shared || !is_constant_load(*op_of(read))) return;
  const Op* now = op_of(reads ? read : write);
  const Op* prior = op_of(reads ? write : read);
  if (!log_.is_new(Finding::kConstantMemory, now, prior)) return;
  report(Finding::kConstantMemory, now, prior,
         format("%s reads %s through the cache of constant memory, and %s writes it in the same "
                "kernel: what is read may be old whatever orders the two. Fix: ld.global without "
                ".nc (in CUDA neither __ldg nor const __restrict__)",
                describe(read).c_str(), global_place_of(where.address).c_str(),
                describe(write).c_str()));
}

}  // namespace warploom::emulator
