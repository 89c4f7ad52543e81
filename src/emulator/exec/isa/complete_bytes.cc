#include "emulator/exec/isa/complete_bytes.h"

#include <cstring>

#include "emulator/async/mbarrier.h"

namespace warploom::emulator {

void complete_bytes(Cluster& cluster, uint32_t mbarrier, uint32_t bytes, const TicketPtr& ticket) {
  uint64_t before = cluster.update_mbarrier(
      mbarrier, [bytes](uint64_t state) { return mbarrier_complete_tx(state, bytes); });
  if (ticket == nullptr) return;
  uint64_t after;
  std::memcpy(&after, cluster.shared_at(mbarrier, 8), sizeof(after));
  checker_of(cluster)->mbarrier_signal(*ticket, mbarrier, before, after);
}

}  // namespace warploom::emulator
