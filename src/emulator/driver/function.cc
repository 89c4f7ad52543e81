#include "emulator/driver/function.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "emulator/base/device.h"
#include "emulator/driver/handles.h"

namespace warploom::emulator {
namespace {

// Functions have handles that are given once, so nothing is ever set for another one.
std::map<const void*, FunctionSettings>& all_settings() {
  static auto* settings = new std::map<const void*, FunctionSettings>;
  return *settings;
}

constexpr uint32_t kReserved = kSharedPerSm - kSharedPerCtaOptIn;  // shared memory of a CTA

}  // namespace

FunctionSettings settings_of(const void* function) {
  std::lock_guard<std::mutex> lock(handles_mutex());
  auto entry = all_settings().find(function);
  if (entry != all_settings().end()) return entry->second;
  FunctionSettings none;
  none.fill(-1);
  return none;
}

void set_attribute(const void* function, int attribute, int value) {
  FunctionSettings settings = settings_of(function);
  settings[static_cast<std::size_t>(attribute)] = value;
  std::lock_guard<std::mutex> lock(handles_mutex());
  all_settings()[function] = settings;
}

int registers_of(const FunctionFacts& facts) {
  const ptx::Function& source = *facts.source;
  if (source.register_limit != 0) return static_cast<int>(source.register_limit);
  if (!source.bounds_threads) return 0;
  const uint64_t threads =
      uint64_t{std::max(source.threads_limit, 1u)} * std::max(source.min_ctas, 1u);
  const uint64_t each = kRegistersPerCta / threads / 8 * 8;
  return static_cast<int>(std::clamp<uint64_t>(each, 8, kMaxThreadRegisters - 1));
}

int ctas_per_sm(const FunctionFacts& facts, int64_t threads, std::size_t dynamic_shared) {
  if (threads <= 0 || threads > static_cast<int64_t>(facts.source->threads_limit)) return 0;
  const uint64_t shared = facts.static_shared + dynamic_shared;
  if (shared > kSharedPerCtaOptIn) return 0;
  const uint64_t warps = (static_cast<uint64_t>(threads) + 31) / 32;
  uint64_t count = std::min<uint64_t>(kMaxCtasPerSm, kMaxWarps / warps);
  count = std::min<uint64_t>(count, kSharedPerSm / (shared + kReserved));
  const auto registers = static_cast<uint64_t>(facts.source->register_limit);
  if (registers != 0) count = std::min(count, kRegistersPerCta / (registers * 32 * warps));
  return static_cast<int>(count);
}

}  // namespace warploom::emulator
