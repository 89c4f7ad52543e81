// Memory for malloc and free in device code.

#ifndef WARPLOOM_EMULATOR_MEMORY_DEVICE_HEAP_H_
#define WARPLOOM_EMULATOR_MEMORY_DEVICE_HEAP_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "emulator/memory/memory.h"

namespace warploom::emulator {

// One allocation of the device, of which kernels get parts. It outlives launches, as blocks do.
class DeviceHeap {
 public:
  // The default of cudaLimitMallocHeapSize.
  static constexpr uint64_t kBytes = 8 << 20;

  // Makes the memory part of `memory` when it is first asked for.
  explicit DeviceHeap(GlobalMemory& memory) : memory_(memory) {}
  ~DeviceHeap();
  DeviceHeap(const DeviceHeap&) = delete;
  DeviceHeap& operator=(const DeviceHeap&) = delete;

  // Reserves the memory: before a launch, since kernels look addresses up without a lock.
  void prepare();
  uint64_t allocate(uint64_t bytes);  // 0 if there is no room
  void release(uint64_t address);     // a Fault if no block begins there

  // The blocks that are in use, as begin -> end: to execute a launch again from the same state.
  std::map<uint64_t, uint64_t> blocks() const { return blocks_; }
  void set_blocks(std::map<uint64_t, uint64_t> blocks) { blocks_ = std::move(blocks); }

 private:
  GlobalMemory& memory_;
  std::mutex mutex_;
  std::unique_ptr<uint8_t[]> storage_;
  uint64_t begin_ = 0;
  std::map<uint64_t, uint64_t> blocks_;  // begin -> end
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MEMORY_DEVICE_HEAP_H_
