// The 64-bit state of an mbarrier object and its transitions, as pure functions (PTX ISA,
// "mbarrier"). Misuse is a Fault; memory, waiting and who arrives are the caller's business.

#ifndef WARPLOOM_EMULATOR_ASYNC_MBARRIER_H_
#define WARPLOOM_EMULATOR_ASYNC_MBARRIER_H_

#include <cstdint>
#include <string>

namespace warploom::emulator {

// Arrival counts are 1 to this, tx-counts lie within +- this ("Count / tx-count ranges").
constexpr uint32_t kMbarrierLimit = (1u << 20) - 1;

uint64_t mbarrier_init(uint32_t count);

// The memory may serve other purposes afterwards; the state returned is that of no mbarrier.
uint64_t mbarrier_inval(uint64_t state);

// An arrival may complete the phase, which starts the next one. The token that the instruction
// returns is the state from before it.
uint64_t mbarrier_arrive(uint64_t state, uint32_t count);
// Raises the pending count by one and arrives, as cp.async.mbarrier.arrive without .noinc does: an
// arrival more than the phase was initialised for.
uint64_t mbarrier_arrive_beyond(uint64_t state);
uint64_t mbarrier_arrive_no_complete(uint64_t state, uint32_t count);
// Also lowers the count that later phases expect.
uint64_t mbarrier_arrive_drop(uint64_t state, uint32_t count);
uint64_t mbarrier_arrive_drop_no_complete(uint64_t state, uint32_t count);

// Bytes that asynchronous operations still have to deliver in this phase. They may be delivered
// before they are announced, as long as an arrival is pending.
uint64_t mbarrier_expect_tx(uint64_t state, uint32_t bytes);
uint64_t mbarrier_complete_tx(uint64_t state, uint32_t bytes);

// test_wait: whether the phase of this parity is complete, that is, is not the current one.
bool mbarrier_phase_done(uint64_t state, bool parity);
// Whether the phase that was current when `token` was taken is complete.
bool mbarrier_phase_done_token(uint64_t state, uint64_t token);

// Parts of a state: parity of the current phase, arrivals and bytes that it still waits for, and
// the arrivals that each phase needs.
bool mbarrier_parity(uint64_t state);
uint32_t mbarrier_pending(uint64_t state);
int32_t mbarrier_pending_tx(uint64_t state);
uint32_t mbarrier_expected(uint64_t state);

// Such as "phase parity 1, 2 of 4 arrivals and 128 bytes pending". Any 64 bits are accepted.
std::string mbarrier_describe(uint64_t state);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_ASYNC_MBARRIER_H_
