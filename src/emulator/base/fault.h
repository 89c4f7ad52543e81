// The one exception of the emulator: the program under emulation, or the PTX, is wrong.

#ifndef WARPLOOM_EMULATOR_BASE_FAULT_H_
#define WARPLOOM_EMULATOR_BASE_FAULT_H_

#include <cstdint>
#include <stdexcept>
#include <string>

namespace warploom::emulator {

// What kind of mistake a Fault is about, for those who sort reports.
enum class FaultKind : uint8_t {
  kOther,
  kOutOfBounds,
  kMisaligned,
  kMbarrier,
  kBarrier,      // of a CTA, a cluster or a warp
  kDescriptor,   // of a matrix, or a tensor map
  kDeadlock,
  kLimit,        // of instructions
};

// Thrown with one clear sentence. Whoever executes instructions adds the place (kernel, CTA, warp,
// PTX line); functions below that level say only what is wrong.
class Fault : public std::runtime_error {
 public:
  explicit Fault(const std::string& message, FaultKind kind = FaultKind::kOther)
      : std::runtime_error(message), kind_(kind) {}
  FaultKind kind() const { return kind_; }

 private:
  FaultKind kind_;
};

// An access to global memory that no allocation holds; whoever knows the launch names its
// neighbour.
class OutOfBounds : public Fault {
 public:
  OutOfBounds(const std::string& message, uint64_t address)
      : Fault(message, FaultKind::kOutOfBounds), address_(address) {}
  uint64_t address() const { return address_; }

 private:
  uint64_t address_;
};

// printf-style.
[[noreturn]] void fault(const char* format, ...) __attribute__((format(printf, 1, 2)));
[[noreturn]] void fault_of(FaultKind kind, const char* format, ...)
    __attribute__((format(printf, 2, 3)));

std::string format(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_BASE_FAULT_H_
