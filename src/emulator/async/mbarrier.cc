#include "emulator/async/mbarrier.h"

#include "emulator/base/fault.h"

namespace warploom::emulator {
namespace {

// The state is opaque in PTX; this is our encoding. Bits 0-19: arrivals that a phase needs. 20-39:
// arrivals still pending. 40-60: tx-count, two's complement. 61-62: kMark. 63: phase parity.
constexpr int kPendingShift = 20;
constexpr int kTxShift = 40;
constexpr int kMarkShift = 61;
constexpr int kParityShift = 63;
constexpr uint64_t kCountMask = (uint64_t{1} << 20) - 1;
constexpr uint64_t kTxMask = (uint64_t{1} << 21) - 1;
// Tells a barrier from zeroed, filled and most other memory that was never initialised.
constexpr uint64_t kMark = 1;

struct Parts {
  uint32_t expected;
  uint32_t pending;
  int32_t tx;
  bool parity;
};

bool is_mbarrier(uint64_t state) { return (state >> kMarkShift & 3) == kMark; }

Parts unpack(uint64_t state) {
  const auto raw = static_cast<uint32_t>(state >> kTxShift & kTxMask);
  const int32_t tx = raw > kMbarrierLimit ? static_cast<int32_t>(raw) - (1 << 21)
                                          : static_cast<int32_t>(raw);
  return {static_cast<uint32_t>(state & kCountMask),
          static_cast<uint32_t>(state >> kPendingShift & kCountMask), tx,
          (state >> kParityShift) != 0};
}

uint64_t pack(const Parts& parts) {
  return uint64_t{parts.expected} | uint64_t{parts.pending} << kPendingShift |
         (static_cast<uint64_t>(parts.tx) & kTxMask) << kTxShift | kMark << kMarkShift |
         static_cast<uint64_t>(parts.parity) << kParityShift;
}

Parts checked(uint64_t state, const char* operation) {
  if (!is_mbarrier(state)) {
    fault_of(FaultKind::kMbarrier,
             "mbarrier.%s on memory that holds no mbarrier: it was never initialised, or was "
             "overwritten or invalidated since",
             operation);
  }
  return unpack(state);
}

// A phase completes when nothing is pending any more; the next one starts with all its arrivals.
uint64_t advance(Parts parts) {
  if (parts.pending == 0 && parts.tx == 0) {
    parts.pending = parts.expected;
    parts.parity = !parts.parity;
  }
  return pack(parts);
}

Parts arrived(uint64_t state, uint32_t count, const char* operation) {
  Parts parts = checked(state, operation);
  if (count == 0 || count > parts.pending) {
    fault_of(FaultKind::kMbarrier,
             "mbarrier.%s with count %u, but %u of %u arrivals are pending in the phase", operation,
             count, parts.pending, parts.expected);
  }
  parts.pending -= count;
  return parts;
}

uint64_t change_tx(uint64_t state, int64_t change, const char* operation) {
  Parts parts = checked(state, operation);
  const int64_t tx = parts.tx + change;
  constexpr int64_t kLimit = kMbarrierLimit;
  if (tx > kLimit || tx < -kLimit) {
    fault_of(FaultKind::kMbarrier,
             "mbarrier.%s of %lld bytes moves the tx-count from %d out of its range of +-%u",
             operation, static_cast<long long>(change < 0 ? -change : change), parts.tx,
             kMbarrierLimit);
  }
  parts.tx = static_cast<int32_t>(tx);
  return advance(parts);
}

}  // namespace

uint64_t mbarrier_init(uint32_t count) {
  if (count == 0 || count > kMbarrierLimit) {
    fault_of(FaultKind::kMbarrier, "mbarrier.init with count %u: allowed are 1 to %u", count,
             kMbarrierLimit);
  }
  return pack({count, count, 0, false});
}

uint64_t mbarrier_inval(uint64_t state) {
  checked(state, "inval");
  return 0;
}

uint64_t mbarrier_arrive(uint64_t state, uint32_t count) {
  return advance(arrived(state, count, "arrive"));
}

uint64_t mbarrier_arrive_beyond(uint64_t state) {
  Parts parts = checked(state, "arrive");
  if (parts.pending == kMbarrierLimit) {
    fault_of(FaultKind::kMbarrier,
             "cp.async.mbarrier.arrive raises the pending count of %u: at most %u is allowed",
             parts.pending, kMbarrierLimit);
  }
  ++parts.pending;
  return mbarrier_arrive(pack(parts), 1);
}

uint64_t mbarrier_arrive_no_complete(uint64_t state, uint32_t count) {
  const Parts parts = arrived(state, count, "arrive.noComplete");
  if (parts.pending == 0 && parts.tx == 0) {
    fault_of(FaultKind::kMbarrier,
             "mbarrier.arrive.noComplete with count %u would complete the phase", count);
  }
  return pack(parts);
}

uint64_t mbarrier_arrive_drop(uint64_t state, uint32_t count) {
  Parts parts = arrived(state, count, "arrive_drop");
  parts.expected -= count;
  return advance(parts);
}

uint64_t mbarrier_arrive_drop_no_complete(uint64_t state, uint32_t count) {
  Parts parts = arrived(state, count, "arrive_drop.noComplete");
  if (parts.pending == 0 && parts.tx == 0) {
    fault_of(FaultKind::kMbarrier,
             "mbarrier.arrive_drop.noComplete with count %u would complete the phase", count);
  }
  parts.expected -= count;
  return pack(parts);
}

uint64_t mbarrier_expect_tx(uint64_t state, uint32_t bytes) {
  return change_tx(state, int64_t{bytes}, "expect_tx");
}

uint64_t mbarrier_complete_tx(uint64_t state, uint32_t bytes) {
  return change_tx(state, -int64_t{bytes}, "complete_tx");
}

bool mbarrier_phase_done(uint64_t state, bool parity) {
  return checked(state, "test_wait").parity != parity;
}

bool mbarrier_phase_done_token(uint64_t state, uint64_t token) {
  return checked(state, "test_wait").parity != checked(token, "test_wait").parity;
}

bool mbarrier_parity(uint64_t state) { return unpack(state).parity; }

uint32_t mbarrier_pending(uint64_t state) { return unpack(state).pending; }

int32_t mbarrier_pending_tx(uint64_t state) { return unpack(state).tx; }

uint32_t mbarrier_expected(uint64_t state) { return unpack(state).expected; }

std::string mbarrier_describe(uint64_t state) {
  if (!is_mbarrier(state)) return "no mbarrier";
  const Parts parts = unpack(state);
  return format("phase parity %d, %u of %u arrivals and %d bytes pending", parts.parity ? 1 : 0,
                parts.pending, parts.expected, parts.tx);
}

}  // namespace warploom::emulator
