// The one exception of the emulator: the program under emulation, or the PTX, is wrong.

#ifndef WARPLOOM_EMULATOR_EXEC_FAULT_H_
#define WARPLOOM_EMULATOR_EXEC_FAULT_H_

#include <cstdint>
#include <stdexcept>
#include <string>

namespace warploom::emulator {

// Thrown with one clear sentence. Whoever executes instructions adds the place (kernel, CTA, warp,
// PTX line); functions below that level say only what is wrong.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An access to global memory that no allocation holds; whoever knows the launch names its neighbour.
class OutOfBounds : public Fault {
 public:
  OutOfBounds(const std::string& message, uint64_t address) : Fault(message), address_(address) {}
  uint64_t address() const { return address_; }

 private:
  uint64_t address_;
};

// printf-style.
[[noreturn]] void fault(const char* format, ...) __attribute__((format(printf, 1, 2)));

std::string format(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_FAULT_H_
