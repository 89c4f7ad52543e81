#include "emulator/memory/device_heap.h"

#include <cinttypes>

#include "emulator/base/fault.h"

namespace warploom::emulator {
namespace {

constexpr uint64_t kAlignment = 16;

uint64_t round_up(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

DeviceHeap::~DeviceHeap() {
  if (begin_ != 0) memory_.remove(begin_);
}

void DeviceHeap::prepare() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (begin_ != 0) return;
  storage_.reset(new uint8_t[kBytes + kAlignment]);
  begin_ = round_up(reinterpret_cast<uint64_t>(storage_.get()));
  memory_.add(begin_, kBytes);
}

uint64_t DeviceHeap::allocate(uint64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (bytes == 0 || bytes > kBytes) return 0;
  bytes = round_up(bytes);
  uint64_t free_from = begin_;
  for (const auto& [begin, end] : blocks_) {
    if (begin - free_from >= bytes) break;
    free_from = end;
  }
  if (bytes > begin_ + kBytes - free_from) return 0;
  blocks_[free_from] = free_from + bytes;
  return free_from;
}

void DeviceHeap::release(uint64_t address) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (address == 0) return;
  if (blocks_.erase(address) == 0) {
    fault("free of 0x%" PRIx64 ", which is no block of malloc, or was freed before", address);
  }
}

}  // namespace warploom::emulator
