#include "emulator/exec/isa/memory_hints.h"

namespace warploom::emulator {

Scope take_scope(Modifiers& modifiers) {
  static constexpr Scope kAll[] = {Scope::kCta, Scope::kCluster, Scope::kDevice, Scope::kDevice};
  int index = modifiers.take_one({"cta", "cluster", "gpu", "sys"});
  return index < 0 ? Scope::kDevice : kAll[index];
}

Ordering take_atomic_ordering(Modifiers& modifiers) {
  static constexpr Order kOrders[] = {Order::kRelaxed, Order::kAcquire, Order::kRelease,
                                      Order::kAcquireRelease};
  int index = modifiers.take_one({"relaxed", "acquire", "release", "acq_rel"});
  return {index < 0 ? Order::kRelaxed : kOrders[index], take_scope(modifiers)};
}

Ordering take_memory_hints(Decoder& decoder) {
  static constexpr Order kOrders[] = {Order::kWeak,    Order::kRelaxed, Order::kAcquire,
                                      Order::kRelease, Order::kRelaxed};
  Modifiers& modifiers = decoder.modifiers;
  bool mmio = modifiers.take("mmio");
  int index = modifiers.take_one({"weak", "relaxed", "acquire", "release", "volatile"});
  const Scope scope = take_scope(modifiers);
  modifiers.take("unified");
  modifiers.take_all({"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "L1::evict_normal",
                      "L1::evict_unchanged", "L1::evict_first", "L1::evict_last",
                      "L1::no_allocate", "L2::evict_first", "L2::evict_last", "L2::evict_normal",
                      "L2::64B", "L2::128B", "L2::256B"});
  return {index >= 0 ? kOrders[index] : mmio ? Order::kRelaxed : Order::kWeak, scope};
}

}  // namespace warploom::emulator
