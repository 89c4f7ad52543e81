// The memory of the emulated devices.

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "emulator/base/fault.h"
#include "emulator/driver/session.h"
#include "emulator/ptx/sizes.h"

namespace warploom::emulator {
namespace {

// cudaMalloc aligns to 256 bytes (CUDA C++ Programming Guide, "Device Memory Accesses").
constexpr std::size_t kAlignment = 256;
// Memory holds anything before it is written: of each block so many bytes have a pattern, so that a
// kernel that takes them for zeros fails, and fails each time.
constexpr std::size_t kMostPoisoned = 1 << 20;
constexpr int kPoison = 0xA5;
// Freed memory that is kept while launches are checked.
constexpr std::size_t kMostQuarantined = 64 << 20;

std::size_t round_up(std::size_t bytes) {
  return std::max<std::size_t>(align_size(bytes, kAlignment), kAlignment);
}

}  // namespace

void* Session::allocate(std::size_t bytes, MemoryKind kind) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (devices_.empty()) return nullptr;
  DeviceState& state = current_state();
  if (bytes > kMemoryBytes - state.allocated) {
    set_error(format("warploom emulator: %zu bytes are asked for and %zu are allocated; the "
                     "device has %" PRIu64,
                     bytes, state.allocated, kMemoryBytes));
    return nullptr;
  }
  void* pointer = std::aligned_alloc(kAlignment, round_up(bytes));
  if (pointer == nullptr) {
    set_error(format("warploom emulator: the host has no memory for %zu bytes", bytes));
    return nullptr;
  }
  std::memset(pointer, kPoison, std::min(bytes, kMostPoisoned));
  state.allocated += bytes;
  return add_memory(pointer, {0, bytes, current_device(), kind, 0});
}

bool Session::register_host(void* pointer, std::size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto begin = reinterpret_cast<uint64_t>(pointer);
  auto after = allocations_.lower_bound(begin + bytes);
  const bool overlaps = after != allocations_.begin() &&
                        std::prev(after)->second.begin + std::prev(after)->second.bytes > begin;
  if (pointer == nullptr || bytes == 0 || overlaps) {
    set_error(format("warploom emulator: %zu bytes of the host at 0x%" PRIx64
                     " cannot be registered: %s",
                     bytes, begin, overlaps ? "some are an allocation already" : "they are none"));
    return false;
  }
  add_memory(pointer, {0, bytes, current_device(), MemoryKind::kRegistered, 0});
  return true;
}

bool Session::unregister_host(void* pointer) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto entry = allocations_.find(reinterpret_cast<uint64_t>(pointer));
  if (entry == allocations_.end() || entry->second.kind != MemoryKind::kRegistered) {
    set_error(format("warploom emulator: no memory of the host is registered at 0x%" PRIx64,
                     reinterpret_cast<uint64_t>(pointer)));
    return false;
  }
  remove_memory(entry->second);
  allocations_.erase(entry);
  return true;
}

void* Session::add_memory(void* pointer, MemoryFacts facts) {
  facts.begin = reinterpret_cast<uint64_t>(pointer);
  facts.number = ++last_allocation_;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    const bool sees = facts.kind != MemoryKind::kDevice || static_cast<int>(i) == facts.device;
    if (sees) devices_[i]->memory.add(facts.begin, facts.bytes);
  }
  allocations_[facts.begin] = facts;
  return pointer;
}

void Session::remove_memory(const MemoryFacts& facts) {
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    const bool sees = facts.kind != MemoryKind::kDevice || static_cast<int>(i) == facts.device;
    if (sees) devices_[i]->memory.remove(facts.begin);
  }
}

std::optional<MemoryFacts> Session::find_memory(const void* pointer) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto address = reinterpret_cast<uint64_t>(pointer);
  auto entry = allocations_.upper_bound(address);
  if (entry == allocations_.begin()) return std::nullopt;
  const MemoryFacts& facts = std::prev(entry)->second;
  if (address - facts.begin >= std::max<uint64_t>(facts.bytes, 1)) return std::nullopt;
  return facts;
}

bool Session::copy(void* to, const void* from, std::size_t bytes, bool to_device,
                   bool from_device) {
  if (bytes == 0) return true;
  std::lock_guard<std::mutex> lock(mutex_);
  if (!may_copy(to, bytes, to_device) || !may_copy(from, bytes, from_device)) return false;
  std::memmove(to, from, bytes);
  return true;
}

bool Session::fill(void* to, uint32_t value, std::size_t width, std::size_t count) {
  if (count == 0) return true;
  std::lock_guard<std::mutex> lock(mutex_);
  if (count > SIZE_MAX / width) {
    set_error("warploom emulator: a fill of more bytes than there are");
    return false;
  }
  if (!may_copy(to, width * count, true)) return false;
  auto* place = static_cast<uint8_t*>(to);
  for (std::size_t i = 0; i < count; ++i) std::memcpy(place + i * width, &value, width);
  return true;
}

bool Session::may_copy(const void* pointer, std::size_t bytes, bool on_device) const {
  const auto address = reinterpret_cast<uint64_t>(pointer);
  if (pointer == nullptr) {
    set_error(format("warploom emulator: a copy of %zu bytes from or to a null pointer", bytes));
    return false;
  }
  GlobalMemory::Range range, freed;
  bool near = false, was_freed = false;
  for (const auto& state : devices_) {
    if (!state->memory.nearest(address, range) || !range.contains(address, 0) ||
        address == range.end) {
      was_freed |= state->memory.was_removed(address, freed);
      continue;
    }
    if (range.contains(address, bytes)) return true;
    near = true;
    break;
  }
  if (near) {
    set_error(format("warploom emulator: a copy of %zu bytes at 0x%" PRIx64 " begins at offset %"
                     PRIu64 " of an allocation of %" PRIu64 " bytes and goes beyond its end",
                     bytes, address, address - range.begin, range.end - range.begin));
    return false;
  }
  if (!on_device) return true;
  set_error(format("warploom emulator: a copy of %zu bytes at 0x%" PRIx64 ", %s", bytes, address,
                   was_freed ? "which was freed before"
                             : "where no allocation of device memory is"));
  return false;
}

bool Session::release(void* pointer) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (pointer == nullptr) return true;
  const auto address = reinterpret_cast<uint64_t>(pointer);
  auto entry = allocations_.find(address);
  if (entry == allocations_.end() || entry->second.kind == MemoryKind::kRegistered) {
    GlobalMemory::Range range;
    bool before = false;
    for (const auto& state : devices_) {
      before = before || (state->memory.was_removed(address, range) && range.begin == address);
    }
    set_error(before ? format("warploom emulator: double free: the %" PRIu64 " bytes at 0x%" PRIx64
                              " were freed before",
                              range.end - range.begin, address)
                     : format("warploom emulator: free of 0x%" PRIx64 ", where no allocation of "
                              "device memory begins",
                              address));
    return false;
  }
  devices_[static_cast<std::size_t>(entry->second.device)]->allocated -= entry->second.bytes;
  remove_memory(entry->second);
  quarantine(pointer, entry->second.bytes);
  allocations_.erase(entry);
  return true;
}

void Session::quarantine(void* pointer, std::size_t bytes) {
  quarantine_.emplace_back(pointer, bytes);
  quarantined_ += bytes;
  std::size_t most = options().checks ? kMostQuarantined : 0;
  while (!quarantine_.empty() && (quarantined_ > most || most == 0)) {
    std::free(quarantine_.front().first);
    quarantined_ -= quarantine_.front().second;
    quarantine_.pop_front();
  }
}

std::size_t Session::allocated() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return devices_.empty() ? 0 : devices_[static_cast<std::size_t>(current_device())]->allocated;
}

}  // namespace warploom::emulator
