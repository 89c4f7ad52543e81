// Memory order and scope of accesses and fences (PTX ISA, "Memory Consistency Model").

#ifndef WARPLOOM_EMULATOR_CHECK_ORDERING_H_
#define WARPLOOM_EMULATOR_CHECK_ORDERING_H_

#include <cstddef>
#include <cstdint>

namespace warploom::emulator {

// Memory order of a generic access.
enum class Order : uint8_t { kWeak, kRelaxed, kAcquire, kRelease, kAcquireRelease };

// The threads that a strong operation synchronises with, each scope within the next. A launch has
// one device: .sys is .gpu here. Also how far apart two threads are: the narrowest that has both.
enum class Scope : uint8_t { kCta, kCluster, kDevice };
constexpr std::size_t kScopes = 3;

struct Ordering {
  Order order = Order::kWeak;
  Scope scope = Scope::kDevice;

  constexpr Ordering() = default;
  constexpr Ordering(Order order_, Scope scope_ = Scope::kDevice) : order(order_), scope(scope_) {}

  constexpr bool strong() const { return order != Order::kWeak; }
  constexpr bool acquires() const {
    return order == Order::kAcquire || order == Order::kAcquireRelease;
  }
  constexpr bool releases() const {
    return order == Order::kRelease || order == Order::kAcquireRelease;
  }
};

// fence.acq_rel and its relatives: one that only acquires, or only releases, is half of it.
struct MemoryFence {
  Scope scope = Scope::kDevice;
  bool acquires = true;
  bool releases = true;
};

// "CTA", "cluster" or "device"; ".cta" and so on.
const char* scope_name(Scope scope);
const char* scope_modifier(Scope scope);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_CHECK_ORDERING_H_
