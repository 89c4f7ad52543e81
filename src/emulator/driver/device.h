// The device that the emulator stands for: an H200, as far as programs ask.

#ifndef WARPLOOM_EMULATOR_DRIVER_DEVICE_H_
#define WARPLOOM_EMULATOR_DRIVER_DEVICE_H_

#include <cstdint>

namespace warploom::emulator {

constexpr const char* kDeviceName = "warploom emulator (sm_90a)";
constexpr int kComputeMajor = 9;
constexpr int kComputeMinor = 0;

// CUDA C++ Programming Guide, "Compute Capabilities", 9.0; the counts are those of an H200.
constexpr uint32_t kMultiprocessors = 132;
constexpr uint32_t kMaxThreads = 1024;             // of a CTA
constexpr uint32_t kMaxThreadsPerSm = 2048;
constexpr uint32_t kMaxWarps = kMaxThreadsPerSm / 32;
constexpr uint32_t kMaxCtasPerSm = 32;
constexpr uint32_t kMaxClusterSize = 16;           // beyond 8 the launch has to ask for it
constexpr uint32_t kSharedPerCta = 48 << 10;
constexpr uint32_t kSharedPerCtaOptIn = 227 << 10;
constexpr uint32_t kSharedPerSm = 228 << 10;
constexpr uint32_t kRegistersPerCta = 65536;
constexpr uint32_t kClockKilohertz = 1980000;
constexpr uint32_t kL2Bytes = 50 << 20;
constexpr uint64_t kMemoryBytes = uint64_t{16} << 30;  // less than an H200: it is the host's

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_DRIVER_DEVICE_H_
