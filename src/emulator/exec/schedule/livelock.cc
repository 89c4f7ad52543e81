#include "emulator/exec/schedule/livelock.h"

#include <cinttypes>
#include <cstddef>
#include <cstring>

#include "emulator/async/mbarrier.h"
#include "emulator/exec/machine/global_place.h"
#include "emulator/exec/machine/describe_op.h"
#include "emulator/exec/schedule/cluster_run.h"

namespace warploom::emulator {
namespace {

// Reports stay readable.
constexpr std::size_t kMostLines = 40;

// Whether an address of 32 bits lies in the shared memory of a cluster. Heaps of the host may have
// such addresses too, which are larger than what a CTA has.
bool is_shared(const Cluster& cluster, uint64_t address) {
  if ((address & kWindowMask) == kSharedWindow) return true;
  if (address >> 32 != 0) return false;
  auto place = static_cast<uint32_t>(address);
  if (shared_rank(place) >= cluster.size()) return false;
  return shared_offset(place) < cluster.cta(shared_rank(place)).shared().bytes;
}

std::string describe_place(const Polled& polled) {
  const Cluster& cluster = polled.warp->cluster();
  if (!is_shared(cluster, polled.address)) {
    return format("global 0x%" PRIx64 "%s", polled.address,
                  describe_global(cluster.launch(), polled.address).c_str());
  }
  auto address = static_cast<uint32_t>(polled.address);
  std::string text = format("shared 0x%x of rank %u", shared_offset(address), shared_rank(address));
  if (polled.op->source->opcode != "mbarrier") return text;
  uint64_t state;
  std::memcpy(&state, cluster.shared_at(address, sizeof(state)), sizeof(state));
  return format("the mbarrier at %s (%s)", text.c_str(), mbarrier_describe(state).c_str());
}

}  // namespace

std::string describe_polled(const std::vector<Polled>& polled) {
  std::string result;
  std::size_t lines = 0;
  for (const Polled& one : polled) {
    if (++lines > kMostLines) return result + "\n  ...";
    const Dim3& id = one.warp->cta().id();
    result += format("\n  CTA (%u, %u, %u) warp %u repeats itself", id[0], id[1], id[2],
                     one.warp->id());
    if (one.op == nullptr) continue;
    result += format("; it looks at %s, at %s", describe_place(one).c_str(),
                     describe_op(one.warp->program(), *one.op).c_str());
  }
  return result;
}

void check_livelock(const std::vector<ClusterRun*>& clusters) {
  std::vector<Polled> polled;
  for (ClusterRun* cluster : clusters) {
    if (!cluster->repeats_itself(polled)) return;
  }
  if (polled.empty()) return;
  std::string parked;
  for (const ClusterRun* cluster : clusters) parked += cluster->describe_parked();
  fault("livelock in kernel %s: no warp can make progress, since each that can go on repeats "
        "itself, nothing writes what it reads, and no asynchronous operation is pending.%s%s",
        clusters.front()->cluster().launch().program.function->name.c_str(),
        describe_polled(polled).c_str(), parked.c_str());
}

}  // namespace warploom::emulator
