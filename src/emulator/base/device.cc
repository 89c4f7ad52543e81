#include "emulator/base/device.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "emulator/base/fault.h"

namespace warploom::emulator {
namespace {

// The counts are those of an H200 and of a B200.
constexpr std::array<Device, 2> kFacts{{
    {"warploom emulator (sm_90a)", "sm_90a", 9, 0, 132, 1980000, 60u << 20, 3201000, 6144},
    {"warploom emulator (sm_100a)", "sm_100a", 10, 0, 148, 1965000, 126u << 20, 3996000, 8192},
}};

// What the program asks for: by set_multiprocessors, or else by the environment.
std::atomic<uint32_t> asked_multiprocessors{0};

uint32_t environment_multiprocessors() {
  const char* text = std::getenv("WARPLOOM_EMULATOR_SMS");
  if (text == nullptr) return 0;
  char* end = nullptr;
  const long count = std::strtol(text, &end, 10);
  // The Python face says what is allowed; here no device is better than another one.
  return *end == '\0' && count >= 1 && count <= kMostMultiprocessors
             ? static_cast<uint32_t>(count)
             : 0;
}

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

uint32_t multiprocessors(const Device& device) {
  static const uint32_t environment = environment_multiprocessors();
  const uint32_t asked = asked_multiprocessors;
  if (asked != 0) return asked;
  return environment != 0 ? environment : device.own_multiprocessors;
}

bool set_multiprocessors(uint32_t count) {
  if (count > kMostMultiprocessors) return false;
  asked_multiprocessors = count;
  return true;
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
