// How an asynchronous operation tells an mbarrier that its bytes have arrived.

#ifndef WARPLOOM_EMULATOR_EXEC_ISA_COMPLETE_BYTES_H_
#define WARPLOOM_EMULATOR_EXEC_ISA_COMPLETE_BYTES_H_

#include <cstdint>

#include "emulator/check/checker.h"
#include "emulator/exec/machine/cluster.h"

namespace warploom::emulator {

// Counts the bytes at the mbarrier, an address of shared::cluster. `ticket` is that of the
// operation; nullptr if nothing is checked.
void complete_bytes(Cluster& cluster, uint32_t mbarrier, uint32_t bytes, const TicketPtr& ticket);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_ISA_COMPLETE_BYTES_H_
