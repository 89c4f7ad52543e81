// What programs ask of the compiler of PTX: the emulator has none, and only fills the logs.

#ifndef WARPLOOM_EMULATOR_DRIVER_JIT_OPTIONS_H_
#define WARPLOOM_EMULATOR_DRIVER_JIT_OPTIONS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace warploom::emulator {

// Options with their values, as cuModuleLoadDataEx takes them. Writes the error to the buffer of the
// error log, nothing to that of information, and the lengths of both where they were asked for.
inline void fill_logs(unsigned count, const int* options, void** values, const std::string& error) {
  constexpr int kInfo = 3, kInfoSize = 4, kError = 5, kErrorSize = 6;
  std::size_t sizes[2] = {0, 0};
  char* buffers[2] = {nullptr, nullptr};
  for (unsigned i = 0; options != nullptr && values != nullptr && i < count; ++i) {
    if (options[i] == kInfo) buffers[0] = static_cast<char*>(values[i]);
    if (options[i] == kError) buffers[1] = static_cast<char*>(values[i]);
    if (options[i] == kInfoSize) sizes[0] = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(values[i]));
    if (options[i] == kErrorSize) sizes[1] = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(values[i]));
  }
  const std::string texts[2] = {"", error};
  std::size_t used[2] = {0, 0};
  for (int log = 0; log < 2; ++log) {
    if (buffers[log] == nullptr || sizes[log] == 0) continue;
    used[log] = std::min(texts[log].size(), sizes[log] - 1);
    std::memcpy(buffers[log], texts[log].data(), used[log]);
    buffers[log][used[log]] = 0;
  }
  for (unsigned i = 0; options != nullptr && values != nullptr && i < count; ++i) {
    if (options[i] == kInfoSize) values[i] = reinterpret_cast<void*>(used[0]);
    if (options[i] == kErrorSize) values[i] = reinterpret_cast<void*>(used[1]);
  }
}

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_DRIVER_JIT_OPTIONS_H_
