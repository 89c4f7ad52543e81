#include "emulator/memory/memory_footprint.h"

#include <algorithm>
#include <iterator>

namespace warploom::emulator {

void AddressRanges::add(uint64_t begin, uint64_t end) {
  auto next = ranges_.upper_bound(begin);
  if (next != ranges_.begin() && std::prev(next)->second >= begin) {
    --next;
    begin = next->first;
  }
  while (next != ranges_.end() && next->first <= end) {
    end = std::max(end, next->second);
    next = ranges_.erase(next);
  }
  ranges_[begin] = end;
}

bool AddressRanges::overlap(uint64_t begin, uint64_t end) const {
  auto next = ranges_.lower_bound(end);
  return next != ranges_.begin() && std::prev(next)->second > begin;
}

}  // namespace warploom::emulator
