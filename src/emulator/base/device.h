// The devices that the emulator stands for, as far as programs ask: an H200 and a B200.

#ifndef WARPLOOM_EMULATOR_BASE_DEVICE_H_
#define WARPLOOM_EMULATOR_BASE_DEVICE_H_

#include <cstdint>
#include <string>

namespace warploom::emulator {

// What differs between the devices. python/warploom/target/gpus.py has the same numbers.
struct Device {
  const char* name;
  const char* arch;        // as PTX's .target and nvcc's -arch name it
  int major;               // compute capability
  int minor;
  uint32_t own_multiprocessors;  // unless something else is asked for
  uint32_t clock_kilohertz;
  uint32_t l2_bytes;
  uint32_t memory_kilohertz;
  uint32_t memory_bits;
};

// Multiprocessors of a device: those that set_multiprocessors, or else WARPLOOM_EMULATOR_SMS,
// gives all devices of the process.
uint32_t multiprocessors(const Device& device);
constexpr uint32_t kMostMultiprocessors = 1024;
// 0: those of the environment, or the device's own. False, and nothing changes, if there are too
// many.
bool set_multiprocessors(uint32_t count);

// The devices of this process: 0 is sm_90a and 1 is sm_100a, unless WARPLOOM_EMULATOR_ARCH names
// the architecture that comes first. None at all if it names something else.
int device_count();
// nullptr if there is no such device.
const Device* find_device(int index);
// The number of the device with this architecture; -1 if there is none.
int find_arch(const std::string& arch);

// Why the device cannot execute PTX for `target`, such as "sm_90a"; empty if it can (PTX ISA,
// ".target": a suffix `a` binds PTX to one architecture, `f` to a family, none to no later one).
std::string why_not_on(const Device& device, const std::string& target);

// CUDA C++ Programming Guide, "Compute Capabilities": equal for 9.0 and 10.0.
constexpr uint32_t kMaxThreads = 1024;             // of a CTA
constexpr uint32_t kMaxThreadsPerSm = 2048;
constexpr uint32_t kMaxWarps = kMaxThreadsPerSm / 32;
constexpr uint32_t kMaxCtasPerSm = 32;
constexpr uint32_t kMaxClusterSize = 16;           // beyond 8 the launch has to ask for it
constexpr uint32_t kMaxGridX = 0x7fffffff;         // CTAs
constexpr uint32_t kMaxGridYz = 65535;
constexpr uint32_t kSharedPerCta = 48 << 10;
constexpr uint32_t kSharedPerCtaOptIn = 227 << 10;
constexpr uint32_t kSharedPerSm = 228 << 10;
constexpr uint32_t kRegistersPerCta = 65536;
constexpr uint32_t kMaxThreadRegisters = 256;      // allocated; 255 can be named
constexpr uint64_t kMemoryBytes = uint64_t{16} << 30;  // less than a GPU has: it is the host's

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_BASE_DEVICE_H_
