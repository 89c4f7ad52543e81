#include "emulator/base/device.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "emulator/base/fault.h"

namespace warploom::emulator {
namespace {

// The counts are those of an H200 and of a B200.
constexpr std::array<Device, 2> kFacts{{
    {"warploom emulator (sm_90a)", "sm_90a", 9, 0, 132, 1980000, 50u << 20},
    {"warploom emulator (sm_100a)", "sm_100a", 10, 0, 148, 1965000, 126u << 20},
}};

std::vector<Device> make_devices() {
  std::vector<Device> devices(kFacts.begin(), kFacts.end());
  const char* first = std::getenv("WARPLOOM_EMULATOR_ARCH");
  if (first == nullptr) return devices;
  auto found = std::find_if(devices.begin(), devices.end(), [&](const Device& device) {
    return std::strcmp(device.arch, first) == 0;
  });
  // Another device than the one asked for would be worse than none; the Python face says why.
  if (found == devices.end()) return {};
  std::rotate(devices.begin(), found, devices.end());
  return devices;
}

const std::vector<Device>& all_devices() {
  // Never destroyed: TVM asks while the process ends.
  static const auto* devices = new std::vector<Device>(make_devices());
  return *devices;
}

}  // namespace

int device_count() { return static_cast<int>(all_devices().size()); }

const Device* find_device(int index) {
  bool exists = index >= 0 && index < device_count();
  return exists ? &all_devices()[static_cast<std::size_t>(index)] : nullptr;
}

int find_arch(const std::string& arch) {
  for (int i = 0; i < device_count(); ++i) {
    if (arch == find_device(i)->arch) return i;
  }
  return -1;
}

std::string why_not_on(const Device& device, const std::string& target) {
  char* end = nullptr;
  bool named = target.rfind("sm_", 0) == 0;
  int version = named ? static_cast<int>(std::strtol(target.c_str() + 3, &end, 10)) : 0;
  std::string suffix = named ? end : "";
  int own = 10 * device.major + device.minor;
  bool runs = suffix.empty()    ? named && version <= own
              : suffix == "f"   ? version / 10 == device.major && version <= own
              : suffix == "a"   ? version == own
                                : false;
  if (runs) return "";
  int other = find_arch(target);
  return format("it is for %s, and the device is %s%s", target.c_str(), device.arch,
                other < 0 ? "" : format("; device %d executes %s", other, target.c_str()).c_str());
}

}  // namespace warploom::emulator
