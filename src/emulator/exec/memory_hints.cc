#include "emulator/exec/memory_hints.h"

namespace warploom::emulator {

Order take_memory_hints(Decoder& decoder) {
  static constexpr Order kOrders[] = {Order::kWeak,    Order::kRelaxed, Order::kAcquire,
                                      Order::kRelease, Order::kRelaxed};
  Modifiers& modifiers = decoder.modifiers;
  bool mmio = modifiers.take("mmio");
  int index = modifiers.take_one({"weak", "relaxed", "acquire", "release", "volatile"});
  modifiers.take_all({"cta", "cluster", "gpu", "sys", "unified"});
  modifiers.take_all({"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "L1::evict_normal",
                      "L1::evict_unchanged", "L1::evict_first", "L1::evict_last",
                      "L1::no_allocate", "L2::evict_first", "L2::evict_last", "L2::evict_normal",
                      "L2::64B", "L2::128B", "L2::256B"});
  return index >= 0 ? kOrders[index] : mmio ? Order::kRelaxed : Order::kWeak;
}

}  // namespace warploom::emulator
