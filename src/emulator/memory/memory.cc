#include "emulator/memory/memory.h"

#include <cinttypes>
#include <iterator>

namespace warploom::emulator {

void SharedMemory::out_of_bounds(uint32_t offset, uint64_t count) const {
  fault_of(FaultKind::kOutOfBounds,
           "%" PRIu64 " bytes at shared offset 0x%x are out of bounds: the CTA has 0x%x to 0x%x", count,
           offset, kReserved, bytes);
}

void GlobalMemory::add(uint64_t begin, uint64_t bytes) {
  allocations_[begin] = begin + bytes;
  auto next = removed_.lower_bound(begin);
  if (next != removed_.begin() && std::prev(next)->second > begin) --next;
  while (next != removed_.end() && next->first < begin + bytes) next = removed_.erase(next);
}

void GlobalMemory::remove(uint64_t begin) {
  auto found = allocations_.find(begin);
  if (found == allocations_.end()) return;
  if (removed_.size() >= kMostRemoved) removed_.clear();
  removed_[begin] = found->second;
  allocations_.erase(found);
}

bool GlobalMemory::was_removed(uint64_t address, Range& range) const {
  auto next = removed_.upper_bound(address);
  if (next == removed_.begin()) return false;
  range = {std::prev(next)->first, std::prev(next)->second};
  return address < range.end;
}

GlobalMemory::Range GlobalMemory::find(uint64_t address, uint64_t count) const {
  Range range;
  if (!nearest(address, range) || !range.contains(address, count)) {
    throw OutOfBounds(
        format("%" PRIu64 " bytes at global address 0x%" PRIx64 " lie in no allocation", count,
               address),
        address);
  }
  return range;
}

bool GlobalMemory::nearest(uint64_t address, Range& range) const {
  auto next = allocations_.upper_bound(address);
  if (next == allocations_.begin()) return false;
  range = {std::prev(next)->first, std::prev(next)->second};
  return true;
}

}  // namespace warploom::emulator
