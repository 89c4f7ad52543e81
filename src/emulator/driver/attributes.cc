#include "emulator/driver/attributes.h"

#include <cstdint>

namespace warploom::emulator {
namespace {

constexpr int kMostAttribute = 160;  // CUDA 13 has fewer

// Of all emulated devices.
struct Attribute {
  int number;
  int64_t value;
};

constexpr Attribute kAttributes[] = {
    {1, kMaxThreads},           // threads of a CTA
    {2, 1024},                  // its extents
    {3, 1024},
    {4, 64},
    {5, kMaxGridX},
    {6, kMaxGridYz},
    {7, kMaxGridYz},
    {8, kSharedPerCta},
    {9, 64 << 10},              // constant memory
    {10, 32},                   // lanes of a warp
    {11, 0x7fffffff},           // pitch
    {12, kRegistersPerCta},
    {14, 512},                  // alignments of textures
    {15, 1},                    // copies beside kernels
    {19, 1},                    // maps host memory
    {30, 512},
    {31, 1},                    // kernels beside each other
    {39, kMaxThreadsPerSm},
    {40, 1},                    // copy engines
    {41, 1},                    // one address space for all
    {51, 32},
    {78, 1},                    // priorities of streams
    {79, 1},
    {80, 1},
    {81, kSharedPerSm},
    {82, kRegistersPerCta},
    {83, 1},                    // managed memory,
    {89, 1},                    // also while kernels run
    {87, 2},                    // float against double
    {90, 1},
    {91, 1},                    // registered memory has the host's address
    {95, 1},                    // cooperative launches
    {97, kSharedPerCtaOptIn},
    {99, 1},                    // host memory can be registered
    {106, kMaxCtasPerSm},
    {111, kSharedPerSm - kSharedPerCtaOptIn},
    {113, 1},
    {115, 1},                   // pools of memory
    {120, 1},                   // clusters
    {127, 1},                   // tensor maps
    {129, 1},                   // device functions have addresses
    {134, -1},                  // no NUMA node
};

}  // namespace

std::optional<int> device_attribute(const Device& device, int attribute) {
  switch (attribute) {
    case 13: return static_cast<int>(device.clock_kilohertz);
    case 16: return static_cast<int>(multiprocessors(device));
    case 36: return static_cast<int>(device.memory_kilohertz);
    case 37: return static_cast<int>(device.memory_bits);
    case 38: return static_cast<int>(device.l2_bytes);
    case 75: return device.major;
    case 76: return device.minor;
    default: break;
  }
  for (const Attribute& entry : kAttributes) {
    if (entry.number == attribute) return static_cast<int>(entry.value);
  }
  if (attribute < 1 || attribute > kMostAttribute) return std::nullopt;
  return 0;
}

}  // namespace warploom::emulator
